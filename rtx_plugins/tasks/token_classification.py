"""One label for each word of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from rtx_core import DataError, Outputs, Record, Sample, Task, hookimpl
from rtx_plugins.tasks.common import (
    IGNORED,
    Labels,
    at_least_two_names,
    chunks,
    label_of,
    list_of,
    outputs_of,
    sample_of,
    truncating,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import tokenizers
    import torch
    from tokenizers import Encoding

    from rtx_core import SpecialTokens
    from rtx_core.components import TargetKind


@attrs.frozen(kw_only=True)
class TokenClassification(Task):
    """Lists of words and lists of tags, equally long. A word's tag is learnt and predicted at its first sub-word.

    A word that ``max_length`` cuts off, or of which the tokenizer leaves nothing (a lone control character), is not
    learnt and not measured; the others keep their own tags. ``predict`` adds the column ``prediction``, one tag for
    each word, and, where scores are wanted, ``scores`` with the probability of each tag for each word.
    """

    default_loss: ClassVar[str] = "cross_entropy"
    default_head: ClassVar[str] = "linear"
    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "f1")
    target_kind: ClassVar[TargetKind | None] = "class"

    words: str = "words"
    """The column of the words, a list of texts."""
    tags: str = "tags"
    """The column of the tags, a list as long as that of the words."""
    scheme: Literal["plain"] = "plain"
    """What tags mean together; ``plain``: nothing, each stands alone."""
    labels: tuple[str, ...] | None = attrs.field(default=None, validator=at_least_two_names)
    """The tags in the order of the model's outputs. None: those of the training data, sorted. ``predict`` gives a word
    that the model doesn't see the tag ``O`` where that is one of them, else the most frequent."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Words and tags are two columns."""
        if self.words == self.tags:
            yield "tags", f'"{self.tags}" is the column of the words too'

    def columns(self, *, targets: bool) -> tuple[str, ...]:
        """The columns that a record must have."""
        return (self.words, self.tags) if targets else (self.words,)

    def texts(self, record: Record) -> Iterator[str]:
        """The words of a record as one text."""
        yield " ".join(words_of(record, self.words))

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:  # noqa: ARG002 - not predicted
        """The tags and how often each occurs in the training data, on words that are cut off too."""
        labels = (
            (label_of(tag, record, self.tags), record)
            for record in records
            for tag in list_of(record, self.tags, "tags")
        )
        return outputs_of(labels, self.tags, self.labels)

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,
        *,
        max_length: int,
        special_tokens: SpecialTokens,  # noqa: ARG002 - the tokenizer adds them
    ) -> TokenClassificationPart:
        """The part that encodes and answers."""
        labels = Labels.of(outputs)
        return TokenClassificationPart(self, truncating(tokenizer, max_length), labels, _fallback(outputs))


def _fallback(outputs: Outputs) -> str:
    """The tag of a word that the model didn't see."""
    names = outputs.labels or ()
    counts = outputs.counts or (0,) * len(names)
    return "O" if "O" in names else names[counts.index(max(counts))]


@attrs.define(eq=False)
class TokenClassificationPart:
    """The task with a tokenizer that truncates, and with the tags of its training data."""

    task: TokenClassification
    tokenizer: tokenizers.Tokenizer
    labels: Labels
    fallback: str
    """The tag that is predicted for a word that the model doesn't see."""
    words_cut: int = 0
    """Words that ``max_length`` cut off since the last notes."""
    words_empty: int = 0
    """Words of which the tokenizer left nothing since the last notes."""

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:
        """Encode records, one sample each, in order; targets stand at the first sub-word of each word that has one.

        :param targets: False for records whose tags are missing or don't matter.
        :raises DataError: a value is missing, of the wrong type, an unknown tag, or the lists are not equally long.
        """
        tagged = (self._words_and_targets(record, targets=targets) for record in records)
        for chunk in chunks(tagged, lambda item: sum(map(len, item[0]))):
            encodings = self._encoded([words for words, _ in chunk])
            for encoding, (words, numbers) in zip(encodings, chunk, strict=True):
                first = first_positions(encoding)
                self._count_lost(encoding, first, len(words))
                yield sample_of(encoding, list(first.values()), [numbers[word] for word in first])

    def _words_and_targets(self, record: Record, *, targets: bool) -> tuple[list[str], list[int]]:
        words, column = words_of(record, self.task.words), self.task.tags
        if not targets:
            return words, [IGNORED] * len(words)
        tags = list_of(record, column, "tags")
        if len(tags) != len(words):
            message = f'column "{self.task.words}" holds {len(words)} words, but column "{column}" {len(tags)} tags'
            raise DataError(record.file, record.line, message)
        return words, [self.labels.number(tag, record, column) for tag in tags]

    def _encoded(self, texts: list[list[str]]) -> list[Encoding]:
        return self.tokenizer.encode_batch(texts, is_pretokenized=True)

    def _count_lost(self, encoding: Encoding, first: dict[int, int], words: int) -> None:
        cut = {word for piece in encoding.overflowing for word in first_positions(piece)} - first.keys()
        self.words_cut += len(cut)
        self.words_empty += words - len(first) - len(cut)

    def notes(self) -> Sequence[str]:
        """How many words have no target."""
        cut, empty = self.words_cut, self.words_empty
        self.words_cut = self.words_empty = 0
        return [
            *([f"{cut:,} words were cut off by max_length and have no target"] if cut else []),
            *([f"{empty:,} words have no token and no target"] if empty else []),
        ]

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits ``[N, K]``."""
        return logits

    def answers(
        self, records: Sequence[Record], logits: Sequence[torch.Tensor], *, scores: bool
    ) -> list[dict[str, Any]]:
        """``prediction`` and perhaps ``scores`` of each record, from its logits ``[N, K]`` of the N words it saw.

        ``scores`` holds None for a word that it did not see.
        """
        texts = [words_of(record, self.task.words) for record in records]
        return [
            self._answer(len(words), dict(zip(first_positions(encoding), rows, strict=True)), scores=scores)
            for words, encoding, rows in zip(texts, self._encoded(texts), logits, strict=True)
        ]

    def _answer(self, words: int, seen: dict[int, torch.Tensor], *, scores: bool) -> dict[str, Any]:
        """The answer for so many words, some of which have logits ``[K]``."""
        best = {word: self.labels.names[int(row.argmax())] for word, row in seen.items()}
        answer: dict[str, Any] = {"prediction": [best.get(word, self.fallback) for word in range(words)]}
        if scores:
            probabilities = {word: self.labels.scores(row) for word, row in seen.items()}
            answer["scores"] = [probabilities.get(word) for word in range(words)]
        return answer


def first_positions(encoding: Encoding) -> dict[int, int]:
    """Where each word's first token stands, by the word's number; words without tokens are missing."""
    first: dict[int, int] = {}
    for position, word in enumerate(encoding.word_ids):
        if word is not None:
            first.setdefault(word, position)
    return first


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"token_classification": TokenClassification}
