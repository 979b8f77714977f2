"""What the tasks over whole texts share: a text or a pair of texts, with one row of targets at its first token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import attrs
import numpy as np

from rtx_core import Layout, Record, Sample, Task
from rtx_core.header import counted
from rtx_plugins.tasks.common import chunks, sample_of, text_of, truncating
from rtx_plugins.tasks.long_texts import LongText, Reader, long_text_limits, long_text_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import tokenizers
    import torch

    from rtx_core import Architecture, Head

    Target = Sequence[int] | np.ndarray


@attrs.frozen(kw_only=True)
class TextTask(Task):
    """A text, or a pair of texts, and what is learnt of it.

    A text that is longer than ``max_length`` is cut at its end unless ``long_text`` says otherwise, a pair at the end
    of whichever text is longer.
    """

    default_head: ClassVar[str] = "linear"
    target_field: ClassVar[str]
    """The field that names the columns of the targets."""

    text: str | tuple[str, str] = "text"
    """The column of the text, or the two columns of a pair: ``["premise", "hypothesis"]``."""
    long_text: LongText = "truncate"
    """What is read of a text that is longer than ``max_length``. ``truncate``: its beginning; ``head_tail``: a quarter
    of the tokens from its beginning, the others from its end; ``windows``: all of it, piece by piece. Each window is
    learnt with the text's target and counts as one; the text's prediction is from the mean of their logits."""
    stride: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(0)))
    """Tokens that neighbouring windows share; None is a quarter of those of the text in a window."""

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
        """A target is another column than the text, or it would be learnt from itself; only windows have a stride."""
        yield from long_text_rules(self.long_text, self.stride, self.max_length, pair=len(self.text_columns) > 1)
        for column in self.target_columns:
            if column in self.text_columns:
                yield self.target_field, f'"{column}" is the column of the text too'

    def layout(self, architecture: Architecture, head: Head, max_length: int) -> Layout:  # noqa: ARG002 - by the task alone
        """What is asked is a pair where the task reads pairs; a long text may be read otherwise than by others."""
        pair = len(self.text_columns) > 1
        return Layout(
            example=("a text", "another text") if pair else ("a text",), limits=long_text_limits(self.long_text)
        )

    def columns(self, *, targets: bool) -> tuple[str, ...]:
        """The columns that a record must have."""
        return (*self.text_columns, *self.target_columns) if targets else self.text_columns

    def texts(self, record: Record) -> Iterator[str]:
        """The texts of a record."""
        return (text_of(record, column) for column in self.text_columns)


_FIRST = np.zeros(1, dtype=np.int64)
"""Where a sequence's one target stands."""


@attrs.frozen(eq=False)
class _Single:
    """Encodes single texts."""

    reader: Reader

    def samples(self, texts: Sequence[tuple[str]], targets: Sequence[Target]) -> Iterator[tuple[Sample, bool]]:
        """A sample of each text, its target at the first token of each sequence, and whether all of it is there."""
        for tokens, target in zip(self.reader.read([text for (text,) in texts]), targets, strict=True):
            sequences = self.reader.sequences(len(tokens))
            sample = tokens.sample(sequences, [_FIRST] * len(sequences), np.repeat(target, len(sequences), axis=0))
            yield sample, len(tokens) <= self.reader.room or self.reader.long_text == "windows"


@attrs.frozen(eq=False)
class _Pair:
    """Encodes pairs of texts."""

    tokenizer: tokenizers.Tokenizer
    """It truncates."""

    def samples(self, texts: Sequence[tuple[str, str]], targets: Sequence[Target]) -> Iterator[tuple[Sample, bool]]:
        """A sample of each pair, its target at the first token, and whether all of it is there."""
        for encoding, target in zip(self.tokenizer.encode_batch_fast(texts), targets, strict=True):
            yield sample_of(encoding, [0], target), not encoding.overflowing


TaskT = TypeVar("TaskT", bound=TextTask)


@attrs.define(eq=False)
class TextPart(Generic[TaskT]):
    """A task over texts with a tokenizer. K outputs."""

    task: TaskT
    tokenizer: tokenizers.Tokenizer
    max_length: int
    texts_cut: int = attrs.field(default=0, init=False)
    """Texts that are not seen whole since the last notes."""
    _reader: _Single | _Pair = attrs.field(init=False)

    @_reader.default
    def _(self) -> _Single | _Pair:
        task = self.task
        if len(task.text_columns) > 1:
            return _Pair(truncating(self.tokenizer, self.max_length, pair=True))
        return _Single(Reader.of(self.tokenizer, self.max_length, task.long_text, task.stride))

    def target(self, record: Record) -> Target:
        """The one row of a record's targets: a class ``[1]``, or float32 ``[1, K]``.

        :raises DataError: it is missing, or of the wrong type.
        """
        raise NotImplementedError

    @property
    def ignored(self) -> Target:
        """The row in place of a target that is not asked for."""
        raise NotImplementedError

    def answer(self, row: torch.Tensor, *, scores: bool) -> dict[str, Any]:
        """The columns that ``predict`` adds, from logits ``[K]``."""
        raise NotImplementedError

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:
        """Encode records, one sample each, in order; its target stands at the first token of each window.

        :param targets: False for records whose targets are missing or don't matter.
        :raises DataError: a value is missing, of the wrong type, or an unknown label.
        """
        rows = (
            (tuple(self.task.texts(record)), self.target(record) if targets else self.ignored) for record in records
        )
        for chunk in chunks(rows, lambda item: sum(map(len, item[0]))):
            for sample, whole in self._reader.samples(*zip(*chunk, strict=True)):
                self.texts_cut += not whole
                yield sample

    def notes(self) -> Sequence[str]:
        """How many texts are not seen whole."""
        cut, self.texts_cut = self.texts_cut, 0
        how = "shortened to head and tail" if self.task.long_text == "head_tail" else "cut at max_length"
        return [f"{counted(cut, 'text')} {how}"] if cut else []

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits ``[N, K]``."""
        return logits

    def merged(
        self, logits: torch.Tensor, targets: torch.Tensor, samples: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The mean logits ``[N, K]`` of each text's windows, with its target."""
        if self.task.long_text != "windows":
            return logits, targets, samples
        first = samples.diff(prepend=samples[:1] - 1).ne(0)
        text_of = first.cumsum(0) - 1
        sums = logits.new_zeros(int(first.sum()), logits.shape[1]).index_add(0, text_of, logits)
        counts = logits.new_zeros(len(sums)).index_add(0, text_of, logits.new_ones(len(logits)))
        return sums / counts.unsqueeze(1), targets[first], samples[first]

    def answers(
        self,
        records: Sequence[Record],  # noqa: ARG002 - the logits say it all
        logits: Sequence[torch.Tensor],
        *,
        scores: bool,
    ) -> list[dict[str, Any]]:
        """What is added to each record, from the logits of its windows ``[N, K]``."""
        return [self.answer(rows.mean(0), scores=scores) for rows in logits]
