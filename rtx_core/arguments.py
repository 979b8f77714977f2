"""Command-line arguments that several commands take, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """``PIPELINE`` and ``--set``, as ``arguments.pipeline`` and ``arguments.sets``."""
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE", help="the TOML file")
    add_sets(parser)


def add_sets(parser: argparse.ArgumentParser, *, example: str = "optimizer.lr=1e-4") -> None:
    """``--set``, as ``arguments.sets``."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="sets",
        metavar="KEY=VALUE",
        help=f"another value for one key, as {example}; KEY=unset takes one away; may repeat",
    )


def add_no_cache(parser: argparse.ArgumentParser) -> None:
    """``--no-cache``, as ``arguments.cache``."""
    parser.add_argument(
        "--no-cache",
        action="store_false",
        dest="cache",
        help="encode the data anew, into a temporary file (in TMPDIR) that is gone at the end",
    )
