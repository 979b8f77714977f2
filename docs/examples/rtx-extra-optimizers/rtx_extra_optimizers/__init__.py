"""Optimizers for rtx from outside it."""
