"""Job files to begin with: their schema, for editors, and a draft made from a look at the data."""
