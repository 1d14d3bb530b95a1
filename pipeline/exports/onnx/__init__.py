"""Served models as ONNX: raw columns in, predictions out."""
