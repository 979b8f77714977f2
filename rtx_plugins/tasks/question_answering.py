"""Answers that stand in a text (Rajpurkar et al. 2016, arXiv:1606.05250), or none (arXiv:1806.03822)."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import attrs
import numpy as np
from attrs.validators import ge, optional

from rtx_core import DataError, InputError, Layout, Outputs, Record, Sample, SpanRole, Task, hookimpl
from rtx_core.header import counted
from rtx_plugins.tasks.common import chunks, described, text_of, value_of
from rtx_plugins.tasks.long_texts import long_text_limits
from rtx_plugins.tasks.span_rows import COLUMNS, END, FIRST, LAST, PLACE, START, rows_of_text
from rtx_plugins.tasks.spans_of_answers import best_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import tokenizers
    import torch
    from tokenizers import Encoding

    from rtx_core import Architecture, Head, SpecialTokens
    from rtx_core.components import TargetKind

_MAX_LENGTH = 384
_STRIDE = 128
_QUESTION = 64
"""What BERT used for SQuAD."""


@attrs.frozen(kw_only=True)
class QuestionAnswering(Task):
    """A question, a text, and the parts of the text that answer it.

    Answers are written as in SQuAD, ``{"text": [...], "answer_start": [...]}``, as a list of
    ``{"text": ..., "start": ...}``, or as a plain text, which is looked for in the context. An empty list, or an empty
    text, says that the context has no answer.

    A long context is read in windows, each with the whole question; a window that doesn't hold the answer learns that
    there is none in it. ``predict`` adds ``answer``, the text, ``start`` and ``end``, its characters, all three empty
    where there is no answer, and, where scores are wanted, ``score``.
    """

    default_loss: ClassVar[str] = "span_cross_entropy"
    default_head: ClassVar[str] = "linear"
    default_metrics: ClassVar[tuple[str, ...]] = ("answers",)
    target_kind: ClassVar[TargetKind | None] = "span"
    pipeline_tag: ClassVar[str | None] = "question-answering"

    question: str = "question"
    """The column of the question."""
    context: str = "context"
    """The column of the text that holds the answer."""
    answers: str = "answers"
    """The column of the answers. The first is learnt; measured is against whichever fits best."""
    max_length: int | None = attrs.field(default=None, validator=optional(ge(2)))
    """Tokens of a window, with question and special tokens; None takes 384, or what the architecture can if that is
    less."""
    max_question_length: int | None = attrs.field(default=None, validator=optional(ge(1)))
    """Tokens kept of a question; None takes 64, or a quarter of a window if that is less."""
    stride: int | None = attrs.field(default=None, validator=optional(ge(0)))
    """Tokens that a window has in common with the one before it; None takes 128, or a third of a window if that is
    less."""
    max_answer_length: int = attrs.field(default=30, validator=ge(1))
    """Tokens of the longest answer that is predicted."""
    no_answer: bool | Literal["auto"] = "auto"
    """Whether "no answer" may be predicted, and stand in the data; ``auto``: if it stands in the training data."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Three columns."""
        if self.context == self.question:
            yield "context", f'"{self.context}" is the column of the question too'
        if self.answers in (self.question, self.context):
            which = "question" if self.answers == self.question else "context"
            yield "answers", f'"{self.answers}" is the column of the {which} too'

    def layout(self, architecture: Architecture, head: Head, max_length: int) -> Layout:  # noqa: ARG002 - by the task alone
        """A question and a text are asked; of a long text others read one window."""
        return Layout(example=("a question", "a text that answers it"), limits=long_text_limits("windows"))

    def columns(self, *, targets: bool) -> tuple[str, ...]:
        """The columns that a record must have."""
        return (self.question, self.context, self.answers) if targets else (self.question, self.context)

    def texts(self, record: Record) -> Iterator[str]:
        """Question and context of a record."""
        return (text_of(record, column) for column in (self.question, self.context))

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:  # noqa: ARG002 - not predicted
        """Start and end; counted is how many questions have an answer, and how many none.

        :raises DataError: an answer is of the wrong type, or does not stand in its context.
        """
        counts = [0, 0]
        for record in records:
            counts[not self.references(record).spans] += 1
        return Outputs(size=2, counts=(counts[0], counts[1]))

    def references(self, record: Record) -> References:
        """The right answers of a record.

        :raises DataError: there are none though ``no_answer`` is false; one is of the wrong type, or not in the text.
        """
        found = _references(record, self.answers, text_of(record, self.context))
        if not found.spans and self.no_answer is False:
            message = f'column "{self.answers}" has no answer, and task.no_answer is false'
            raise DataError(record.file, record.line, message)
        return found

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,
        *,
        max_length: int,
        special_tokens: SpecialTokens,  # noqa: ARG002 - the tokenizer adds them
    ) -> QuestionAnsweringPart:
        """The part that encodes and answers.

        :raises InputError: question and stride leave a window no room to go on.
        """
        from tokenizers import Tokenizer

        whole = Tokenizer.from_str(tokenizer.to_str())
        whole.no_truncation()
        unanswered = outputs.counts[1] if outputs.counts else 0
        return QuestionAnsweringPart(
            self,
            whole,
            self._window(max_length, tokenizer.num_special_tokens_to_add(is_pair=True)),
            may_be_none=unanswered > 0 if self.no_answer == "auto" else self.no_answer,
        )

    def _window(self, max_length: int, special: int) -> Window:
        length = max_length if self.max_length is not None else min(max_length, _MAX_LENGTH)
        question = min(_QUESTION, length // 4) if self.max_question_length is None else self.max_question_length
        stride = min(_STRIDE, length // 3) if self.stride is None else self.stride
        room = length - special - question
        if room <= stride:
            raise InputError(
                f"task.max_length: of {length} tokens {special} special ones and a question of {question} "
                f"(max_question_length) leave {max(room, 0)} for the text, but windows share {stride} (stride); "
                f"write at least {special + question + stride + 1}, or less of the others"
            )
        return Window(length, question, stride)


# --- right answers ----------------------------------------------------------------------------------------------------


class References(NamedTuple):
    """The right answers of a record."""

    spans: list[tuple[int, int]]
    """First character and the one behind the last, of each."""
    several: bool = False
    """Whether an answer without a place occurs more than once in the text."""


def _references(record: Record, column: str, context: str) -> References:
    value = value_of(record, column)
    if isinstance(value, str):
        return _looked_for(value, context, record, column)
    answers = list(_texts_and_starts(value, record, column))
    for text, start in answers:
        _refuse_misplaced(text, start, context, record, column)
    return References([(start, start + len(text)) for text, start in answers])


def _looked_for(text: str, context: str, record: Record, column: str) -> References:
    if not text:
        return References([])
    start = context.find(text)
    if start < 0:
        message = f'column "{column}": {described(text)} does not occur in the context'
        raise DataError(record.file, record.line, message)
    return References([(start, start + len(text))], several=context.find(text, start + 1) >= 0)


def _texts_and_starts(value: Any, record: Record, column: str) -> Iterator[tuple[str, int]]:
    """The answers of a cell, as SQuAD's tables or as its files write them."""
    if isinstance(value, Mapping) and value.keys() >= {"text", "answer_start"}:
        texts, starts = value["text"], value["answer_start"]
        if isinstance(texts, list | tuple) and isinstance(starts, list | tuple) and len(texts) == len(starts):
            value = [{"text": text, "start": start} for text, start in zip(texts, starts, strict=True)]
    if not isinstance(value, list | tuple):
        raise _unreadable(value, record, column)
    for answer in value:
        if not isinstance(answer, Mapping):
            raise _unreadable(answer, record, column)
        text, start = answer.get("text"), answer.get("start", answer.get("answer_start"))
        if not isinstance(text, str) or not text or not isinstance(start, Integral) or isinstance(start, bool):
            raise _unreadable(answer, record, column)
        yield text, int(start)


def _unreadable(value: Any, record: Record, column: str) -> DataError:
    expected = '{"text": [...], "answer_start": [...]}, a list of {"text": ..., "start": ...}, or a text'
    return DataError(record.file, record.line, f'column "{column}": expected {expected}; got {described(value)}')


def _refuse_misplaced(text: str, start: int, context: str, record: Record, column: str) -> None:
    there = context[start : start + len(text)] if start >= 0 else ""
    if there == text:
        return
    found = context.find(text)
    hint = "it does not occur in it" if found < 0 else f"it stands at {found}"
    message = (
        f'column "{column}": the context has {described(there)} at character {start}, not {described(text)}; {hint}'
    )
    raise DataError(record.file, record.line, message)


# --- encoding ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Window:
    """How a text is read."""

    length: int
    """Tokens of the longest."""
    question: int
    """Tokens kept of a question."""
    stride: int
    """Tokens that neighbours share."""

    def positions(self, sides: np.ndarray) -> list[np.ndarray]:
        """Which tokens of an encoded pair each window holds, in their order.

        :param sides: 0 for the tokens of the question, 1 for those of the text, −1 for special ones.
        """
        text = np.flatnonzero(sides == 1)
        always = np.append(np.flatnonzero(sides < 0), np.flatnonzero(sides == 0)[: self.question])
        room = self.length - len(always)
        step = room - self.stride
        count = 1 + max(0, -(-(len(text) - room) // step))
        return [np.sort(np.append(always, text[k * step : k * step + room])) for k in range(count)]


@attrs.define(eq=False)
class QuestionAnsweringPart:
    """The task with a tokenizer that does not truncate."""

    task: QuestionAnswering
    tokenizer: tokenizers.Tokenizer
    window: Window
    may_be_none: bool = attrs.field(kw_only=True)
    """Whether "no answer" is one."""
    questions_cut: int = attrs.field(default=0, init=False)
    """Questions that were cut since the last notes."""
    answers_several: int = attrs.field(default=0, init=False)
    """Answers without a place that occur more than once, since the last notes."""
    answers_empty: int = attrs.field(default=0, init=False)
    """Answers of which the tokenizer left nothing, since the last notes."""

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:
        """Encode records, one sample each, in order; its sequences are the windows of its context.

        Every token has a target, since all are places where the softmax of the loss looks; behind them, at the last
        token's position, stand the right answers and the text, which the metric needs.

        :param targets: False for records whose answers are missing or don't matter.
        :raises DataError: a value is missing, of the wrong type, or an answer is not in its context.
        """
        for chunk in chunks(records, self._characters):
            for record, encoding in zip(chunk, self._encoded(chunk), strict=True):
                references = self.task.references(record) if targets else None
                yield self._sample(encoding, text_of(record, self.task.context), references)

    def _characters(self, record: Record) -> int:
        return sum(map(len, self.task.texts(record)))

    def _encoded(self, records: Sequence[Record]) -> list[Encoding]:
        pairs = [tuple(self.task.texts(record)) for record in records]
        encodings: list[Encoding] = self.tokenizer.encode_batch(pairs)
        return encodings

    def _sample(self, encoding: Encoding, context: str, references: References | None) -> Sample:
        sides = _sides(encoding)
        self.questions_cut += bool((sides == 0).sum() > self.window.question)
        windows = self.window.positions(sides)
        rows = self._token_rows(encoding, context, windows, references)
        tokens = len(rows)
        if references is not None:
            self.answers_several += references.several
            spans = [(SpanRole.REFERENCE, 0, 0, *span) for span in references.spans]
            rows = np.concatenate([rows, np.array(spans, dtype=np.int64).reshape(-1, COLUMNS), rows_of_text(context)])
        every = np.concatenate(windows)
        return Sample(
            input_ids=np.array(encoding.ids, dtype=np.int32)[every],
            token_types=np.array(encoding.type_ids, dtype=np.uint8)[every],
            target_positions=np.minimum(np.arange(len(rows)), tokens - 1).astype(np.int32),
            targets=rows,
            lengths=tuple(map(len, windows)) if len(windows) > 1 else (),
        )

    def _token_rows(
        self, encoding: Encoding, context: str, windows: Sequence[np.ndarray], references: References | None
    ) -> np.ndarray:
        """A row for each token of each window, ``[N, 5]``."""
        first, last = characters_of_words(encoding, context, by_word=self.tokenizer.pre_tokenizer is not None)
        answer = self._answer_tokens(encoding, references)
        rows = []
        for positions in windows:
            own = np.zeros((len(positions), COLUMNS), dtype=np.int64)
            own[:, PLACE], own[:, FIRST], own[:, LAST] = np.arange(len(positions)), first[positions], last[positions]
            if answer is None:
                own[:, START : END + 1] = -1
            else:
                places = [int(np.searchsorted(positions, token)) for token in answer]
                whole = all(
                    place < len(own) and positions[place] == token for place, token in zip(places, answer, strict=True)
                )
                own[places[0] if whole else 0, START] = own[places[1] if whole else 0, END] = 1
            rows.append(own)
        return np.concatenate(rows)

    def _answer_tokens(self, encoding: Encoding, references: References | None) -> tuple[int, int] | None:
        """The first and the last token of the answer that is learnt; None where nothing is.

        Where there is no answer, both are the first token of all, which stands for that.
        """
        if references is None:
            return None
        if not references.spans:
            return 0, 0
        first, last = references.spans[0]
        starts, ends = np.array(encoding.offsets).reshape(-1, 2).T
        tokens = np.flatnonzero((_sides(encoding) == 1) & (starts < last) & (ends > first))
        if not len(tokens):
            self.answers_empty += 1
            return None
        return int(tokens[0]), int(tokens[-1])

    def notes(self) -> Sequence[str]:
        """What was lost, and what was guessed."""
        cut, several, empty = self.questions_cut, self.answers_several, self.answers_empty
        self.questions_cut = self.answers_several = self.answers_empty = 0
        return [
            *([f"{counted(cut, 'question')} cut at max_question_length ({self.window.question})"] if cut else []),
            *(
                [f"{several:,} answers occur more than once in their context; the first place was taken"]
                if several
                else []
            ),
            *([f"{empty:,} answers have no token and are not learnt"] if empty else []),
        ]

    def merged(
        self, logits: torch.Tensor, targets: torch.Tensor, samples: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The characters of each sample's best answer, ``[n, 2]``, at those of its rows that are no tokens."""
        rows = targets.cpu().numpy()
        bounds = np.flatnonzero(np.diff(samples.cpu().numpy())) + 1
        values = np.split(logits.double().cpu().numpy(), bounds)
        kept = rows[:, PLACE] < 0
        spans = np.concatenate(
            [
                np.tile(
                    self._best(own_values[own[:, PLACE] >= 0], own[own[:, PLACE] >= 0]), ((own[:, PLACE] < 0).sum(), 1)
                )
                for own_values, own in zip(values, np.split(rows, bounds), strict=True)
            ]
        )
        chosen = targets.new_tensor(kept.nonzero()[0])
        return targets.new_tensor(spans), targets[chosen], samples[chosen]

    def _best(self, logits: np.ndarray, rows: np.ndarray) -> tuple[int, int]:
        answer = best_answer(logits, rows, longest=self.task.max_answer_length, may_be_none=self.may_be_none)
        return answer.first, answer.last

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """What :meth:`merged` made of the logits: first and last character of each sample's answer."""
        return logits

    def answers(
        self, records: Sequence[Record], logits: Sequence[torch.Tensor], *, scores: bool
    ) -> list[dict[str, Any]]:
        """``answer``, ``start`` and ``end`` of each record, and perhaps ``score``, from its logits ``[N, 2]``."""
        found = []
        for record, encoding, values in zip(records, self._encoded(records), logits, strict=True):
            context = text_of(record, self.task.context)
            rows = self._token_rows(encoding, context, self.window.positions(_sides(encoding)), None)
            answer = best_answer(
                values.double().numpy(), rows, longest=self.task.max_answer_length, may_be_none=self.may_be_none
            )
            none = answer.is_none
            found.append(
                {
                    "answer": None if none else context[answer.first : answer.last],
                    "start": None if none else answer.first,
                    "end": None if none else answer.last,
                    **({"score": answer.score} if scores else {}),
                }
            )
        return found


def _sides(encoding: Encoding) -> np.ndarray:
    """0 for the tokens of the question, 1 for those of the text, −1 for special ones."""
    return np.array([-1 if side is None else side for side in encoding.sequence_ids])


def characters_of_words(encoding: Encoding, context: str, *, by_word: bool) -> tuple[np.ndarray, np.ndarray]:
    """For each token of the text the first character of the word that it belongs to, and the one behind its last.

    Both are −1 where a token is none of the text's, or its word is nothing but space.

    :param by_word: False where the tokenizer knows no words: each token stands for itself.
    """
    first, last = (np.full(len(encoding.ids), -1, dtype=np.int64) for _ in range(2))
    tokens = np.flatnonzero(_sides(encoding) == 1)
    if not len(tokens):
        return first, last
    starts, ends = np.array(encoding.offsets)[tokens].T
    words = np.array([encoding.word_ids[token] for token in tokens]) if by_word else np.arange(len(tokens))
    bounds = np.flatnonzero(np.diff(words, prepend=-1))
    trimmed = [
        _trimmed(context, start, end)
        for start, end in zip(np.minimum.reduceat(starts, bounds), np.maximum.reduceat(ends, bounds), strict=True)
    ]
    of_tokens = np.repeat(np.array(trimmed), np.diff(np.append(bounds, len(tokens))), axis=0)
    first[tokens], last[tokens] = of_tokens.T
    return first, last


def _trimmed(context: str, start: int, end: int) -> tuple[int, int]:
    """Without the spaces around it, which byte-level pieces and Metaspace's have."""
    piece = context[start:end]
    inner = piece.strip()
    if not inner:
        return -1, -1
    start += len(piece) - len(piece.lstrip())
    return int(start), int(start) + len(inner)


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"question_answering": QuestionAnswering}
