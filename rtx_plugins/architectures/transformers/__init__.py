"""Any encoder that ``transformers`` (Wolf et al. 2020, arXiv:1910.03771) builds, fed padded batches.

The slow path to every family that has no architecture of its own here: padding is computed like text, and attention is
what ``transformers`` picks. Its code alone is run, never code out of a checkpoint's folder.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
from attrs.validators import ge, optional

from rtx_core import Architecture, Head, Outputs, SpecialTokens, hookimpl
from rtx_plugins.architectures.common.hugging_face import head_config, padding_rule
from rtx_plugins.architectures.transformers.heads import TASKS, OriginalHead
from rtx_plugins.architectures.transformers.tokens import conventional, special_tokens_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

EXTRA = 'pip install "rtx-transformers[transformers]"'
"""How to get what this module needs."""

_WIDTHS = ("hidden_size", "d_model", "dim", "n_embd", "embed_dim", "emb_dim")
"""What families call H, the usual name first."""

_OF_THE_FILE = frozenset(
    {
        *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "tokenizer_class"),
        *("id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params"),
        *("attn_implementation", "experts_implementation", "quantization_config", "return_dict"),
        *("output_attentions", "output_hidden_states"),
    }
)
"""Keys of a ``config.json`` that say nothing of the encoder: of its file, its head, its numbers' format."""

