"""The modules behind the heads of several families. T tokens, N targets, H hidden size, K outputs, V vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from rtx_plugins.architectures.common.activations import activation
from rtx_plugins.architectures.common.initialization import initialize_normal
from rtx_plugins.heads.linear_part import LinearPart

if TYPE_CHECKING:
    from rtx_core import Batch
    from rtx_plugins.architectures.common.heads import DenseClassifier, LanguageModelling, QuestionAnswering


class LanguageModellingPart(nn.Module):
    """Logits over the vocabulary at the targets' positions alone.

    In ``transformers`` the bias of some families has two names, ``bias`` and ``decoder.bias``: one parameter where the
    decoder is tied to the token table; two where it isn't, of which only ``decoder.bias`` is used.
    """

    def __init__(self, hidden_size: int, vocab_size: int, settings: LanguageModelling) -> None:
        super().__init__()
        self.tie_word_embeddings = settings.tie_word_embeddings
        self.initializer_range = settings.initializer_range
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.activation = activation(settings.hidden_act)
        self.norm = nn.LayerNorm(hidden_size, settings.layer_norm_eps)
        bias = nn.Parameter(torch.zeros(vocab_size))
        if settings.second_bias:
            self.bias = bias if self.tie_word_embeddings else nn.Parameter(torch.zeros(vocab_size), requires_grad=False)
        self.decoder = Decoder()
        self.decoder.bias = bias
        if not self.tie_word_embeddings:
            self.decoder.weight = nn.Parameter(torch.zeros(vocab_size, hidden_size))

    def tie(self, table: nn.Parameter) -> None:
        """Take the token table ``[V, H]`` as the decoder's weights, unless the settings say otherwise."""
        if self.tie_word_embeddings:
            self.decoder.weight = table

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        dense = self.dense(hidden_states.index_select(0, batch.target_positions))
        return cast("torch.Tensor", self.norm(self.activation(dense)))

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[N, V]``."""
        return cast("torch.Tensor", self.decoder(features))

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter."""
        initialize_normal(name, tensor, generator, std=self.initializer_range)


class Decoder(nn.Module):
    """A linear layer whose weights may be another's; it makes none of its own, which would be V · H to throw away."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """``[N, H]`` to ``[N, V]``."""
        return nn.functional.linear(features, self.weight, self.bias)


class DenseClassifierPart(LinearPart):
    """A linear head over a dense layer with activation."""

    def __init__(self, hidden_size: int, outputs: int, settings: DenseClassifier) -> None:
        super().__init__(hidden_size, outputs, dropout=settings.dropout, initializer_range=settings.initializer_range)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.activation = activation(settings.activation)
        self.drops_input = settings.drops_input

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        features = hidden_states.index_select(0, batch.target_positions)
        if self.drops_input:
            features = self.dropout(features)
        return cast("torch.Tensor", self.dropout(self.activation(self.dense(features))))


class QuestionAnsweringPart(nn.Module):
    """Logits of whether an answer starts, and of whether it ends, at each target's position."""

    def __init__(self, hidden_size: int, outputs: int, settings: QuestionAnswering) -> None:
        super().__init__()
        self.initializer_range = settings.initializer_range
        self.dropout = nn.Identity() if settings.dropout is None else nn.Dropout(settings.dropout)
        self.qa_outputs = nn.Linear(hidden_size, outputs)

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        return cast("torch.Tensor", self.dropout(hidden_states.index_select(0, batch.target_positions)))

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[N, K]``."""
        return cast("torch.Tensor", self.qa_outputs(features))

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter."""
        initialize_normal(name, tensor, generator, std=self.initializer_range)
