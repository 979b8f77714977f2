"""The heads of ModernBERT's classes: each a dense layer with norm, then a linear layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Head
from rtx_plugins.architectures.common.activations import Activation

if TYPE_CHECKING:
    import torch


@attrs.frozen(kw_only=True)
class Dense(Head):
    """What the heads share: dense layer, activation, norm."""

    activation: Activation
    """The activation after the dense layer."""
    dense_bias: bool
    """Whether the dense layer has a bias."""
    norm_eps: float
    """Added to the variance in the norm."""
    norm_bias: bool
    """Whether the norm has a bias."""
    residual_std: float
    """Standard deviation of the first weights of the dense layer, and of a decoder of its own; biases start at 0."""
    cutoff: float
    """No weight starts farther from 0 than so many standard deviations."""


@attrs.frozen(kw_only=True)
class MaskedLm(Dense):
    """``ModernBertForMaskedLM``: a decoder that shares the token table."""

    decoder_bias: bool
    """Whether the decoder has a bias."""
    tie_word_embeddings: bool
    """Whether the decoder's weights are the token table."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to the vocabulary."""
        from rtx_plugins.architectures.modernbert.heads_part import MaskedLmPart

        return MaskedLmPart(hidden_size, outputs, self)


@attrs.frozen(kw_only=True)
class Classifier(Dense):
    """``ModernBertForSequenceClassification``, ``…TokenClassification`` and ``…QuestionAnswering``."""

    mean: bool
    """Whether a target's features are the mean over its sequence's tokens; else the token at its position."""
    dropout: float
    """Share of what the norm gives that is dropped in training."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to K."""
        from rtx_plugins.architectures.modernbert.heads_part import ClassifierPart

        return ClassifierPart(hidden_size, outputs, self)
