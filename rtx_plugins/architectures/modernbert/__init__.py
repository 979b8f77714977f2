"""ModernBERT (Warner et al. 2024, arXiv:2412.13663): a BERT for long texts; rotary positions, local attention."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs
from attrs.validators import and_, ge, gt, lt, optional

from rtx_core import Architecture, Head, Outputs, SpecialTokens, hookimpl
from rtx_plugins.architectures.common.activations import Activation
from rtx_plugins.architectures.common.hugging_face import (
    LANGUAGE,
    PROBLEM_TYPES,
    heads_rule,
    kept_config,
    padding_rule,
    refuse_another_model,
    table_rows,
)
from rtx_plugins.architectures.modernbert.heads import Classifier, MaskedLm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

_probability = and_(ge(0.0), lt(1.0))

_ONLY = {"model_type": "modernbert"}
"""Keys of a ``config.json`` that make another model of it, and the value that doesn't."""

_HF_CLASSES: dict[str | None, str] = {
    None: "ModernBertModel",
    "masked_lm": "ModernBertForMaskedLM",
    "question_answering": "ModernBertForQuestionAnswering",
    "token_classification": "ModernBertForTokenClassification",
    **dict.fromkeys(PROBLEM_TYPES, "ModernBertForSequenceClassification"),
}
"""By task; any other keeps the encoder alone, which stands under None."""

_TOKEN_IDS = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
"""Keys of ``config.json`` that the model doesn't use, and for which ``transformers`` takes those of its own vocabulary
where they are missing. The tokenizer's file has them."""

_THETAS = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
"""Our field for each kind of layer in ``config.json``'s ``rope_parameters``."""