_FIRST_POSITION_AFTER_PADDING = frozenset(
    {
        *("camembert", "data2vec-text", "esm", "ibert", "layoutlmv3", "lilt", "longformer", "luke", "markuplm"),
        *("mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    }
)
"""Families whose first position is that behind the padding token's number, as RoBERTa's."""

_MPNET_PADDING = 1
"""MPNet's code takes this number for the padding token's, whatever ``config.json`` says."""

_NO_ENCODER = ("is_encoder_decoder", "is_decoder", "add_cross_attention")
"""Fields that make something else than an encoder of a family."""
_ENCODERS_ALONE = 'type = "transformers" builds encoders alone'

_TABLE_ABOVE = ("model_type", "vocab_size", "pad_token_id")
"""Fields of the family that are fields of the architecture, since rtx itself goes by them."""


def usable_positions(model_type: str, fields: Mapping[str, Any]) -> int | None:
    """The longest sequence that fits; None where there is no limit, or where the fields don't tell.

    :param fields: those of ``config.json``; what is left out has the family's default.
    """
    rows = fields.get("max_position_embeddings")
    relative_alone = fields.get("position_biased_input") is False  # DeBERTa: no table, and far distances share a bucket
    if not isinstance(rows, int) or relative_alone:
        return None
    if model_type not in _FIRST_POSITION_AFTER_PADDING:
        return rows
    return rows - (fields.get("pad_token_id") or 0) - 1


def _usual_padding(model_type: str) -> int:
    return 1 if model_type in _FIRST_POSITION_AFTER_PADDING else 0


@attrs.frozen(kw_only=True)
class Transformers(Architecture):
    """Any encoder of the ``transformers`` library, also a family that is not named here.

    It needs ``transformers``; what a family's fields are, and their defaults, is said in its documentation.
    """

    any_model_type: ClassVar[bool] = True

    model_type: str  # type: ignore[misc]  # which family it is, a class of ours knows; this one is told
    """The family, as ``config.json`` names it: ``electra``, ``xlm-roberta``, ``deberta-v2``, …."""
    pad_token_id: int | None = attrs.field(
        default=attrs.Factory(lambda self: _usual_padding(self.model_type), takes_self=True),
        validator=optional(ge(0)),  # type: ignore[arg-type]  # 0 hides None
    )
    """Number of the padding token; left out it is 1 for families like RoBERTa, else 0."""
    config: Mapping[str, Any] = attrs.field(factory=dict)
    """The family's own fields, as its ``config.json`` has them, over those of ``from_pretrained``; what is left out has
    the family's default."""
    none: tuple[str, ...] = ()
    """Fields of the family that are None, for which TOML has no word."""
    pretrained_config: Mapping[str, Any] = attrs.field(factory=dict)
    """What ``config.json`` of ``from_pretrained`` says, as it is recorded in ``resolved.toml``; write ``config``."""
    special_tokens: SpecialTokens = attrs.field(  # type: ignore[misc]  # known of a class of ours, not of this one
        default=attrs.Factory(lambda self: conventional(self.model_type), takes_self=True)
    )
    """The special tokens, and how they stand around texts: those of ``from_pretrained``, else the family's usual."""
    hidden_size: int = attrs.field(init=False, default=attrs.Factory(lambda self: self.width or 0, takes_self=True))
    """H, the width of the hidden states, as the fields of the family say."""

    def check(self) -> Iterable[tuple[str, str]]:
        """What can be told without loading ``transformers``, which takes seconds."""
        if importlib.util.find_spec("transformers") is None:
            yield "model_type", f"needs the library transformers, which is not installed: {EXTRA}"
        for key in self.config:
            if key in _TABLE_ABOVE:
                yield f"config.{key}", f"stands one table above: [architecture] {key}"
            elif key in _OF_THE_FILE or key.startswith("_"):
                yield f"config.{key}", "says nothing of the encoder; leave it out"
        yield from ((f"config.{key}", _ENCODERS_ALONE) for key in _NO_ENCODER if self.config.get(key))
        written = next((name for name in _WIDTHS if name in self.fields), None)
        if written is None:
            yield "config", f"hidden_size is missing, the width of the encoder (some families call it {_WIDTHS[1]})"
        elif self.width is None:
            yield "config", f"{written} is {self.fields[written]!r}; it must be an integer above 0"
        yield from padding_rule(self)
        if self.model_type == "mpnet" and self.pad_token_id != _MPNET_PADDING:
            yield (
                "pad_token_id",
                f"MPNet's padding token always has the number {_MPNET_PADDING}, not {self.pad_token_id}",
            )
        usable = self.usable_positions
        if usable is not None and usable < 1:
            yield "config", "max_position_embeddings leaves no position behind pad_token_id"

    @property
    def fields(self) -> dict[str, Any]:
        """The family's fields that are given: those of the checkpoint, under what the pipeline writes."""
        written = {**self.pretrained_config, **dict.fromkeys(self.none), **self.config}
        return {**_with_lists(written), "pad_token_id": self.pad_token_id}

    @property
    def width(self) -> int | None:
        """H; None where no field gives it."""
        found = (self.fields.get(name) for name in _WIDTHS)
        return next((value for value in found if isinstance(value, int) and value > 0), None)

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers by its usual name; 0 where it has another, or the family's default."""
        layers = self.fields.get("num_hidden_layers")
        return layers if isinstance(layers, int) else 0

    @property
    def usable_positions(self) -> int | None:
        """The longest sequence that fits; None where there is no limit, or the family's default holds."""
        return usable_positions(self.model_type, self.fields)

    @classmethod
    def from_folder(cls, folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that a folder with weights gives: the family, its sizes, and its special tokens.

        :raises ValueError: it is no encoder that ``transformers`` itself can build, or a file is damaged.
        """
        fields = cls.from_hf(config)
        return {**fields, "special_tokens": special_tokens_in(folder, str(config.get("model_type")))}

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """This component's fields out of a ``config.json``, of which every key is kept that is about the encoder.

        :raises ValueError: the file asks for code of its own, or is of no encoder.
        """
        _refuse_code(config)
        _refuse_null_in_arrays(config)
        for key in _NO_ENCODER:
            if config.get(key):
                raise ValueError(f"config.json has {key} true; {_ENCODERS_ALONE}")
        about = {
            name: value
            for name, value in config.items()
            if name not in _OF_THE_FILE and not name.startswith("_") and name not in _TABLE_ABOVE
        }
        return {
            **{name: config[name] for name in _TABLE_ABOVE if config.get(name) is not None},
            "none": [name for name, value in about.items() if value is None],
            "pretrained_config": {name: _without_none(value) for name, value in about.items() if value is not None},
        }

    def build(self, vocab_size: int) -> torch.nn.Module:
        """The backbone.

        :raises InputError: ``transformers`` has no such encoder, or not with these fields.
        """
        from rtx_plugins.architectures.transformers.model import PaddedBackbone

        return PaddedBackbone(self, vocab_size)

    def native_head(self, task: str) -> Head | None:
        """That of the family's class for the task; None for a task that families have no class for."""
        return OriginalHead(architecture=self, task=task) if task in TASKS else None

    def layer_names(self) -> Sequence[str]:
        """Prefixes of public names from input to output, as the built model has them."""
        from rtx_plugins.architectures.transformers.model import layer_names

        return layer_names(self)

    def hf_names(self, task: str | None) -> Sequence[tuple[str, str]]:
        """Pairs (our prefix, Hugging Face's prefix), the first match wins."""
        from rtx_plugins.architectures.transformers.family import base_prefix

        prefix = base_prefix(self)
        backbone = (("backbone.model.", prefix), ("backbone.", prefix))
        return (*backbone, ("head.model.", "")) if task in TASKS else backbone

    @property
    def hf_encoder_options(self) -> Mapping[str, Any]:
        """No pooler, where the family's class can leave it out."""
        from rtx_plugins.architectures.transformers.family import class_for, family_config, options_of

        return options_of(class_for(family_config(self), None))

    def hf_config(self, task: str | None, outputs: Outputs) -> dict[str, Any]:
        """``config.json`` of the kept model, as ``transformers`` writes it."""
        from rtx_plugins.architectures.transformers.family import class_for, family_config

        config = family_config(self)
        written: dict[str, Any] = json.loads(config.to_json_string())
        written |= {"architectures": [class_for(config, task).__name__], "dtype": "float32"}
        return written | (head_config(task, outputs) if task in TASKS else {})


def _refuse_code(config: Mapping[str, Any]) -> None:
    """Code out of a checkpoint's folder is never run, and without it another model may come out.

    :raises ValueError: the file names some.
    """
    names = config.get("auto_map")
    own = [name for key, name in names.items() if key in ("AutoConfig", "AutoModel")] if isinstance(names, dict) else []
    if own:
        raise ValueError(
            f"config.json names code of its own (auto_map: {own[-1]}), which is never run; take a checkpoint of a "
            "family that transformers has"
        )


def _refuse_null_in_arrays(config: Mapping[str, Any]) -> None:
    """TOML has no word for it, and left out it would move what stands behind.

    :raises ValueError: an array of a field that is kept has one.
    """

    def has_one(value: Any) -> bool:
        if isinstance(value, Mapping):
            return any(has_one(item) for item in value.values())
        return isinstance(value, list) and any(item is None or has_one(item) for item in value)

    for name, value in config.items():
        if name not in _OF_THE_FILE and not name.startswith("_") and has_one(value):
            raise ValueError(f"config.json has null in an array of {name}, which a pipeline can't hold; take it out")


def _with_lists(value: Any) -> Any:
    """A value as JSON has it: arrays of a pipeline are tuples, which the families' configs refuse."""
    if isinstance(value, Mapping):
        return {key: _with_lists(item) for key, item in value.items()}
    return [_with_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _without_none(value: Any) -> Any:
    """A value without the entries of its tables that are None, which TOML can't hold."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value


@hookimpl
def architecture() -> dict[str, type[Architecture]]:
    """Offer it as ``transformers``."""
    return {"transformers": Transformers}
