"""``python -m rtx_core``: the same as the command ``rtx``."""

from __future__ import annotations

from rtx_core.cli import entry_point

if __name__ == "__main__":
    raise SystemExit(entry_point())
