"""Sums over rows that merge: what one pass brings back."""
