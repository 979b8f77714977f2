"""BERT's encoder (Devlin et al. 2019, arXiv:1810.04805) over packed sequences.

Shapes: T tokens of all sequences end to end, H hidden size, h heads of D = H / h channels each.
Modules are named as in ``transformers``, so that names in files differ from ours by a prefix only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

import torch
from torch import nn
from torch.nn import functional

from rtx_plugins.architectures.common.activations import activation
from rtx_plugins.architectures.common.attention import packed_attention
from rtx_plugins.architectures.common.initialization import initialize_normal

if TYPE_CHECKING:
    from rtx_core import Batch
    from rtx_plugins.architectures.bert import Bert


class Embeddings(nn.Module):
    """The sum of token, position and type embeddings, normed."""

    def __init__(self, settings: Bert, vocab_size: int) -> None:
        super().__init__()
        hidden_size = settings.hidden_size
        self.word_embeddings = nn.Embedding(vocab_size, hidden_size, padding_idx=settings.pad_token_id)
        self.position_embeddings = nn.Embedding(settings.max_position_embeddings, hidden_size)
        self.token_type_embeddings = nn.Embedding(settings.type_vocab_size, hidden_size)
        self.LayerNorm = nn.LayerNorm(hidden_size, settings.layer_norm_eps)
        self.dropout = nn.Dropout(settings.hidden_dropout_prob)

    def forward(self, batch: Batch) -> torch.Tensor:
        """``[T, H]``."""
        # In the order in which transformers adds them: floating-point sums depend on it.
        embeddings = self.word_embeddings(batch.input_ids) + self.token_type_embeddings(batch.token_types)
        embeddings = embeddings + self.position_embeddings(self.positions(batch))
        return cast("torch.Tensor", self.dropout(self.LayerNorm(embeddings)))

    def positions(self, batch: Batch) -> torch.Tensor:
        """Rows of the position table, int64 ``[T]``."""
        return batch.positions


class BertBackbone(nn.Module):
    """Embeddings and layers. Hidden states are not pooled: the pooler is a part of the heads that use it."""

    embeddings_type: ClassVar[type[Embeddings]] = Embeddings
    """Its embeddings; families with the same layers have others."""

    def __init__(self, settings: Bert, vocab_size: int) -> None:
        super().__init__()
        self.pad_token_id = settings.pad_token_id
        self.initializer_range = settings.initializer_range
        self.embeddings = self.embeddings_type(settings, vocab_size)
        self.encoder = Encoder(settings)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Hidden states ``[T, H]``."""
        return cast("torch.Tensor", self.encoder(self.embeddings(batch), batch))

    @property
    def input_embeddings(self) -> nn.Parameter:
        """The token table ``[V, H]``."""
        return cast("nn.Parameter", self.embeddings.word_embeddings.weight)

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter; the padding token's row is 0, as in ``transformers``."""
        initialize_normal(name, tensor, generator, std=self.initializer_range)
        if name == "embeddings.word_embeddings.weight" and self.pad_token_id is not None:
            tensor[self.pad_token_id] = 0.0


class Encoder(nn.Module):
    """The layers, one after the other."""

    def __init__(self, settings: Bert) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer(settings) for _ in range(settings.num_hidden_layers))

    def forward(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        for layer in self.layer:
            hidden_states = layer(hidden_states, batch)
        return hidden_states


class Layer(nn.Module):
    """Attention and a feed-forward network, each added to its input and normed."""

    def __init__(self, settings: Bert) -> None:
        super().__init__()
        self.attention = Attention(settings)
        self.intermediate = Intermediate(settings)
        self.output = AddAndNorm(settings, settings.intermediate_size)

    def forward(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        hidden_states = self.attention(hidden_states, batch)
        return cast("torch.Tensor", self.output(self.intermediate(hidden_states), hidden_states))


class Attention(nn.Module):
    """Self-attention, added to its input and normed."""

    def __init__(self, settings: Bert) -> None:
        super().__init__()
        self.self = SelfAttention(settings)
        self.output = AddAndNorm(settings, settings.hidden_size)

    def forward(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        return cast("torch.Tensor", self.output(self.self(hidden_states, batch), hidden_states))


class SelfAttention(nn.Module):
    """What each token gathers from the tokens of its sequence, all or those up to itself."""

    def __init__(self, settings: Bert) -> None:
        super().__init__()
        hidden_size = settings.hidden_size
        self.num_attention_heads = settings.num_attention_heads
        self.causal = settings.causal
        self.dropout_p = settings.attention_probs_dropout_prob
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        query, key, value = (
            projection(hidden_states).unflatten(-1, (self.num_attention_heads, -1))  # [T, h, D]
            for projection in (self.query, self.key, self.value)
        )
        dropout_p = self.dropout_p if self.training else 0.0
        return packed_attention(query, key, value, batch, causal=self.causal, dropout_p=dropout_p).flatten(-2)


class Intermediate(nn.Module):
    """The wide part of the feed-forward network."""

    def __init__(self, settings: Bert) -> None:
        super().__init__()
        self.dense = nn.Linear(settings.hidden_size, settings.intermediate_size)
        self.activation = activation(settings.hidden_act)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """``[T, H]`` to ``[T, F]``."""
        return self.activation(self.dense(hidden_states))


class AddAndNorm(nn.Module):
    """A projection to H, with dropout, added to the residual stream and normed."""

    def __init__(self, settings: Bert, in_features: int) -> None:
        super().__init__()
        self.dense = nn.Linear(in_features, settings.hidden_size)
        self.LayerNorm = nn.LayerNorm(settings.hidden_size, settings.layer_norm_eps)
        self.dropout_p = settings.hidden_dropout_prob

    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """``[T, in_features]`` and ``[T, H]`` to ``[T, H]``."""
        projected = functional.dropout(self.dense(hidden_states), self.dropout_p, self.training)
        return cast("torch.Tensor", self.LayerNorm(projected + residual))
