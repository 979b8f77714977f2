"""Tags at the first sub-word of each word: from a list of tags, or from spans of a text; and back, from logits to both.

N words are seen by the model, of K tags.
"""

from __future__ import annotations

import itertools
import unicodedata
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from rtx_core import DataError, Record, Sample
from rtx_core.header import counted
from rtx_plugins.tasks.common import (
    IGNORED,
    Labels,
    chunks,
    described,
    label_of,
    list_of,
    text_of,
    unknown_label,
    words_of,
)
from rtx_plugins.tasks.tags import OUTSIDE, Scheme, Span, Tag, lone_tags, spans_of, tags_of_span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch

    from rtx_plugins.tasks.long_texts import Reader, Tokens


# --- words of tokens --------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Words:
    """The words of an encoded text that have tokens, W in number."""

    numbers: np.ndarray
    """int64 ``[W]``: which word of the text each is; it rises."""
    first: np.ndarray
    """int64 ``[W]``: the place of its first token among those of the text."""
    last: np.ndarray
    """int64 ``[W]``: that of its last."""

    @classmethod
    def of(cls, tokens: Tokens) -> Words:
        """The words that these tokens are pieces of."""
        first = np.flatnonzero(np.diff(tokens.words, prepend=-1))
        return cls(tokens.words[first], first, np.append(first, len(tokens))[1:] - 1)

    def __len__(self) -> int:
        return len(self.numbers)

    def chosen(self, among: np.ndarray) -> Words:
        """Those for which ``among`` is true."""
        return Words(self.numbers[among], self.first[among], self.last[among])

    def windows(self, windows: Sequence[range]) -> np.ndarray:
        """The window in which each word has the most context on its shorter side, the earlier of two; −1: in none.

        Between window k and the next, that begins before k ends, it is the next one if its start is farther from the
        word than the end of k: ``first − start_next > end_k − last``. A word counts as seen where its first token is.
        """
        starts = np.array([window.start for window in windows])
        stops = np.array([window.stop for window in windows])
        best = np.searchsorted(stops[:-1] - 1 + starts[1:], self.first + self.last)
        begun = np.searchsorted(starts, self.first, side="right") - 1
        return np.where(self.first < stops[-1], np.minimum(best, begun), -1)


