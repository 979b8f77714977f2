"""DistilBERT's encoder (Sanh et al. 2019, arXiv:1910.01108) over packed sequences.

Shapes: T tokens of all sequences end to end, H hidden size, h heads of D = H / h channels each, F feed-forward width.
Modules are named as in ``transformers``, so that names in files differ from ours by a prefix only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from rtx_plugins.architectures.common.activations import activation
from rtx_plugins.architectures.common.attention import packed_attention
from rtx_plugins.architectures.common.initialization import initialize_normal
from rtx_plugins.architectures.distilbert import LAYER_NORM_EPS

if TYPE_CHECKING:
    from rtx_core import Batch
    from rtx_plugins.architectures.distilbert import DistilBert


class DistilBertBackbone(nn.Module):
    """Embeddings and layers."""

    def __init__(self, settings: DistilBert, vocab_size: int) -> None:
        super().__init__()
        self.pad_token_id = settings.pad_token_id
        self.initializer_range = settings.initializer_range
        self.embeddings = Embeddings(settings, vocab_size)
        self.transformer = Transformer(settings)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Hidden states ``[T, H]``."""
        return cast("torch.Tensor", self.transformer(self.embeddings(batch), batch))

    @property
    def input_embeddings(self) -> nn.Parameter:
        """The token table ``[V, H]``."""
        return cast("nn.Parameter", self.embeddings.word_embeddings.weight)

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter; the padding token's row is 0, as in ``transformers``."""
        initialize_normal(name, tensor, generator, std=self.initializer_range)
        if name == "embeddings.word_embeddings.weight" and self.pad_token_id is not None:
            tensor[self.pad_token_id] = 0.0


class Embeddings(nn.Module):
    """The sum of token and position embeddings, normed."""

    def __init__(self, settings: DistilBert, vocab_size: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, settings.dim, padding_idx=settings.pad_token_id)
        self.position_embeddings = nn.Embedding(settings.max_position_embeddings, settings.dim)
        self.LayerNorm = nn.LayerNorm(settings.dim, LAYER_NORM_EPS)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, batch: Batch) -> torch.Tensor:
        """``[T, H]``."""
        embeddings = self.word_embeddings(batch.input_ids) + self.position_embeddings(batch.positions)
        return cast("torch.Tensor", self.dropout(self.LayerNorm(embeddings)))


class Transformer(nn.Module):
    """The layers, one after the other."""

    def __init__(self, settings: DistilBert) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer(settings) for _ in range(settings.n_layers))

    def forward(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        for layer in self.layer:
            hidden_states = layer(hidden_states, batch)
        return hidden_states


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to its input and normed."""

    def __init__(self, settings: DistilBert) -> None:
        super().__init__()
        self.attention = SelfAttention(settings)
        self.sa_layer_norm = nn.LayerNorm(settings.dim, LAYER_NORM_EPS)
        self.ffn = FeedForward(settings)
        self.output_layer_norm = nn.LayerNorm(settings.dim, LAYER_NORM_EPS)

    def forward(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        hidden_states = self.sa_layer_norm(self.attention(hidden_states, batch) + hidden_states)
        return cast("torch.Tensor", self.output_layer_norm(self.ffn(hidden_states) + hidden_states))


class SelfAttention(nn.Module):
    """What each token gathers from the tokens of its sequence. Unlike BERT's its output isn't dropped."""

    def __init__(self, settings: DistilBert) -> None:
        super().__init__()
        self.n_heads = settings.n_heads
        self.dropout_p = settings.attention_dropout
        self.q_lin = nn.Linear(settings.dim, settings.dim)
        self.k_lin = nn.Linear(settings.dim, settings.dim)
        self.v_lin = nn.Linear(settings.dim, settings.dim)
        self.out_lin = nn.Linear(settings.dim, settings.dim)

    def forward(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        query, key, value = (
            projection(hidden_states).unflatten(-1, (self.n_heads, -1))  # [T, h, D]
            for projection in (self.q_lin, self.k_lin, self.v_lin)
        )
        dropout_p = self.dropout_p if self.training else 0.0
        gathered = packed_attention(query, key, value, batch, dropout_p=dropout_p)
        return cast("torch.Tensor", self.out_lin(gathered.flatten(-2)))


class FeedForward(nn.Module):
    """To F and back, with dropout at the end."""

    def __init__(self, settings: DistilBert) -> None:
        super().__init__()
        self.lin1 = nn.Linear(settings.dim, settings.hidden_dim)
        self.lin2 = nn.Linear(settings.hidden_dim, settings.dim)
        self.activation = activation(settings.activation)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        return cast("torch.Tensor", self.dropout(self.lin2(self.activation(self.lin1(hidden_states)))))
