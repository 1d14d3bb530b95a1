"""The doors: command line, configuration, cluster, one file a job."""
