"""OROLS (Andelić et al. 2007)."""
