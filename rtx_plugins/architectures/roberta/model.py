"""RoBERTa's encoder (Liu et al. 2019, arXiv:1907.11692): BERT's over positions that start behind the padding token's.

Shapes: T tokens of all sequences end to end, H hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtx_plugins.architectures.bert.model import BertBackbone, Embeddings

if TYPE_CHECKING:
    import torch

    from rtx_core import Batch
    from rtx_plugins.architectures.roberta import Roberta


class ShiftedEmbeddings(Embeddings):
    """BERT's embeddings, where the first position of a sequence is pad_token_id + 1."""

    def __init__(self, settings: Roberta, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.first_position = settings.pad_token_id + 1

    def positions(self, batch: Batch) -> torch.Tensor:
        """Rows of the position table, int64 ``[T]``."""
        return batch.positions + self.first_position


class RobertaBackbone(BertBackbone):
    """Embeddings and layers."""

    embeddings_type = ShiftedEmbeddings

    def initialize(self, name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
        """Fill one parameter; the padding's row of each of the two tables is 0, as in ``transformers``."""
        super().initialize(name, tensor, generator)
        if name == "embeddings.position_embeddings.weight" and self.pad_token_id is not None:
            tensor[self.pad_token_id] = 0.0
