"""Served models for other runtimes: ONNX, scikit-learn, MLflow."""
