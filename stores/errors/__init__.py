"""Errors of storage, and their translation from those of libraries."""
