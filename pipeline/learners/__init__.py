"""The learners: one algorithm, one file, opened by its paper and by where it departs from it."""
