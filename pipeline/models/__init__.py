"""Stored records as learners and predictors, and back."""
