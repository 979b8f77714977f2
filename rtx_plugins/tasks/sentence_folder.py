"""The files beside a model's own by which ``sentence-transformers`` (Reimers & Gurevych 2019) loads it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rtx_core import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_USAGE = """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")
queries = model.encode_query(["a text that asks"])
documents = model.encode_document(["a text that answers", "another one"])
print(model.similarity(queries, documents))"""


def sentence_folder(
    modules: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    prompts: Mapping[str, str],
    max_length: int,
    lengths: Mapping[str, int] | None,
    encoder_options: Mapping[str, Any],
) -> Layout:
    """The files for an encoder and what comes after it.

    :param modules: what comes after it: class and config of each.
    :param prompts: what stands before a text by its role: ``query``, ``document``, ``negative``.
    :param lengths: tokens kept of queries and documents, where these differ from each other.
    :param encoder_options: what the encoder's class in ``transformers`` is called with.
    """
    encoder: dict[str, Any] = {"max_seq_length": max_length, "do_lower_case": False}
    if encoder_options:
        encoder["model_args"] = dict(encoder_options)
    differ = lengths is not None and len(set(lengths.values())) > 1
    if differ:
        encoder |= {f"{role}_length": length for role, length in (lengths or {}).items()}
    chain = [("Transformer", ""), *((name, f"{number}_{name}") for number, (name, _) in enumerate(modules, start=1))]
    files = {
        "modules.json": [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
            for number, (name, path) in enumerate(chain)
        ],
        "sentence_bert_config.json": encoder,
        "config_sentence_transformers.json": _settings(prompts),
        **{
            f"{path}/config.json": dict(config)
            for (_, path), (_, config) in zip(chain[1:], modules, strict=True)
            if config
        },
    }
    by_role = (
        "texts are cut by their role with encode_query and encode_document alone; that was tested with version 6.2"
    )
    return Layout(
        library="sentence-transformers",
        files={path: json.dumps(content, indent=2, ensure_ascii=False) + "\n" for path, content in files.items()},
        usage=_USAGE,
        limits=(by_role,) if differ else (),
    )


def _settings(prompts: Mapping[str, str]) -> dict[str, Any]:
    """Prompts and what embeddings are compared by, which is what they were trained and measured with."""
    named = {role: prompt for role, prompt in prompts.items() if role != "negative" or prompt != prompts["document"]}
    # One prompt for all texts is that of plain encode() too; where roles differ, only the caller knows which it is.
    one = len(set(named.values())) == 1 and any(named.values())
    return {"prompts": named, "default_prompt_name": "query" if one else None, "similarity_fn_name": "cosine"}
