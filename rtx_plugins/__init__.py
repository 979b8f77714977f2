"""The parts that ship with rtx: each a plugin module behind an entry point of pyproject.toml, like anyone's."""
