"""The heads that ``transformers`` has for several families: for the vocabulary, for texts and for answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Head
from rtx_plugins.architectures.common.activations import Activation

if TYPE_CHECKING:
    import torch


@attrs.frozen(kw_only=True)
class LanguageModelling(Head):
    """A dense layer with activation and norm, then a decoder that shares the token table."""

    hidden_act: Activation
    """The activation after the dense layer."""
    layer_norm_eps: float
    """Added to the variance in the norm."""
    initializer_range: float
    """Standard deviation of the first weights; biases start at 0."""
    tie_word_embeddings: bool
    """Whether the decoder's weights are the token table."""
    second_bias: bool
    """Whether the family's files have a ``bias`` beside the decoder's own."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to the vocabulary."""
        from rtx_plugins.architectures.common.heads_part import LanguageModellingPart

        return LanguageModellingPart(hidden_size, outputs, self)


@attrs.frozen(kw_only=True)
class DenseClassifier(Head):
    """A dense layer with activation at each target's position, dropout, a linear layer."""

    activation: Activation
    """The activation after the dense layer."""
    dropout: float
    """Share of the features that is dropped in training."""
    drops_input: bool
    """Whether as much is dropped before the dense layer too."""
    initializer_range: float
    """Standard deviation of the first weights; biases start at 0."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to K."""
        from rtx_plugins.architectures.common.heads_part import DenseClassifierPart

        return DenseClassifierPart(hidden_size, outputs, self)


@attrs.frozen(kw_only=True)
class QuestionAnswering(Head):
    """A linear layer at each target's position."""

    dropout: float | None = None
    """Share of its input that is dropped in training; None: the family's has no dropout there."""
    initializer_range: float
    """Standard deviation of the first weights; the bias starts at 0."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to the logits of start and end."""
        from rtx_plugins.architectures.common.heads_part import QuestionAnsweringPart

        return QuestionAnsweringPart(hidden_size, outputs, self)
