"""The job file: sections, checks, and the requests made from them."""
