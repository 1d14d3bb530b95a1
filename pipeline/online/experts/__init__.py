"""Local experts: space cut into cells, with an online learner in each."""
