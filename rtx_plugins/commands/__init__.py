"""Subcommands beyond run and check."""
