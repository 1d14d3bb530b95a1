"""The compiled loops of the online LS-SVM; the only folder that imports numba."""
