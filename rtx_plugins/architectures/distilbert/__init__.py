"""DistilBERT (Sanh et al. 2019, arXiv:1910.01108): BERT with half of its layers, without token types and pooler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs
from attrs.validators import and_, ge, lt, optional

from rtx_core import Architecture, Head, Outputs, SpecialTokens, hookimpl
from rtx_plugins.architectures.common.activations import Activation
from rtx_plugins.architectures.common.heads import DenseClassifier, LanguageModelling, QuestionAnswering
from rtx_plugins.architectures.common.hugging_face import (
    PROBLEM_TYPES,
    heads_rule,
    kept_config,
    padding_rule,
    refuse_another_model,
    table_rows,
)
from rtx_plugins.heads.linear import Linear

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

LAYER_NORM_EPS = 1e-12
"""Added to the variance in each norm; ``config.json`` has no key for it."""

_probability = and_(ge(0.0), lt(1.0))

_HF_CLASSES: dict[str | None, str] = {
    None: "DistilBertModel",
    "masked_lm": "DistilBertForMaskedLM",
    "question_answering": "DistilBertForQuestionAnswering",
    "token_classification": "DistilBertForTokenClassification",
    **dict.fromkeys(PROBLEM_TYPES, "DistilBertForSequenceClassification"),
}


@attrs.frozen(kw_only=True)
class DistilBert(Architecture):
    """An encoder with learned positions; fields and defaults are those of ``transformers.DistilBertConfig``."""

    model_type: ClassVar[str | None] = "distilbert"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "base": {"n_layers": 6, "dim": 768, "n_heads": 12, "hidden_dim": 3072},
    }
    special_tokens: ClassVar[SpecialTokens] = SpecialTokens(
        pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]", pair_token_type=0
    )

    dim: int = attrs.field(default=768, validator=ge(1))
    """H, the width of the hidden states."""
    hidden_size: int = attrs.field(init=False, default=attrs.Factory(lambda self: self.dim, takes_self=True))
    """H too, by the name that it has in other families."""
    n_layers: int = attrs.field(default=6, validator=ge(1))
    """Number of layers."""
    n_heads: int = attrs.field(default=12, validator=ge(1))
    """Attention heads of each layer; they share the width equally."""
    hidden_dim: int = attrs.field(default=3072, validator=ge(1))
    """Width of the feed-forward network."""
    activation: Activation = "gelu"
    """Activation of the feed-forward network and of the head over the vocabulary."""
    dropout: float = attrs.field(default=0.1, validator=_probability)
    """Share dropped of embeddings and of what the feed-forward network adds, in training."""
    attention_dropout: float = attrs.field(default=0.1, validator=_probability)
    """Share of the attention weights that is dropped in training."""
    qa_dropout: float = attrs.field(default=0.1, validator=_probability)
    """Share dropped before the layer that finds answers, in training."""
    seq_classif_dropout: float = attrs.field(default=0.2, validator=_probability)
    """Share dropped before a classifier of texts, in training."""
    max_position_embeddings: int = attrs.field(default=512, validator=ge(1))
    """Tokens of the longest sequence."""
    initializer_range: float = attrs.field(default=0.02, validator=ge(0.0))
    """Standard deviation of the first weights."""
    pad_token_id: int | None = attrs.field(default=0, validator=optional(ge(0)))  # type: ignore[arg-type]  # 0 hides None
    """Token whose embedding starts at 0 and is not trained; None: there is none."""
    tie_word_embeddings: bool = True
    """Whether language modelling decodes with the token table."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Sizes that must fit each other."""
        yield from heads_rule("dim", self.dim, self.n_heads)
        yield from padding_rule(self)

    @property
    def usable_positions(self) -> int:
        """The longest sequence that fits."""
        return self.max_position_embeddings

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers, by the name that it has in other families."""
        return self.n_layers

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """This component's fields out of a ``config.json``; unknown keys are left out.

        :raises ValueError: a key says that this is another model.
        """
        refuse_another_model(config, {"model_type": cls.model_type})
        fields = super().from_hf(config)
        fields.pop("hidden_size", None)
        return fields

    def build(self, vocab_size: int) -> torch.nn.Module:
        """The backbone.

        :raises InputError: the vocabulary is larger than the token table that the settings ask for.
        """
        from rtx_plugins.architectures.distilbert.model import DistilBertBackbone

        return DistilBertBackbone(self, table_rows(self, vocab_size))

    def native_head(self, task: str) -> Head | None:
        """The head of ``transformers``' class for the task; None where it has none."""
        std = self.initializer_range
        if task == "masked_lm":
            return LanguageModelling(
                hidden_act=self.activation,
                layer_norm_eps=LAYER_NORM_EPS,
                initializer_range=std,
                tie_word_embeddings=self.tie_word_embeddings,
                second_bias=False,
            )
        if task in PROBLEM_TYPES:
            return DenseClassifier(
                activation="relu", dropout=self.seq_classif_dropout, drops_input=False, initializer_range=std
            )
        if task == "token_classification":
            return Linear(dropout=self.dropout, initializer_range=std)
        if task == "question_answering":
            return QuestionAnswering(dropout=self.qa_dropout, initializer_range=std)
        return None

    def layer_names(self) -> Sequence[str]:
        """Prefixes of public names from input to output."""
        layers = (f"distilbert.transformer.layer.{layer}." for layer in range(self.n_layers))
        return ("distilbert.embeddings.", *layers)

    def hf_names(self, task: str | None) -> Sequence[tuple[str, str]]:
        """Pairs (our prefix, Hugging Face's prefix), the first match wins."""
        backbone = ("backbone.", "distilbert.")
        if task == "masked_lm":
            return (
                backbone,
                ("head.dense.", "vocab_transform."),
                ("head.norm.", "vocab_layer_norm."),
                ("head.decoder.", "vocab_projector."),
            )
        if task in PROBLEM_TYPES:
            return (backbone, ("head.dense.", "pre_classifier."), ("head.", ""))
        if task in _HF_CLASSES and task is not None:
            return (backbone, ("head.", ""))
        return (backbone,)

    def hf_config(self, task: str | None, outputs: Outputs) -> dict[str, Any]:
        """``config.json`` of the kept model, without ``vocab_size`` where that is None: the token table knows it."""
        return kept_config(self, _HF_CLASSES, task, outputs)


@hookimpl
def architecture() -> dict[str, type[Architecture]]:
    """Offer it as ``distilbert``."""
    return {"distilbert": DistilBert}
