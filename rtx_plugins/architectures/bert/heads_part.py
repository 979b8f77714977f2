"""The modules behind BERT's own heads. T tokens, N targets, H hidden size, K outputs, V vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from rtx_plugins.architectures.common.activations import activation
from rtx_plugins.architectures.common.initialization import initialize_normal
from rtx_plugins.heads.linear_part import LinearPart

if TYPE_CHECKING:
    from rtx_core import Batch
    from rtx_plugins.architectures.bert.heads import MaskedLm, PooledClassifier, QuestionAnswering


class PooledClassifierPart(LinearPart):
    """A linear head over tanh(W h + b) of the hidden states at the targets' positions."""

    def __init__(self, hidden_size: int, outputs: int, settings: PooledClassifier) -> None:
        super().__init__(hidden_size, outputs, dropout=settings.dropout, initializer_range=settings.initializer_range)
        self.pooler = Pooler(hidden_size)

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        pooled = self.pooler(hidden_states.index_select(0, batch.target_positions))
        return cast("torch.Tensor", self.dropout(pooled))


class Pooler(nn.Module):
    """tanh of a dense layer, trained by next-sentence prediction where the weights are BERT's."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """``[N, H]`` to ``[N, H]``."""
        return torch.tanh(self.dense(hidden_states))


class MaskedLmPart(nn.Module):
    """Logits over the vocabulary at the targets' positions alone.

    As in ``transformers`` the bias has two names, ``bias`` and ``decoder.bias``: one parameter where the decoder is
    tied to the token table; two where it isn't, of which only ``decoder.bias`` is used.
    """

    def __init__(self, hidden_size: int, vocab_size: int, settings: MaskedLm) -> None:
        super().__init__()
        self.tie_word_embeddings = settings.tie_word_embeddings
        self.initializer_range = settings.initializer_range
        self.transform = Transform(hidden_size, settings)
        self.bias = nn.Parameter(torch.zeros(vocab_size), requires_grad=self.tie_word_embeddings)
        self.decoder = Decoder()
        if self.tie_word_embeddings:
            self.decoder.bias = self.bias
        else:
            self.decoder.bias = nn.Parameter(torch.zeros(vocab_size))
            self.decoder.weight = nn.Parameter(torch.zeros(vocab_size, hidden_size))

    def tie(self, table: nn.Parameter) -> None:
        """Take the token table ``[V, H]`` as the decoder's weights, unless the settings say otherwise."""
        if self.tie_word_embeddings:
            self.decoder.weight = table

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        return cast("torch.Tensor", self.transform(hidden_states.index_select(0, batch.target_positions)))

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[N, V]``."""
        return cast("torch.Tensor", self.decoder(features))

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter."""
        initialize_normal(name, tensor, generator, std=self.initializer_range)


class Transform(nn.Module):
    """Dense layer, activation, norm."""

    def __init__(self, hidden_size: int, settings: MaskedLm) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.activation = activation(settings.hidden_act)
        self.LayerNorm = nn.LayerNorm(hidden_size, settings.layer_norm_eps)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """``[N, H]`` to ``[N, H]``."""
        return cast("torch.Tensor", self.LayerNorm(self.activation(self.dense(hidden_states))))


class Decoder(nn.Module):
    """A linear layer whose weights may be another's; it makes none of its own, which would be V · H to throw away."""

    weight: nn.Parameter
    bias: nn.Parameter

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """``[N, H]`` to ``[N, V]``."""
        return nn.functional.linear(features, self.weight, self.bias)


class QuestionAnsweringPart(nn.Module):
    """Logits of whether an answer starts, and of whether it ends, at each target's position."""

    def __init__(self, hidden_size: int, outputs: int, settings: QuestionAnswering) -> None:
        super().__init__()
        self.initializer_range = settings.initializer_range
        self.qa_outputs = nn.Linear(hidden_size, outputs)

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        return hidden_states.index_select(0, batch.target_positions)

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[N, K]``."""
        return cast("torch.Tensor", self.qa_outputs(features))

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter."""
        initialize_normal(name, tensor, generator, std=self.initializer_range)
