"""Jung & Polani (2006), "Sequential learning with LS-SVM for large-scale data sets", and its slides."""
