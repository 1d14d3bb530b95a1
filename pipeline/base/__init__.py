"""Shared by all folders of the pipeline: errors, events, protocols, checks of arguments, settings, memory plans."""
