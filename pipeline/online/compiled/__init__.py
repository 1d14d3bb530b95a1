"""The compiled loops of the online LS-SVM; the only room that imports numba."""
