"""The kept model as a folder that ``transformers`` loads: weights, config, tokenizer, and a card."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rtx_core import weights
from rtx_core.durable import sync_folder, write_file
from rtx_core.folder import new_folder

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
    files: Mapping[str, str],
    replace: bool,
) -> None:
    """Write the whole folder beside its place and rename it there, so that it is complete or not there.

    :param tensors: by public name, tied ones once.
    :param files: the text of every other file, by its path in the folder.
    :param replace: take the place of a folder that is there.
    :raises RunError: the disk is full or fails; what was there is as it was.
    """
    with new_folder(folder, replace=replace) as made:
        weights.write_model(made, tensors, config)
        for name, text in {**_tokenizer_files(tokenizer, special_tokens, max_length), **files}.items():
            file = made / name
            if file.parent != made:
                file.parent.mkdir(exist_ok=True)
            write_file(file, text.encode())
            if file.parent != made:
                sync_folder(file.parent)


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
