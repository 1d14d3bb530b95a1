"""Conversion of stored model records to learners and predictors, and back."""
