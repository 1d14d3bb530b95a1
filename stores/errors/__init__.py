"""Storage errors, and the translation of library errors into them."""
