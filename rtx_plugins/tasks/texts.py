"""What the tasks over whole texts share: a text or a pair of texts, with one row of targets at its first token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import attrs

from rtx_core import Record, Sample, Task
from rtx_plugins.tasks.common import chunks, sample_of, text_of, truncating

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import tokenizers
    import torch


@attrs.frozen(kw_only=True)
class TextTask(Task):
    """A text, or a pair of texts, and what is learnt of it.

    A text that is longer than ``max_length`` is cut at its end, a pair at the end of whichever text is longer.
    """

    default_head: ClassVar[str] = "linear"
    target_field: ClassVar[str]
    """The field that names the columns of the targets."""

    text: str | tuple[str, str] = "text"
    """The column of the text, or the two columns of a pair: ``["premise", "hypothesis"]``."""

    @property
    def text_columns(self) -> tuple[str, ...]:
        """One column, or two."""
        return (self.text,) if isinstance(self.text, str) else self.text

    @property
    def target_columns(self) -> tuple[str, ...]:
        """The columns of the targets."""
        columns = getattr(self, self.target_field)
        return (columns,) if isinstance(columns, str) else tuple(columns)

    def check(self) -> Iterable[tuple[str, str]]:
        """A target is another column than the text, or it would be learnt from itself."""
        for column in self.target_columns:
            if column in self.text_columns:
                yield self.target_field, f'"{column}" is the column of the text too'

    def columns(self, *, targets: bool) -> tuple[str, ...]:
        """The columns that a record must have."""
        return (*self.text_columns, *self.target_columns) if targets else self.text_columns

    def texts(self, record: Record) -> Iterator[str]:
        """The texts of a record."""
        return (text_of(record, column) for column in self.text_columns)

    def truncating(self, tokenizer: tokenizers.Tokenizer, max_length: int) -> tokenizers.Tokenizer:
        """A copy of the tokenizer that cuts this task's inputs.

        :raises InputError: the special tokens leave no room for text.
        """
        return truncating(tokenizer, max_length, pair=len(self.text_columns) > 1)


TaskT = TypeVar("TaskT", bound=TextTask)


@attrs.define(eq=False)
class TextPart(Generic[TaskT]):
    """A task over texts with a tokenizer that truncates. K outputs."""

    task: TaskT
    tokenizer: tokenizers.Tokenizer
    texts_cut: int = attrs.field(default=0, init=False)
    """Texts that ``max_length`` cut since the last notes."""

    def target(self, record: Record) -> Sequence[int] | np.ndarray:
        """The one row of a record's targets: a class ``[1]``, or float32 ``[1, K]``.

        :raises DataError: it is missing, or of the wrong type.
        """
        raise NotImplementedError

    @property
    def ignored(self) -> Sequence[int] | np.ndarray:
        """The row in place of a target that is not asked for."""
        raise NotImplementedError

    def answer(self, row: torch.Tensor, *, scores: bool) -> dict[str, Any]:
        """The columns that ``predict`` adds, from logits ``[K]``."""
        raise NotImplementedError

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:
        """Encode records, one sample each, in order; its target stands at the first token.

        :param targets: False for records whose targets are missing or don't matter.
        :raises DataError: a value is missing, of the wrong type, or an unknown label.
        """
        encoded = (
            (tuple(self.task.texts(record)), self.target(record) if targets else self.ignored) for record in records
        )
        for chunk in chunks(encoded, lambda item: sum(map(len, item[0]))):
            inputs = [texts if len(texts) > 1 else texts[0] for texts, _ in chunk]
            encodings = self.tokenizer.encode_batch_fast(inputs)
            for encoding, (_, target) in zip(encodings, chunk, strict=True):
                self.texts_cut += bool(encoding.overflowing)
                yield sample_of(encoding, [0], target)

    def notes(self) -> Sequence[str]:
        """How many texts are not seen whole."""
        cut, self.texts_cut = self.texts_cut, 0
        return [f"{cut:,} texts were cut at max_length"] if cut else []

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits ``[N, K]``."""
        return logits

    def answers(
        self,
        records: Sequence[Record],  # noqa: ARG002 - the logits say it all
        logits: Sequence[torch.Tensor],
        *,
        scores: bool,
    ) -> list[dict[str, Any]]:
        """What is added to each record, from its logits ``[1, K]``."""
        return [self.answer(rows[0], scores=scores) for rows in logits]
