"""One embedding for each text, pooled from its tokens (Reimers & Gurevych 2019, arXiv:1908.10084)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

from rtx_core import Head, InputError, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

Mode = Literal["mean", "cls", "max"]
"""How the hidden states of a sequence become one."""


@attrs.frozen(kw_only=True)
class Pooling(Head):
    """The hidden states of each text's tokens, special ones included, pooled into one embedding; nothing is learnt."""

    mode: Mode = "mean"
    """``mean`` over the tokens; ``cls``, the first token's; ``max``, the largest of each number over the tokens."""
    normalize: bool = True
    """Whether embeddings have length 1, so that their products are cosines."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:  # noqa: ARG002 - an embedding has H numbers
        """The module, H to H.

        :raises InputError: the task wants logits, which this head has not.
        """
        if outputs:
            raise InputError(
                f"head.type: pooling gives embeddings, but this task wants {outputs} logits; leave [head] out or take "
                'a head that has them, as "linear"'
            )
        from rtx_plugins.heads.pooling_part import PoolingPart

        return PoolingPart(self.mode, normalize=self.normalize)

    def sentence_transformers_modules(self, hidden_size: int) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Its ``Pooling``, in words that every version of it knows, and ``Normalize``."""
        pooling: dict[str, Any] = {
            "word_embedding_dimension": hidden_size,
            "pooling_mode_cls_token": self.mode == "cls",
            "pooling_mode_mean_tokens": self.mode == "mean",
            "pooling_mode_max_tokens": self.mode == "max",
            "pooling_mode_mean_sqrt_len_tokens": False,
        }
        return [("Pooling", pooling), *([("Normalize", {})] if self.normalize else [])]


@hookimpl
def head() -> dict[str, type[Head]]:
    """Offer it as ``pooling``."""
    return {"pooling": Pooling}
