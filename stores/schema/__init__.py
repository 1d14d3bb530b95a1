"""Columns, types, class labels and rows of a data source."""
