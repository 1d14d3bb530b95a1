"""Andelić et al. (2007), "Updates for nonlinear discriminants"."""
