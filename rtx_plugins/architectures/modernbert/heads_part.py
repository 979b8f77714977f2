"""The modules behind ModernBERT's heads. T tokens, N targets, H hidden size, K outputs, V vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from rtx_plugins.architectures.common.activations import activation
from rtx_plugins.architectures.common.heads_part import Decoder
from rtx_plugins.architectures.common.initialization import initialize_truncated
from rtx_plugins.heads.pooling_part import sequence_means

if TYPE_CHECKING:
    from rtx_core import Batch
    from rtx_plugins.architectures.modernbert.heads import Classifier, Dense, MaskedLm


class PredictionHead(nn.Module):
    """Dense layer, activation, norm."""

    def __init__(self, hidden_size: int, settings: Dense) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size, bias=settings.dense_bias)
        self.activation = activation(settings.activation)
        self.norm = nn.LayerNorm(hidden_size, settings.norm_eps, bias=settings.norm_bias)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """``[N, H]`` to ``[N, H]``."""
        return cast("torch.Tensor", self.norm(self.activation(self.dense(hidden_states))))


class MaskedLmPart(nn.Module):
    """Logits over the vocabulary at the targets' positions alone."""

    def __init__(self, hidden_size: int, vocab_size: int, settings: MaskedLm) -> None:
        super().__init__()
        self.tie_word_embeddings = settings.tie_word_embeddings
        self.residual_std = settings.residual_std
        self.cutoff = settings.cutoff
        self.head = PredictionHead(hidden_size, settings)
        self.decoder = Decoder()
        self.decoder.bias = nn.Parameter(torch.zeros(vocab_size)) if settings.decoder_bias else None
        if not self.tie_word_embeddings:
            self.decoder.weight = nn.Parameter(torch.zeros(vocab_size, hidden_size))

    def tie(self, table: nn.Parameter) -> None:
        """Take the token table ``[V, H]`` as the decoder's weights, unless the settings say otherwise."""
        if self.tie_word_embeddings:
            self.decoder.weight = table

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        return cast("torch.Tensor", self.head(hidden_states.index_select(0, batch.target_positions)))

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[N, V]``."""
        return cast("torch.Tensor", self.decoder(features))

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter."""
        initialize_truncated(name, tensor, generator, std=self.residual_std, cutoff=self.cutoff)


class ClassifierPart(nn.Module):
    """Logits for texts, tokens or the ends of answers."""

    def __init__(self, hidden_size: int, outputs: int, settings: Classifier) -> None:
        super().__init__()
        self.mean = settings.mean
        self.residual_std = settings.residual_std
        self.cutoff = settings.cutoff
        self.head = PredictionHead(hidden_size, settings)
        self.dropout = nn.Dropout(settings.dropout)
        self.classifier = nn.Linear(hidden_size, outputs)

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        if self.mean:
            # A sum of hundreds of half-precision states would lose most of their digits.
            states = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
            means = sequence_means(states, batch).to(hidden_states.dtype)
            pooled = means.index_select(0, batch.sequence_ids[batch.target_positions])
        else:
            pooled = hidden_states.index_select(0, batch.target_positions)
        return cast("torch.Tensor", self.dropout(self.head(pooled)))

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[N, K]``."""
        return cast("torch.Tensor", self.classifier(features))

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter; the classifier, which adds to nothing, starts with the spread H ** -0.5."""
        std = self.classifier.in_features**-0.5 if name == "classifier.weight" else self.residual_std
        initialize_truncated(name, tensor, generator, std=std, cutoff=self.cutoff)
