"""Hypothesis draws the same examples on every run and knows no clock; `--hypothesis-profile=search` draws new ones."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("fixed")
