"""The batch methods: one algorithm, one file, and their registry."""
