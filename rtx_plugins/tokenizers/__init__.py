"""Tokenizers, trained in the run or loaded."""
