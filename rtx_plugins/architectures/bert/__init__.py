"""BERT (Devlin et al. 2019, arXiv:1810.04805), in the sizes of Turc et al. 2019 (arXiv:1908.08962)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs
from attrs.validators import and_, ge, gt, lt, optional

from rtx_core import Architecture, Head, Outputs, SpecialTokens, hookimpl
from rtx_plugins.architectures.bert.heads import PooledClassifier
from rtx_plugins.architectures.common.activations import Activation
from rtx_plugins.architectures.common.heads import LanguageModelling, QuestionAnswering
from rtx_plugins.architectures.common.hugging_face import (
    LANGUAGE,
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

_TOKENS = SpecialTokens(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")
_probability = and_(ge(0.0), lt(1.0))


def _size(layers: int, hidden_size: int, heads: int) -> dict[str, int]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden_size,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden_size,
    }


@attrs.frozen(kw_only=True)
class Bert(Architecture):
    """An encoder with learned positions, or a decoder; fields and defaults are those of ``transformers.BertConfig``."""

    model_type: ClassVar[str | None] = "bert"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": _size(2, 128, 2),
        "mini": _size(4, 256, 4),
        "small": _size(4, 512, 8),
        "medium": _size(8, 512, 8),
        "base": _size(12, 768, 12),
        "large": _size(24, 1024, 16),
    }
    hf_classes: ClassVar[Mapping[str | None, str]] = {
        None: "BertModel",
        "masked_lm": "BertForMaskedLM",
        "causal_lm": "BertLMHeadModel",
        "question_answering": "BertForQuestionAnswering",
        "token_classification": "BertForTokenClassification",
        **dict.fromkeys(PROBLEM_TYPES, "BertForSequenceClassification"),
    }
    """``transformers``' class by task; under None the encoder's, which any other task keeps alone."""

    hidden_size: int = attrs.field(default=768, validator=ge(1))
    """H, the width of the hidden states."""
    num_hidden_layers: int = attrs.field(default=12, validator=ge(1))
    """Number of layers."""
    num_attention_heads: int = attrs.field(default=12, validator=ge(1))
    """Attention heads of each layer; they share the hidden size equally."""
    intermediate_size: int = attrs.field(default=3072, validator=ge(1))
    """Width of the feed-forward network."""
    hidden_act: Activation = "gelu"
    """Activation of the feed-forward network."""
    hidden_dropout_prob: float = attrs.field(default=0.1, validator=_probability)
    """Share dropped of embeddings and of what attention and feed-forward network add, in training."""
    attention_probs_dropout_prob: float = attrs.field(default=0.1, validator=_probability)
    """Share of the attention weights that is dropped in training."""
    max_position_embeddings: int = attrs.field(default=512, validator=ge(1))
    """Tokens of the longest sequence."""
    type_vocab_size: int = attrs.field(default=2, validator=ge(1))
    """Token types: 2 tell the texts of a pair apart; with 1 the separator alone does."""
    initializer_range: float = attrs.field(default=0.02, validator=ge(0.0))
    """Standard deviation of the first weights."""
    layer_norm_eps: float = attrs.field(default=1e-12, validator=gt(0.0))
    """Added to the variance in each norm."""
    pad_token_id: int | None = attrs.field(default=0, validator=optional(ge(0)))  # type: ignore[arg-type]  # 0 hides None
    """Token whose embedding starts at 0 and is not trained; None: there is none."""
    is_decoder: bool = False
    """Whether a token sees itself and those before it alone, which ``causal_lm`` needs; else it sees all."""
    tie_word_embeddings: bool = True
    """Whether language modelling decodes with the token table."""
    classifier_dropout: float | None = attrs.field(default=None, validator=optional(_probability))
    """Share dropped before a classifier, in training; None takes hidden_dropout_prob."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Sizes that must fit each other."""
        yield from heads_rule("hidden_size", self.hidden_size, self.num_attention_heads)
        yield from padding_rule(self)

    @property
    def special_tokens(self) -> SpecialTokens:  # type: ignore[override]  # its families have the same for all sizes
        """BERT's tokens; the second text of a pair has a type of its own where there are two."""
        return attrs.evolve(_TOKENS, pair_token_type=min(1, self.type_vocab_size - 1))

    @property
    def usable_positions(self) -> int:
        """The longest sequence that fits."""
        return self.max_position_embeddings

    @property
    def causal(self) -> bool:
        """Whether a token sees only those before it."""
        return self.is_decoder

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """This component's fields out of a ``config.json``; unknown keys are left out.

        :raises ValueError: a key says that this is another model.
        """
        refuse_another_model(
            config,
            {"model_type": cls.model_type, "add_cross_attention": False, "position_embedding_type": "absolute"},
        )
        return super().from_hf(config)

    def build(self, vocab_size: int) -> torch.nn.Module:
        """The backbone.

        :raises InputError: the vocabulary is larger than the token table that the settings ask for.
        """
        from rtx_plugins.architectures.bert.model import BertBackbone

        return BertBackbone(self, table_rows(self, vocab_size))

    def native_head(self, task: str) -> Head | None:
        """The head of ``transformers``' class for the task; None where it has none."""
        if task in LANGUAGE:
            return self.language_head
        if task in PROBLEM_TYPES:
            return PooledClassifier(dropout=self.head_dropout, initializer_range=self.initializer_range)
        if task == "token_classification":
            return Linear(dropout=self.head_dropout, initializer_range=self.initializer_range)
        if task == "question_answering":
            return QuestionAnswering(initializer_range=self.initializer_range)
        return None

    @property
    def head_dropout(self) -> float:
        """Share dropped before a classifier."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @property
    def language_head(self) -> Head:
        """The head over the vocabulary."""
        return LanguageModelling(
            hidden_act=self.hidden_act,
            layer_norm_eps=self.layer_norm_eps,
            initializer_range=self.initializer_range,
            tie_word_embeddings=self.tie_word_embeddings,
            second_bias=True,
        )

    def layer_names(self) -> Sequence[str]:
        """Prefixes of public names from input to output."""
        prefix = self.model_type
        layers = (f"{prefix}.encoder.layer.{layer}." for layer in range(self.num_hidden_layers))
        return (f"{prefix}.embeddings.", *layers)

    def hf_names(self, task: str | None) -> Sequence[tuple[str, str]]:
        """Pairs (our prefix, Hugging Face's prefix), the first match wins."""
        backbone = ("backbone.", "bert.")
        if task not in self.hf_classes or task is None:
            return (backbone,)
        if task in LANGUAGE:
            return (
                backbone,
                ("head.dense.", "cls.predictions.transform.dense."),
                ("head.norm.", "cls.predictions.transform.LayerNorm."),
                ("head.", "cls.predictions."),
            )
        return (backbone, ("head.pooler.", "bert.pooler."), ("head.", ""))

    @property
    def hf_encoder_options(self) -> Mapping[str, Any]:
        """The pooler belongs to a head that the body alone hasn't."""
        return {"add_pooling_layer": False}

    def hf_config(self, task: str | None, outputs: Outputs) -> dict[str, Any]:
        """``config.json`` of the kept model, without ``vocab_size`` where that is None: the token table knows it."""
        return kept_config(self, self.hf_classes, task, outputs)


@hookimpl
def architecture() -> dict[str, type[Architecture]]:
    """Offer it as ``bert``."""
    return {"bert": Bert}
