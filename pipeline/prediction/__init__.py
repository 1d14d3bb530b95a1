"""Prediction and evaluation of partitions."""
