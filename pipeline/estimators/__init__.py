"""Estimators with the interface of scikit-learn, over the trainings of job files."""
