"""Settings compared on the first rows of a job, before it trains."""
