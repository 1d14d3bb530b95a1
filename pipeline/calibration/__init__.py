"""What a model's error bars and scores are worth, from rows predicted before they were learned or without them."""
