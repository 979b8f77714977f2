"""The smallest part of each kind."""
