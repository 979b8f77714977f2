"""How a step is spread over processes."""
