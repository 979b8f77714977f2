"""What the tasks that learn from text alone share: a column of text, cut into sequences, whose tokens are predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

import attrs

from rtx_core import InputError, Outputs, Record, Task
from rtx_core.encoding import ahead
from rtx_plugins.tasks.common import chunks, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import tokenizers
    import torch
    from tokenizers import Encoding

    from rtx_core.components import TargetKind


@attrs.frozen(kw_only=True)
class LanguageTask(Task):
    """Texts without labels, whose own tokens are the targets."""

    default_loss: ClassVar[str] = "cross_entropy"
    default_head: ClassVar[str] = "linear"
    target_kind: ClassVar[TargetKind | None] = "class"
    packable: ClassVar[bool] = True

    text: str = "text"
    """The column of the text."""

    def columns(self, *, targets: bool) -> tuple[str, ...]:  # noqa: ARG002 - the text is its own target
        """The columns that a record must have."""
        return (self.text,)

    def texts(self, record: Record) -> Iterator[str]:
        """The text of a record."""
        yield text_of(record, self.text)

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:  # noqa: ARG002 - the vocabulary is known
        """One output for each entry of the vocabulary."""
        return Outputs(size=vocab_size)


@attrs.frozen(eq=False)
class LanguagePart:
    """A task over text alone with a tokenizer that cuts long texts."""

    column: str
    tokenizer: tokenizers.Tokenizer

    def pieces(self, records: Iterable[Record]) -> Iterator[list[Encoding]]:
        """The consecutive sequences of each record's text, in order, each with the special tokens around it.

        :raises DataError: there is no text, with its file and line.
        """
        texts = chunks((text_of(record, self.column) for record in records), len)
        # The library lets Python go on while it encodes: the next texts, while samples are made of these.
        for encodings in ahead(map(self.tokenizer.encode_batch_fast, texts), 1):
            for encoding in encodings:
                yield [encoding, *encoding.overflowing]

    def notes(self) -> Sequence[str]:
        """Nothing is lost."""
        return ()

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits ``[N, K]``."""
        return logits

    def answers(self, records: Sequence[Record], logits: Sequence[torch.Tensor], *, scores: bool) -> NoReturn:  # noqa: ARG002
        """Refuse: the model learns language, not an answer.

        :raises InputError: always.
        """
        raise InputError(
            "predict: a model that learned language alone (masked_lm, causal_lm) has no answers to give; train a task "
            'with labels on top of it ([architecture] from_pretrained = "run:NAME")'
        )
