"""What a run records, warns of and holds back."""