# --- both kinds of data -----------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class TaggingPart:
    """A task over words with a tokenizer, and with the tags of its training data."""

    reader: Reader
    labels: Labels
    scheme: Scheme | None
    """How the tags make up spans; None: each stands alone."""
    words_cut: int = attrs.field(default=0, init=False)
    """Words that ``max_length`` cut off since the last notes."""

    def notes(self) -> Sequence[str]:
        """What has no target."""
        cut, self.words_cut = self.words_cut, 0
        return [f"{counted(cut, 'word')} cut off by max_length, without a target"] if cut else []

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits ``[N, K]``."""
        return logits

    def seen(self, tokens: Tokens, words: Words) -> tuple[list[range], np.ndarray]:
        """The windows of a text, and for each word which of them it is predicted in; −1: in none."""
        windows = self.reader.windows(len(tokens))
        return windows, words.windows(windows)

    def sample(self, tokens: Tokens, words: Words, targets: np.ndarray) -> Sample:
        """A text's windows, each with the targets of the words that are predicted in it.

        :param targets: int64, one for each of the words.
        """
        windows, window_of = self.seen(tokens, words)
        seen = window_of >= 0
        self.words_cut += len(words) - int(seen.sum())
        window_of, first = window_of[seen], words.first[seen]
        starts = np.array([window.start for window in windows])
        positions = tokens.before + first - starts[window_of]
        borders = np.searchsorted(window_of, np.arange(1, len(windows)))
        sequences = [np.arange(window.start, window.stop) for window in windows]
        return tokens.sample(sequences, np.split(positions, borders), targets[seen])


def _read_spans(names: Sequence[str], scheme: Scheme) -> list[Span]:
    """The spans that tags spell by their names."""
    tags = {name: Tag.parse(name, scheme) for name in set(names)}
    return list(spans_of(tags[name] for name in names))


# --- words and tags ---------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class WordsPart(TaggingPart):
    """Lists of words with lists of tags."""

    words: str
    """The column of the words."""
    tags: str
    """The column of the tags."""
    fallback: str
    """The tag that is predicted for a word that the model doesn't see."""
    words_empty: int = attrs.field(default=0, init=False)
    """Words of which the tokenizer left nothing since the last notes."""
    lone: int = attrs.field(default=0, init=False)
    """Tags that continue a span that has not begun, since the last notes."""

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:
        """Encode records, one sample each, in order; targets stand at the first sub-word of each word that has one.

        :param targets: False for records whose tags are missing or don't matter.
        :raises DataError: a value is missing, of the wrong type, an unknown tag, or the lists are not equally long.
        """
        tagged = (self._words_and_targets(record, targets=targets) for record in records)
        for chunk in chunks(tagged, lambda item: sum(map(len, item[0]))):
            for tokens, (texts, numbers) in zip(self.reader.read([texts for texts, _ in chunk]), chunk, strict=True):
                words = Words.of(tokens)
                self.words_empty += len(texts) - len(words)
                yield self.sample(tokens, words, np.array(numbers, dtype=np.int64)[words.numbers])

    def _words_and_targets(self, record: Record, *, targets: bool) -> tuple[list[str], list[int]]:
        words = words_of(record, self.words)
        if not targets:
            return words, [IGNORED] * len(words)
        tags = list_of(record, self.tags, "tags")
        if len(tags) != len(words):
            message = f'column "{self.words}" holds {len(words)} words, but column "{self.tags}" {len(tags)} tags'
            raise DataError(record.file, record.line, message)
        numbers = [self.labels.number(tag, record, self.tags) for tag in tags]
        if self.scheme is not None:
            self.lone += lone_tags(Tag.parse(self.labels.names[number], self.scheme) for number in numbers)
        return words, numbers

    def notes(self) -> Sequence[str]:
        """How many words have no target, and how many tags don't keep to the scheme."""
        empty, lone = self.words_empty, self.lone
        self.words_empty = self.lone = 0
        return [
            *super().notes(),
            *([f"{empty:,} words have no token and no target"] if empty else []),
            *([f"{lone:,} tags continue an entity that has not begun; each is read as its beginning"] if lone else []),
        ]

    def answers(
        self, records: Sequence[Record], logits: Sequence[torch.Tensor], *, scores: bool
    ) -> list[dict[str, Any]]:
        """``prediction`` and perhaps ``entities`` and ``scores``, from the logits ``[N, K]`` of the N words seen.

        ``scores`` holds None for a word that was not seen.
        """
        texts = [words_of(record, self.words) for record in records]
        return [
            self._answer(len(words), self._seen_words(tokens), rows, scores=scores)
            for words, tokens, rows in zip(texts, self.reader.read(texts), logits, strict=True)
        ]

    def _seen_words(self, tokens: Tokens) -> list[int]:
        words = Words.of(tokens)
        _, window_of = self.seen(tokens, words)
        seen: list[int] = words.numbers[window_of >= 0].tolist()
        return seen

    def _answer(self, words: int, seen: Sequence[int], rows: torch.Tensor, *, scores: bool) -> dict[str, Any]:
        """The answer for so many words, of which some are seen and have logits ``[N, K]``."""
        prediction = [self.fallback] * words
        for word, number in zip(seen, rows.argmax(-1).tolist(), strict=True):
            prediction[word] = self.labels.names[number]
        answer: dict[str, Any] = {"prediction": prediction}
        if self.scheme is not None:
            answer["entities"] = [attrs.asdict(span) for span in _read_spans(prediction, self.scheme)]
        if scores:
            probabilities = dict(zip(seen, map(self.labels.scores, rows), strict=True))
            answer["scores"] = [probabilities.get(word) for word in range(words)]
            for entity in answer.get("entities", ()):
                inside = range(entity["start"], entity["end"])
                entity["score"] = _mean([probabilities[word][prediction[word]] for word in inside])
        return answer


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# --- texts and spans --------------------------------------------------------------------------------------------------


def labelled_spans(record: Record, column: str, text: str) -> list[Span]:
    """The spans of characters in a column, in the order of the text.

    :raises DataError: one is malformed, outside of the text, or shares characters with another.
    """
    entries = enumerate(list_of(record, column, "spans"), start=1)
    spans = [_span(entry, number, text, record, column) for number, entry in entries]
    spans.sort(key=lambda span: (span.start, span.end))
    for one, other in itertools.pairwise(spans):
        if other.start < one.end:
            raise _refused(record, column, f"{_shown(one)} and {_shown(other)} overlap, but a word has one tag")
    return spans


def _span(entry: Any, number: int, text: str, record: Record, column: str) -> Span:
    match entry:
        case {"start": int() as start, "end": int() as end, "label": label} if bool not in (type(start), type(end)):
            pass
        case _:
            message = f"span {number}: expected an object with start, end and label, got {described(entry)}"
            raise _refused(record, column, message)
    if not 0 <= start < end <= len(text):
        message = f"span {number}: {start} to {end} is no part of the text, which has {len(text)} characters"
        raise _refused(record, column, message)
    return Span(start, end, label_of(label, record, column))


def _refused(record: Record, column: str, message: str) -> DataError:
    return DataError(record.file, record.line, f'column "{column}": {message}')


def _shown(span: Span) -> str:
    return f'{span.start} to {span.end} ("{span.label}")'


