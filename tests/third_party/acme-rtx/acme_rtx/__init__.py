"""Parts for rtx from outside it: one module each, named in pyproject.toml."""
