"""From raw columns to standardized features and back."""
