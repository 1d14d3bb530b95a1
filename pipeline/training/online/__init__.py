"""Training the online learner: its stream, checkpoints, dictionary and width."""
