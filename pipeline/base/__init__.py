"""Shared by all rooms: errors, protocols, argument checks, memory plans."""
