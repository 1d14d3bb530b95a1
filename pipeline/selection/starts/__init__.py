"""Initial dictionaries from rows: at random, by clusters, by pivots, by matching pursuit."""
