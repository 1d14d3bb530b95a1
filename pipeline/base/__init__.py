"""What every room shares: errors, protocols, checks of arguments, memory plans."""
