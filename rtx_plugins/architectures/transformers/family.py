"""A family of ``transformers``: its config from our settings, and its classes."""

from __future__ import annotations

import inspect
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import transformers
from rapidfuzz import process
from rapidfuzz.distance import OSA

from rtx_core import InputError
from rtx_plugins.architectures.common.hugging_face import PROBLEM_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rtx_plugins.architectures.transformers import Transformers

_MAPPINGS: dict[str | None, Any] = {
    None: transformers.MODEL_MAPPING,
    "masked_lm": transformers.MODEL_FOR_MASKED_LM_MAPPING,
    "question_answering": transformers.MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    "token_classification": transformers.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    **dict.fromkeys(PROBLEM_TYPES, transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING),
}
"""The families' classes by task; under None those of encoders."""
_FAR = 3
"""Edits from which on two names are not taken for one that is misspelt."""


def family_config(settings: Transformers, vocab_size: int | None = None) -> transformers.PreTrainedConfig:
    """The family's config: our settings over its defaults.

    :param vocab_size: rows of the token table; None: those of the settings, else the family's default.
    :raises InputError: there is no such family, or it has no such field or value, or it is no encoder.
    """
    cls = _config_class(settings.model_type)
    _refuse_unknown(settings, cls)
    rows = settings.vocab_size if vocab_size is None else vocab_size
    fields = settings.fields if rows is None else {**settings.fields, "vocab_size": rows}
    with silent():
        try:
            config = cls(**fields)
        except Exception as error:  # each family has rules of its own, and errors of its own
            raise InputError(f"architecture.config: {cls.__name__} refuses it: {_in_one_line(error)}") from error
    _refuse_no_encoder(config)
    width = getattr(config, "hidden_size", settings.hidden_size)
    if width != settings.hidden_size:
        raise InputError(f"architecture.config: {cls.__name__} makes a width of {width} of {settings.hidden_size}")
    return config


@contextmanager
def silent() -> Iterator[None]:
    """Without the warnings of ``transformers``, which are about its own use."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)


def base_prefix(settings: Transformers) -> str:
    """What the names of the encoder begin with in a file that has a head too, as ``electra.``."""
    prefix = class_for(family_config(settings), None).base_model_prefix
    return f"{prefix}." if prefix else ""


def class_for(config: transformers.PreTrainedConfig, task: str | None) -> type[transformers.PreTrainedModel]:
    """The family's class for a task; None: that of the encoder alone.

    :raises InputError: it has none.
    """
    mapping = _MAPPINGS.get(task)
    if mapping is None or type(config) not in mapping:
        purpose = "its encoder" if task is None else f'{task}; take another head, as [head] type = "linear"'
        raise InputError(f'architecture.model_type: transformers has no class of "{config.model_type}" for {purpose}')
    cls: Any = mapping[type(config)]
    chosen: type[transformers.PreTrainedModel] = cls[0] if isinstance(cls, tuple) else cls
    return chosen


def built(
    cls: type[transformers.PreTrainedModel], config: transformers.PreTrainedConfig
) -> transformers.PreTrainedModel:
    """A model on the current default device, without a pooler where the class can leave it out.

    :raises InputError: the class can't be built with this config.
    """
    make: Any = cls._from_config  # as AutoModel does
    with silent():
        try:
            model: transformers.PreTrainedModel = make(config, dtype=torch.float32, **options_of(cls))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # sizes that don't fit each other, a function that there isn't
            raise InputError(f"architecture.config: {cls.__name__} refuses it: {_in_one_line(error)}") from error
    _refuse_uneven_heads(config)
    return model


def _refuse_uneven_heads(config: transformers.PreTrainedConfig) -> None:
    """Heads that can't share the width equally, which not every family looks at before its first batch.

    :raises InputError: they can't.
    """
    if hasattr(config, "head_dim") or hasattr(config, "d_head"):  # as wide as they are told
        return
    width = getattr(config, "true_hidden_size", None) or getattr(config, "hidden_size", 0)  # MobileBERT's are narrower
    heads = getattr(config, "num_attention_heads", None)
    if heads and width % heads:
        raise InputError(f"architecture.config: {heads} attention heads can't share a width of {width} equally")


def options_of(cls: type[transformers.PreTrainedModel]) -> dict[str, Any]:
    """What a class is called with to leave its pooler out, where it can."""
    return {"add_pooling_layer": False} if "add_pooling_layer" in parameters_of(cls) else {}


def parameters_of(function: Any) -> frozenset[str]:
    """The names of what a function or a class takes."""
    return frozenset(inspect.signature(function).parameters)


def _config_class(model_type: str) -> type[transformers.PreTrainedConfig]:
    if model_type not in transformers.CONFIG_MAPPING:
        raise InputError(
            f'architecture.model_type: transformers {transformers.__version__} knows no "{model_type}"'
            f"{_hint(model_type, transformers.CONFIG_MAPPING.keys())}"
        )
    cls: type[transformers.PreTrainedConfig] = transformers.CONFIG_MAPPING[model_type]
    return cls


def _refuse_unknown(settings: Transformers, cls: type[transformers.PreTrainedConfig]) -> None:
    """A field that somebody wrote must be one of the family's; what a published file holds besides is passed on."""
    known = {*cls().to_dict(), *cls.attribute_map, *parameters_of(cls), *settings.pretrained_config}
    for place, names in (("config", settings.config), ("none", () if settings.pretrained_config else settings.none)):
        for name in names:
            if name not in known and not _is_read_by_the_model(name, cls):
                where = f"architecture.config.{name}" if place == "config" else f'architecture.none: "{name}"'
                raise InputError(f"{where}: {cls.__name__} has no such field{_hint(name, known)}")


def _is_read_by_the_model(field: str, cls: type[transformers.PreTrainedConfig]) -> bool:
    """Whether the code of the encoder asks for a field that the config's class doesn't know, as DeBERTa's does."""
    if cls not in transformers.MODEL_MAPPING:
        return False
    model: Any = transformers.MODEL_MAPPING[cls]
    module = inspect.getmodule(model[0] if isinstance(model, tuple) else model)
    return module is not None and f'getattr(config, "{field}"' in inspect.getsource(module)


def _refuse_no_encoder(config: transformers.PreTrainedConfig) -> None:
    """Only a model that reads text, all of it at once, gives each token a state that a head here can use."""
    kind = type(config)
    causal_only = (
        kind in transformers.MODEL_FOR_CAUSAL_LM_MAPPING and kind not in transformers.MODEL_FOR_MASKED_LM_MAPPING
    )
    reason = None
    if config.is_encoder_decoder:
        reason = "is an encoder with a decoder"
    elif getattr(config, "is_decoder", False) or causal_only:
        reason = "is a decoder, which lets a token see only those before it"
    elif class_for(config, None).main_input_name != "input_ids":
        reason = f"reads no text ({class_for(config, None).main_input_name})"
    if reason is not None:
        raise InputError(
            f'architecture.model_type: "{config.model_type}" {reason}; type = "transformers" is for encoders'
        )


def _hint(name: str, known: Iterable[str]) -> str:
    near = process.extractOne(name, sorted(known), scorer=OSA.distance, score_cutoff=min(_FAR, len(name) // 2))
    return "" if near is None else f'; did you mean "{near[0]}"?'


def _in_one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"it knows no {text}" if isinstance(error, KeyError) else text
