"""Storage errors, the translation of library errors into them, and what the libraries of this process can do."""
