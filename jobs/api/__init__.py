"""The doors for Python programs: a store that is open for reading, and a job that runs in this process."""
