"""The heads that ``transformers`` has for a family, whichever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Architecture, Head
from rtx_plugins.architectures.common.hugging_face import PROBLEM_TYPES

if TYPE_CHECKING:
    import torch

TASKS = ("masked_lm", "token_classification", "question_answering", *PROBLEM_TYPES)
"""The tasks for which most families have a class."""


@attrs.frozen(kw_only=True)
class OriginalHead(Head):
    """What the family's class for a task puts on its encoder, tied to the token table as there."""

    architecture: Architecture
    """The encoder's settings."""
    task: str
    """One of :data:`TASKS`."""

    def build(self, hidden_size: int, outputs: int) -> torch.nn.Module:  # noqa: ARG002 - the settings know H
        """The module, H to K.

        :raises InputError: ``transformers`` has no such class for the family, or one that reads more than it is given.
        """
        from rtx_plugins.architectures.transformers.heads_part import OriginalHeadPart

        return OriginalHeadPart(self, outputs)
