"""The kept model as a folder that ``transformers`` loads: weights, config, tokenizer, and a card."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from rtx_core import checkpoint, weights
from rtx_core.durable import sync_folder
from rtx_core.folder import write_text_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import tokenizers
    import torch

    from rtx_core.components import SpecialTokens


def write_folder(
    folder: Path,
    *,
    tensors: Mapping[str, torch.Tensor],
    config: Mapping[str, Any],
    tokenizer: tokenizers.Tokenizer,
    special_tokens: SpecialTokens,
    max_length: int,
    card: str,
) -> None:
    """Write the whole folder beside its place and rename it there, so that it is complete or not there.

    :param tensors: by public name, tied ones once.
    :param card: the text of ``README.md``.
    """
    staging = folder.with_name(f".tmp-{folder.name}")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    weights.write_model(staging, tensors, config)
    for name, text in _tokenizer_files(tokenizer, special_tokens, max_length).items():
        write_text_atomically(staging / name, text)
    write_text_atomically(staging / "README.md", card)
    sync_folder(staging)
    if folder.exists():
        checkpoint.remove(folder)
    staging.rename(folder)
    sync_folder(folder.parent)


def _tokenizer_files(tokenizer: tokenizers.Tokenizer, special_tokens: SpecialTokens, max_length: int) -> dict[str, str]:
    roles = {
        "pad_token": special_tokens.pad,
        "unk_token": special_tokens.unk,
        "cls_token": special_tokens.cls,
        "sep_token": special_tokens.sep,
        "mask_token": special_tokens.mask,
    }
    types = ["token_type_ids"] if special_tokens.pair_token_type else []
    settings = {
        # The generic fast class: it takes everything from tokenizer.json and adds no rules of its own.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
        # The generic class gives no token types unless asked, and the second text of a pair would look like the first.
        "model_input_names": ["input_ids", *types, "attention_mask"],
        **roles,
    }
    return {
        "tokenizer.json": tokenizer.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(settings, indent=2, ensure_ascii=False) + "\n",
        "special_tokens_map.json": json.dumps(roles, indent=2, ensure_ascii=False) + "\n",
    }
