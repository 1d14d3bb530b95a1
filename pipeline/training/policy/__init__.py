"""Training value functions: transitions of a store, learned online or by passes."""
