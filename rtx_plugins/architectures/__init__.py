"""Bodies of models."""
