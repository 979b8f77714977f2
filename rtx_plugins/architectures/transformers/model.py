"""An encoder of ``transformers`` over packed batches: padded before it, packed again behind it.

Shapes: B sequences, L the longest one's length, T tokens of all sequences end to end, H hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from rtx_core import InputError
from rtx_plugins.architectures.common.hugging_face import table_rows
from rtx_plugins.architectures.transformers import usable_positions
from rtx_plugins.architectures.transformers.family import (
    base_prefix,
    built,
    class_for,
    family_config,
    parameters_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rtx_core import Batch
    from rtx_plugins.architectures.transformers import Transformers

_UNFIT = {
    "canine": "reads characters, and has no token table",
    **dict.fromkeys(("layoutlm", "layoutlmv3", "lilt", "markuplm", "tapas"), "reads more than the tokens of a text"),
    **dict.fromkeys(("nystromformer", "reformer"), "takes texts of one length alone"),
}
"""Families of encoders whose input is another than tokens, padded to the longest text."""
_ANY_VOCABULARY = 2**20
"""Rows of a token table of which only the name is asked for, more than any padding token's number."""


class PaddedBackbone(nn.Module):
    """The encoder without its pooler, which belongs to a head."""

    def __init__(self, settings: Transformers, vocab_size: int) -> None:
        super().__init__()
        config = family_config(settings, table_rows(settings, vocab_size))
        cls = class_for(config, None)
        reason = _UNFIT.get(settings.model_type)
        if "attention_mask" not in parameters_of(cls.forward):
            reason = "takes padding for text: it has no mask"
        if reason is not None:
            raise InputError(f'architecture.model_type: "{settings.model_type}" {reason}')
        self.model = built(cls, config)
        if isinstance(getattr(self.model, "pooler", None), nn.Module):  # this class can't be asked to leave it out
            self.model.pooler = nn.Identity()
        self.family = settings.model_type
        self.pad_id = settings.pad_token_id or 0
        self.usable_positions = usable_positions(settings.model_type, config.to_dict())
        # A table of one row is what is taken where no types are given.
        self.takes_token_types = (
            "token_type_ids" in parameters_of(cls.forward) and getattr(config, "type_vocab_size", 2) > 1
        )

    def forward(self, batch: Batch) -> torch.Tensor:
        """Hidden states ``[T, H]``.

        :raises InputError: a sequence is longer than the family's positions, which the pipeline didn't write.
        """
        longest = batch.max_seqlen
        if self.usable_positions is not None and longest > self.usable_positions:
            raise InputError(
                f"a text has {longest} tokens, but {self.family} only {self.usable_positions} positions; write "
                f"task.max_length = {self.usable_positions}"
            )
        ids, mask = batch.padded(self.pad_id)
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        places = batch.sequence_ids * longest + batch.positions
        if self.takes_token_types:
            types = torch.zeros_like(ids).flatten().index_copy_(0, places, batch.token_types)
            inputs["token_type_ids"] = types.view_as(ids)
        try:
            hidden_states = self.model(**inputs).last_hidden_state  # [B, L, H]
        except ValueError as error:  # the library's word for a setting that doesn't fit the batch
            raise InputError(f"architecture.config: {self.family} refuses a batch: {error}") from error
        return cast("torch.Tensor", hidden_states.flatten(0, 1).index_select(0, places))

    @property
    def input_embeddings(self) -> nn.Parameter:
        """The token table ``[V, E]``; in some families it is narrower than H."""
        return cast("nn.Parameter", self.model.get_input_embeddings().weight)


def layer_names(settings: Transformers) -> Sequence[str]:
    """Prefixes of public names from input to output.

    The layers are the largest list of modules; what is shared by all of them, as a table of relative positions, is
    counted among the embeddings.
    """
    with torch.device("meta"):
        model = PaddedBackbone(settings, settings.vocab_size or _ANY_VOCABULARY).model
    prefix = base_prefix(settings)
    path, layers = max(
        ((name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)),
        key=lambda found: sum(parameter.numel() for parameter in found[1].parameters()),
        default=("", nn.ModuleList()),
    )
    tables = {f"{name}." for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    before: list[str] = []
    after: list[str] = []
    reached = False
    for place in _beside(model, path):
        if place is None:
            reached = True
        elif reached and not any(table.startswith(place) for table in tables):
            after.append(place)
        else:
            before.append(place)
    inside = [f"{path}.{number}." for number in range(len(layers))]
    return [f"{prefix}{name}" for name in (*before, *inside, *after)]


def _beside(model: nn.Module, path: str) -> Iterator[str | None]:
    """Prefixes of the parameters that are not below ``path``, as short as they can be; None where ``path`` stands."""
    steps = path.split(".")
    seen: set[str | None] = set()
    for name, _ in model.named_parameters():
        own = name.split(".")
        shared = next((i for i, pair in enumerate(zip(own, steps, strict=False)) if pair[0] != pair[1]), len(steps))
        head = own[: shared + 1]
        place = None if shared == len(steps) else ".".join(head) + ("." if len(head) < len(own) else "")
        if place not in seen:
            seen.add(place)
            yield place
