"""Heads that any architecture can wear."""
