"""Immutable segments of rows, and arrays that are checked before they are read."""
