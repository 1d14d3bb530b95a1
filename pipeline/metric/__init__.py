"""The learned metric: by which linear map of the standardized features distances are measured."""
