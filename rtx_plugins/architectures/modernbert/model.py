"""ModernBERT's encoder (Warner et al. 2024, arXiv:2412.13663) over packed sequences.

Shapes: T tokens of all sequences end to end, H hidden size, h heads of D = H / h channels each, F feed-forward width.
Modules are named as in ``transformers``, so that names in files differ from ours by a prefix only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from rtx_plugins.architectures.common.activations import activation
from rtx_plugins.architectures.common.attention import packed_attention
from rtx_plugins.architectures.common.initialization import initialize_truncated
from rtx_plugins.architectures.common.rotary import rotate, rotation

if TYPE_CHECKING:
    from rtx_core import Batch
    from rtx_plugins.architectures.common.rotary import Rotation
    from rtx_plugins.architectures.modernbert import ModernBert


class ModernBertBackbone(nn.Module):
    """Embeddings, layers that norm their input instead of their output, and a norm at the end."""

    def __init__(self, settings: ModernBert, vocab_size: int) -> None:
        super().__init__()
        self.head_size = settings.hidden_size // settings.num_attention_heads
        self.initializer_range = settings.initializer_range
        self.residual_std = settings.residual_std
        self.cutoff = settings.initializer_cutoff_factor
        self.embeddings = Embeddings(settings, vocab_size)
        self.layers = nn.ModuleList(Layer(settings, layer) for layer in range(settings.num_hidden_layers))
        self.final_norm = _norm(settings)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Hidden states ``[T, H]``."""
        hidden_states = self.embeddings(batch)
        thetas = {cast("Layer", layer).theta for layer in self.layers}
        rotations = {theta: rotation(batch.positions, self.head_size, theta) for theta in thetas}
        for layer in self.layers:
            hidden_states = layer(hidden_states, batch, rotations[cast("Layer", layer).theta])
        return cast("torch.Tensor", self.final_norm(hidden_states))

    @property
    def input_embeddings(self) -> nn.Parameter:
        """The token table ``[V, H]``."""
        return cast("nn.Parameter", self.embeddings.tok_embeddings.weight)

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter; the padding token's row as any other, as in ``transformers``."""
        std = self.residual_std if name.endswith(".Wo.weight") else self.initializer_range
        initialize_truncated(name, tensor, generator, std=std, cutoff=self.cutoff)


class Embeddings(nn.Module):
    """Token embeddings, normed."""

    def __init__(self, settings: ModernBert, vocab_size: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab_size, settings.hidden_size, padding_idx=settings.pad_token_id)
        self.norm = _norm(settings)
        self.dropout = nn.Dropout(settings.embedding_dropout)

    def forward(self, batch: Batch) -> torch.Tensor:
        """``[T, H]``."""
        return cast("torch.Tensor", self.dropout(self.norm(self.tok_embeddings(batch.input_ids))))


class Layer(nn.Module):
    """Attention and a feed-forward network, each of its normed input, and added to it."""

    def __init__(self, settings: ModernBert, layer: int) -> None:
        super().__init__()
        is_global = settings.is_global(layer)
        self.theta = settings.global_rope_theta if is_global else settings.local_rope_theta
        # The first layer's input is normed already.
        self.attn_norm = nn.Identity() if layer == 0 else _norm(settings)
        self.attn = Attention(settings, window=None if is_global else settings.local_attention // 2)
        self.mlp_norm = _norm(settings)
        self.mlp = GatedFeedForward(settings)

    def forward(self, hidden_states: torch.Tensor, batch: Batch, by: Rotation) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        hidden_states = hidden_states + self.attn(self.attn_norm(hidden_states), batch, by)
        return hidden_states + cast("torch.Tensor", self.mlp(self.mlp_norm(hidden_states)))


class Attention(nn.Module):
    """Self-attention with rotary positions, over the whole sequence or a window on both sides."""

    def __init__(self, settings: ModernBert, *, window: int | None) -> None:
        super().__init__()
        hidden_size = settings.hidden_size
        self.num_attention_heads = settings.num_attention_heads
        self.window = window
        self.dropout_p = settings.attention_dropout
        self.Wqkv = nn.Linear(hidden_size, 3 * hidden_size, bias=settings.attention_bias)
        self.Wo = nn.Linear(hidden_size, hidden_size, bias=settings.attention_bias)
        self.dropout = nn.Dropout(settings.attention_dropout)

    def forward(self, hidden_states: torch.Tensor, batch: Batch, by: Rotation) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        query, key, value = (
            projected.unflatten(-1, (self.num_attention_heads, -1))  # [T, h, D]
            for projected in self.Wqkv(hidden_states).chunk(3, dim=-1)
        )
        dropout_p = self.dropout_p if self.training else 0.0
        attended = packed_attention(
            rotate(query, by), rotate(key, by), value, batch, window=self.window, dropout_p=dropout_p
        )
        return cast("torch.Tensor", self.dropout(self.Wo(attended.flatten(-2))))


class GatedFeedForward(nn.Module):
    """act(x V) · x W, projected to H (GeGLU: Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, settings: ModernBert) -> None:
        super().__init__()
        self.Wi = nn.Linear(settings.hidden_size, 2 * settings.intermediate_size, bias=settings.mlp_bias)
        self.activation = activation(settings.hidden_activation)
        self.dropout = nn.Dropout(settings.mlp_dropout)
        self.Wo = nn.Linear(settings.intermediate_size, settings.hidden_size, bias=settings.mlp_bias)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """``[T, H]`` to ``[T, H]``."""
        wide, gate = self.Wi(hidden_states).chunk(2, dim=-1)  # each [T, F]
        return cast("torch.Tensor", self.Wo(self.dropout(self.activation(wide) * gate)))


def _norm(settings: ModernBert) -> nn.LayerNorm:
    return nn.LayerNorm(settings.hidden_size, settings.norm_eps, bias=settings.norm_bias)