@attrs.define(eq=False)
class SpansPart(TaggingPart):
    """Texts with spans of characters. Words are those of the tokenizer."""

    scheme: Scheme
    text: str
    """The column of the text."""
    spans: str
    """The column of the spans."""
    spans_widened: int = attrs.field(default=0, init=False)
    """Spans that cut a word, since the last notes."""
    spans_lost: int = attrs.field(default=0, init=False)
    """Spans without a word of their own, since the last notes."""

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:
        """Encode records, one sample each, in order; targets stand at the first sub-word of each word.

        :param targets: False for records whose spans are missing or don't matter.
        :raises DataError: a value is missing, of the wrong type, an unknown label, or spans overlap.
        """
        read = (self._text_and_spans(record, targets=targets) for record in records)
        for chunk in chunks(read, lambda item: len(item[0])):
            for tokens, (text, spans) in zip(self.reader.read([text for text, _ in chunk]), chunk, strict=True):
                words, places = words_and_places(text, tokens)
                yield self.sample(tokens, words, self._targets(places, spans))

    def _text_and_spans(self, record: Record, *, targets: bool) -> tuple[str, list[Span] | None]:
        text = text_of(record, self.text)
        if not targets:
            return text, None
        spans = labelled_spans(record, self.spans, text)
        known = {Tag.parse(name, self.scheme).label for name in self.labels.names} - {OUTSIDE.label}
        for span in spans:
            if span.label not in known:
                raise unknown_label(span.label, sorted(known), record, self.spans)
        return text, spans

    def _targets(self, places: np.ndarray, spans: Sequence[Span] | None) -> np.ndarray:
        """The class of each word, int64 ``[W]``: a word that a span cuts belongs to it as a whole.

        :param places: the characters of each word, ``[W, 2]``.
        :param spans: None: every class is ignored.
        """
        if spans is None:
            return np.full(len(places), IGNORED)
        names = self.labels.names
        targets = np.full(len(places), names.index(str(OUTSIDE)))
        starts, ends = places.T
        free = 0
        for span in spans:
            begin = max(free, int(np.searchsorted(ends, span.start, side="right")))
            free = max(free, int(np.searchsorted(starts, span.end)))
            if begin >= free:
                self.spans_lost += 1
                continue
            self.spans_widened += bool(starts[begin] < span.start or ends[free - 1] > span.end)
            targets[begin:free] = [names.index(str(tag)) for tag in tags_of_span(free - begin, span.label, self.scheme)]
        return targets

    def notes(self) -> Sequence[str]:
        """How many words have no target, and which spans are not as they were written."""
        widened, lost = self.spans_widened, self.spans_lost
        self.spans_widened = self.spans_lost = 0
        return [
            *super().notes(),
            *([f"{widened:,} spans cut a word and were widened to whole words"] if widened else []),
            *([f"{lost:,} spans have no word of their own and are not learnt"] if lost else []),
        ]

    def answers(
        self, records: Sequence[Record], logits: Sequence[torch.Tensor], *, scores: bool
    ) -> list[dict[str, Any]]:
        """``spans`` of each record, from the logits ``[N, K]`` of the N words seen."""
        texts = [text_of(record, self.text) for record in records]
        return [
            {"spans": list(self._answer(text, self._seen_places(text, tokens), rows, scores=scores))}
            for text, tokens, rows in zip(texts, self.reader.read(texts), logits, strict=True)
        ]

    def _seen_places(self, text: str, tokens: Tokens) -> np.ndarray:
        words, places = words_and_places(text, tokens)
        _, window_of = self.seen(tokens, words)
        return places[window_of >= 0]

    def _answer(self, text: str, places: np.ndarray, rows: torch.Tensor, *, scores: bool) -> Iterator[dict[str, Any]]:
        """The spans of a text, from the characters ``[N, 2]`` and the logits ``[N, K]`` of the words seen."""
        best = rows.double().softmax(-1).max(-1)
        names = [self.labels.names[number] for number in best.indices.tolist()]
        for span in _read_spans(names, self.scheme):
            start, end = int(places[span.start, 0]), int(places[span.end - 1, 1])
            answer: dict[str, Any] = {"start": start, "end": end, "label": span.label, "text": text[start:end]}
            if scores:
                answer["score"] = float(best.values[span.start : span.end].mean())
            yield answer


def words_and_places(text: str, tokens: Tokens) -> tuple[Words, np.ndarray]:
    """A text's words that are more than space, and the characters of each, int64 ``[W, 2]``.

    Some tokenizers count the space before a word as a part of it, and some leave out an accent that is a character of
    its own: the first is taken away here, the second added.
    """
    words = Words.of(tokens)
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    used = set(text)
    words_only = np.flatnonzero(~np.isin(codes, [ord(one) for one in used if one.isspace()]))
    no_marks = np.flatnonzero(~np.isin(codes, [ord(one) for one in used if unicodedata.category(one)[0] == "M"]))
    # The first character that is no space, the one after the last, and the first after that which is no mark.
    starts = np.append(words_only, len(text))[np.searchsorted(words_only, tokens.offsets[words.first, 0])]
    ends = np.append(words_only, -1)[np.searchsorted(words_only, tokens.offsets[words.last, 1]) - 1] + 1
    there = starts < ends
    ends = np.append(no_marks, len(text))[np.searchsorted(no_marks, ends)]
    return words.chosen(there), np.stack([starts, ends], axis=1)[there]
