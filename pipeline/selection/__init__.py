"""How a dictionary is chosen, pruned and compared, from sums alone."""