@attrs.frozen(kw_only=True)
class ModernBert(Architecture):
    """An encoder for up to 8192 tokens; fields and defaults are those of ``transformers.ModernBertConfig``.

    Thetas and the distance of global layers are named as in the published ``config.json``.
    """

    model_type: ClassVar[str | None] = "modernbert"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "base": {
            "num_hidden_layers": 22,
            "hidden_size": 768,
            "num_attention_heads": 12,
            "intermediate_size": 1152,
        },
        "large": {
            "num_hidden_layers": 28,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "intermediate_size": 2624,
        },
    }
    special_tokens: ClassVar[SpecialTokens] = SpecialTokens(
        pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]", pair_token_type=0
    )

    hidden_size: int = attrs.field(default=768, validator=ge(1))
    """H, the width of the hidden states."""
    num_hidden_layers: int = attrs.field(default=22, validator=ge(1))
    """Number of layers."""
    num_attention_heads: int = attrs.field(default=12, validator=ge(1))
    """Attention heads of each layer; they share the hidden size equally."""
    intermediate_size: int = attrs.field(default=1152, validator=ge(1))
    """Width of the feed-forward network, and again as much for its gates."""
    hidden_activation: Activation = "gelu"
    """Activation of the feed-forward network, which the gates multiply."""
    max_position_embeddings: int = attrs.field(default=8192, validator=ge(1))
    """Tokens of the longest sequence."""
    global_attn_every_n_layers: int = attrs.field(default=3, validator=ge(1))
    """Each so many layers, the first among them, attend to the whole sequence; the others to what is near."""
    local_attention: int = attrs.field(default=128, validator=ge(2))
    """Width of the others' window: a token attends to half as many tokens before it, and after it."""
    global_rope_theta: float = attrs.field(default=160_000.0, validator=gt(0.0))
    """Base of the rotary angles in layers that attend to the whole sequence."""
    local_rope_theta: float = attrs.field(default=10_000.0, validator=gt(0.0))
    """Base of the rotary angles in the others."""
    embedding_dropout: float = attrs.field(default=0.0, validator=_probability)
    """Share of the embeddings that is dropped in training."""
    attention_dropout: float = attrs.field(default=0.0, validator=_probability)
    """Share dropped of the attention weights, and of what attention adds, in training."""
    mlp_dropout: float = attrs.field(default=0.0, validator=_probability)
    """Share dropped inside the feed-forward network, in training."""
    attention_bias: bool = False
    """Whether attention's linear layers have biases."""
    mlp_bias: bool = False
    """Whether those of the feed-forward network have."""
    norm_bias: bool = False
    """Whether norms have."""
    norm_eps: float = attrs.field(default=1e-5, validator=gt(0.0))
    """Added to the variance in each norm."""
    initializer_range: float = attrs.field(default=0.02, validator=gt(0.0))
    """Standard deviation of the first weights; layers that add to the hidden states start smaller by √(2 · layers)."""
    initializer_cutoff_factor: float = attrs.field(default=2.0, validator=gt(0.0))
    """No weight starts farther from 0 than so many standard deviations."""
    pad_token_id: int | None = attrs.field(default=0, validator=optional(ge(0)))  # type: ignore[arg-type]  # 0 hides None
    """Token whose embedding is not trained; None: there is none. 0 is where a trained vocabulary has it; the published
    weights have 50283, which comes with their config.json."""
    tie_word_embeddings: bool = True
    """Whether language modelling decodes with the token table."""
    decoder_bias: bool = True
    """Whether its decoder has a bias."""
    classifier_pooling: Literal["cls", "mean"] = "cls"
    """What a classifier of texts reads: the first token, or the mean over all tokens."""
    classifier_dropout: float = attrs.field(default=0.0, validator=_probability)
    """Share dropped before a classifier, in training."""
    classifier_bias: bool = False
    """Whether the dense layer of each head has a bias."""
    classifier_activation: Activation = "gelu"
    """The activation after it."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Sizes that must fit each other."""
        yield from heads_rule("hidden_size", self.hidden_size, self.num_attention_heads)
        per_head, rest = divmod(self.hidden_size, self.num_attention_heads)
        if per_head % 2 and not rest:
            yield (
                "hidden_size",
                f"{self.hidden_size} by {self.num_attention_heads} attention heads is odd; rotary positions need pairs",
            )
        yield from padding_rule(self)

    @property
    def usable_positions(self) -> int:
        """The longest sequence that fits."""
        return self.max_position_embeddings

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """This component's fields out of a ``config.json``, as published or as transformers 5 writes it.

        :raises ValueError: a key says that this is another model.
        """
        refuse_another_model(config, _ONLY)
        fields = super().from_hf(config)
        for kind, rope in (config.get("rope_parameters") or {}).items():
            if kind not in _THETAS or rope.get("rope_type", "default") != "default":
                raise ValueError(
                    f"config.json has rope_parameters {json.dumps({kind: rope})}; modernbert takes "
                    f'{" and ".join(_THETAS)} with rope_type "default" only'
                )
            if "rope_theta" in rope:
                fields[_THETAS[kind]] = float(rope["rope_theta"])
        if config.get("layer_types") is not None:
            fields["global_attn_every_n_layers"] = _distance(config)
        return fields

    def is_global(self, layer: int) -> bool:
        """Whether that layer attends to the whole sequence."""
        return layer % self.global_attn_every_n_layers == 0

    def build(self, vocab_size: int) -> torch.nn.Module:
        """The backbone.

        :raises InputError: the vocabulary is larger than the token table that the settings ask for.
        """
        from rtx_plugins.architectures.modernbert.model import ModernBertBackbone

        return ModernBertBackbone(self, table_rows(self, vocab_size))

    def native_head(self, task: str) -> Head | None:
        """The head of ``transformers``' class for the task; None where it has none."""
        if task not in _HF_CLASSES:
            return None
        dense: dict[str, Any] = {
            "activation": self.classifier_activation,
            "dense_bias": self.classifier_bias,
            "norm_eps": self.norm_eps,
            "norm_bias": self.norm_bias,
            "residual_std": self.residual_std,
            "cutoff": self.initializer_cutoff_factor,
        }
        if task in LANGUAGE:
            return MaskedLm(**dense, decoder_bias=self.decoder_bias, tie_word_embeddings=self.tie_word_embeddings)
        mean = task in PROBLEM_TYPES and self.classifier_pooling == "mean"
        return Classifier(**dense, mean=mean, dropout=self.classifier_dropout)

    @property
    def residual_std(self) -> float:
        """Standard deviation of the first weights of a layer that adds to the hidden states."""
        return float(self.initializer_range / (2.0 * self.num_hidden_layers) ** 0.5)

    def layer_names(self) -> Sequence[str]:
        """Prefixes of public names from input to output."""
        return ("model.embeddings.", *(f"model.layers.{layer}." for layer in range(self.num_hidden_layers)))

    def hf_names(self, task: str | None) -> Sequence[tuple[str, str]]:
        """Pairs (our prefix, Hugging Face's prefix), the first match wins."""
        backbone = ("backbone.", "model.")
        return (backbone,) if task not in _HF_CLASSES or task is None else (backbone, ("head.", ""))

    def hf_config(self, task: str | None, outputs: Outputs) -> dict[str, Any]:
        """``config.json`` of the kept model, without ``vocab_size`` where that is None: the token table knows it."""
        return kept_config(self, _HF_CLASSES, task, outputs) | dict.fromkeys(_TOKEN_IDS)


def _distance(config: Mapping[str, Any]) -> int:
    """Of one global layer from the next, by ``layer_types``.

    :raises ValueError: it isn't the same everywhere.
    """
    types = config["layer_types"]
    written = config.get("global_attn_every_n_layers", 3)  # of several that give the same layers, this one
    for distance in (written, *range(1, len(types) + 1)):
        if types == ["sliding_attention" if layer % distance else "full_attention" for layer in range(len(types))]:
            return int(distance)
    raise ValueError(
        f"config.json has layer_types {json.dumps(types)}; modernbert takes full_attention at every n-th layer from "
        "the first, sliding_attention at the others"
    )


@hookimpl
def architecture() -> dict[str, type[Architecture]]:
    """Offer it as ``modernbert``."""
    return {"modernbert": ModernBert}
