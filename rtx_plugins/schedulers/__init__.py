"""Courses of the learning rate, as pure functions."""
