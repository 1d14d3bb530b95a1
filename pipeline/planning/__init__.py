"""What a job takes: passes and time."""
