"""The online LS-SVM (Jung & Polani 2006)."""
