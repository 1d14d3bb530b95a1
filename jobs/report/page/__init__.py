"""The report of a night as a page: template, style and pictures."""
