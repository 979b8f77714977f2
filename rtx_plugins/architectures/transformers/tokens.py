"""The special tokens of a checkpoint, and how its tokenizer puts them around texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import tokenizers

from rtx_core import SpecialTokens

_BERT = SpecialTokens(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")
_ROBERTA = SpecialTokens(
    pad="<pad>", unk="<unk>", cls="<s>", sep="</s>", mask="<mask>", pair_separators=2, pair_token_type=0
)
_UNIGRAM = attrs.evolve(_BERT, pad="<pad>", unk="<unk>")
_BY_FAMILY = {
    **dict.fromkeys(("camembert", "data2vec-text", "ibert", "longformer", "roberta", "roberta-prelayernorm"), _ROBERTA),
    **dict.fromkeys(("xlm-roberta", "xlm-roberta-xl", "xmod"), _ROBERTA),
    **dict.fromkeys(("albert", "fnet", "rembert"), _UNIGRAM),
    "mpnet": attrs.evolve(_ROBERTA, unk="[UNK]"),
}

_KEYS = {
    "pad": ("pad_token",),
    "unk": ("unk_token",),
    "cls": ("cls_token", "bos_token"),
    "sep": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}
"""Keys of the tokenizer's files by role, the best first."""


def conventional(model_type: str) -> SpecialTokens:
    """What the published models of a family use; BERT's where nothing else is known."""
    return _BY_FAMILY.get(model_type, _BERT)


def special_tokens_in(folder: Path, model_type: str) -> dict[str, Any]:
    """The fields of :class:`SpecialTokens` that the files of a folder give; what they leave out is conventional.

    :raises ValueError: a file is damaged.
    """
    named: dict[str, Any] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        named = {**_json_object(folder / file), **named}
    found: dict[str, Any] = {role: _first(named, keys) for role, keys in _KEYS.items()}
    tokens = attrs.asdict(conventional(model_type)) | {
        role: token for role, token in found.items() if token is not None
    }
    return tokens | _pair(folder / "tokenizer.json", tokens["mask"])


def _first(named: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of the keys that names a token, as a text or as an object with its content."""
    for key in keys:
        value = named.get(key)
        token = value.get("content") if isinstance(value, dict) else value
        if isinstance(token, str) and token:
            return token
    return None


def _pair(file: Path, mask: str) -> dict[str, int]:
    """How many separators stand between the texts of a pair, and the second one's token type.

    Nothing where there is no such file, or where it puts nothing between them.
    """
    if not file.is_file():
        return {}
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{file} can't be read: {error}") from error
    pair = tokenizer.encode(mask, mask)  # always a token, and one alone
    owners = list(pair.sequence_ids)
    if 0 not in owners or 1 not in owners:
        return {}
    second = owners.index(1)
    separators = second - 1 - max(place for place, owner in enumerate(owners) if owner == 0)
    if not separators:
        return {}
    return {"pair_separators": separators, "pair_token_type": pair.type_ids[second]}


def _json_object(file: Path) -> dict[str, Any]:
    """The file's content; empty where there is no such file."""
    try:
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} can't be read: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{file} holds no JSON object")  # noqa: TRY004 - a wrong file, not a wrong call
    return value
