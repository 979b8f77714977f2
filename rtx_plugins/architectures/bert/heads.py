"""The heads that ``transformers`` has for BERT and no other module of ours is: for texts, tokens and spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Head
from rtx_plugins.architectures.common.activations import Activation

if TYPE_CHECKING:
    import torch


@attrs.frozen(kw_only=True)
class PooledClassifier(Head):
    """``BertForSequenceClassification``: the pooler at each target's position, dropout, a linear layer."""

    dropout: float
    """Share of the pooled features that is dropped in training."""
    initializer_range: float
    """Standard deviation of the first weights; biases start at 0."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to K."""
        from rtx_plugins.architectures.bert.heads_part import PooledClassifierPart

        return PooledClassifierPart(hidden_size, outputs, self)


@attrs.frozen(kw_only=True)
class MaskedLm(Head):
    """``BertForMaskedLM``, ``BertLMHeadModel``: a dense layer with norm, then a decoder that shares the token table."""

    hidden_act: Activation
    """The activation after the dense layer."""
    layer_norm_eps: float
    """Added to the variance in the norm."""
    initializer_range: float
    """Standard deviation of the first weights; biases start at 0."""
    tie_word_embeddings: bool
    """Whether the decoder's weights are the token table."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to the vocabulary."""
        from rtx_plugins.architectures.bert.heads_part import MaskedLmPart

        return MaskedLmPart(hidden_size, outputs, self)


@attrs.frozen(kw_only=True)
class QuestionAnswering(Head):
    """``BertForQuestionAnswering``: a linear layer, without dropout before it."""

    initializer_range: float
    """Standard deviation of the first weights; the bias starts at 0."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:
        """The module, H to the logits of start and end."""
        from rtx_plugins.architectures.bert.heads_part import QuestionAnsweringPart

        return QuestionAnsweringPart(hidden_size, outputs, self)
