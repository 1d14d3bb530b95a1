"""The report of a run, as JSON and as one HTML page."""
