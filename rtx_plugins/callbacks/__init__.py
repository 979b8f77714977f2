"""Parts that implement the loop's hooks."""
