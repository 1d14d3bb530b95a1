"""Requests to disks and servers: their time limits, and what this process is waiting for."""
