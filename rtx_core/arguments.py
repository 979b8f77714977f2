"""Command-line arguments that several commands take, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """``PIPELINE`` and ``--set``, as ``arguments.pipeline`` and ``arguments.sets``."""
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE", help="the TOML file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="sets",
        metavar="KEY=VALUE",
        help="another value for one key, as optimizer.lr=1e-4; KEY=unset takes one away; may repeat",
    )
