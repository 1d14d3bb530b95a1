"""Cawley & Talbot (2002): "Efficient formation of a basis", and "Improved sparse LS-SVM"."""
