"""What is odd about a pipeline's data: counted while records are encoded, told before the model is built.

A :class:`Survey` belongs to one set and is kept beside its encoded samples, so that a second start tells the same
without reading a text. ``[data] lint`` says how loudly each oddity is told.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import attrs
import numpy as np

from rtx_core.samples import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import tokenizers

    from rtx_core.components import Task
    from rtx_core.config.pipeline import Level, Lint
    from rtx_core.samples import Record, Sample

_UNBALANCED = 20
_MUCH_CUT = 0.05
_MANY_UNKNOWN = 0.01
_SHOWN = 5
TRAINING = "training"
"""The name of the training set."""
_COMPARED = 1 << 20


@attrs.frozen(kw_only=True, eq=False)
class Survey:
    """What was counted of one set."""

    records: int
    empty: int
    """Records without any text."""
    first_empty: str | None
    """Where the first of them is, as ``file:line``."""
    labels: Mapping[str, int] | None
    """How often each label occurs; None where the task has no single label."""
    contradictions: int
    """Texts that occur with more than one label."""
    tokens: int
    full: int
    """Samples that are as long as they may be, so that what follows in their text is lost."""
    samples: int
    unknown: int
    """Tokens that are the unknown one."""
    texts: np.ndarray
    """uint64, sorted: a hash of each record's texts. Of more than a million records the smallest hashes (Broder 1997):
    what is told of equal texts is then a lower bound."""

    @property
    def at_least(self) -> str:
        """What stands before a number of equal texts that is a lower bound."""
        return "at least " if len(self.texts) < self.records else ""

    @property
    def duplicates(self) -> int:
        """Records whose texts another record before them has."""
        return len(self.texts) - len(np.unique(self.texts))

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON has it."""
        return {**attrs.asdict(self), "texts": base64.b64encode(self.texts.astype("<u8").tobytes()).decode()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` gave."""
        texts = np.frombuffer(base64.b64decode(values["texts"]), "<u8")
        return cls(**{**values, "texts": texts})


class Surveyor:
    """Looks at the records and samples of a set as they pass by."""

    def __init__(self, task: Task, tokenizer: tokenizers.Tokenizer, *, unknown: str, max_length: int) -> None:
        """Count nothing yet.

        :param unknown: the token for what the vocabulary lacks.
        """
        self._task, self._max_length = task, max_length
        self._unknown = tokenizer.token_to_id(unknown)
        self._texts, self._with_labels = _Smallest(), _Smallest()
        self.seen = 0
        """Records that passed by."""
        self._labels: Counter[str] | None = Counter() if task.has_stratum else None
        self._empty = 0
        self._first_empty: str | None = None
        self._samples = self._tokens = self._full = self._unknowns = 0

    def records(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, each counted."""
        for record in records:
            texts = list(self._task.texts(record))
            digest = _hash("\x1f".join(texts))
            self.seen += 1
            self._texts.add(digest)
            if not any(text.strip() for text in texts):
                self._empty += 1
                self._first_empty = self._first_empty or f"{record.file}:{record.line}"
            if self._labels is not None:
                label = self._task.stratum(record)
                self._labels[label] += 1
                # By the text's hash first, so that both collections keep the same texts.
                self._with_labels.add(digest >> 32 << 32 | _hash(f"{digest:x} {label}") >> 32)
            yield record

    def count(self, samples: Sequence[Sample]) -> None:
        """Count some samples; together, since one by one would take as long as encoding them."""
        input_ids = joined([sample.input_ids for sample in samples])
        self._samples += len(samples)
        self._tokens += len(input_ids)
        if not self._task.packable:  # that goes on where a text is cut, as do windows
            self._full += sum(
                len(sample.input_ids) >= self._max_length and len(sample.lengths) <= 1 for sample in samples
            )
        if self._unknown is not None:
            self._unknowns += int(np.count_nonzero(input_ids == self._unknown))

    def survey(self) -> Survey:
        """What was counted."""
        texts, labels = self._texts.sorted(), self._labels
        return Survey(
            records=self.seen,
            empty=self._empty,
            first_empty=self._first_empty,
            labels=None if labels is None else dict(labels),
            contradictions=0 if labels is None else _in_several(self._with_labels.sorted()),
            tokens=self._tokens,
            full=self._full,
            samples=self._samples,
            unknown=self._unknowns,
            texts=texts,
        )


class _Smallest:
    """The smallest of many numbers, in bounded memory."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def add(self, number: int) -> None:
        """Take one more."""
        self._numbers.append(number)
        if len(self._numbers) >= 2 * _COMPARED:
            self._numbers = self.sorted().tolist()

    def sorted(self) -> np.ndarray:
        """uint64, ascending."""
        return np.sort(np.array(self._numbers, dtype=np.uint64))[:_COMPARED]


def _in_several(texts_with_labels: np.ndarray) -> int:
    """How many texts, the upper half of a number, have more than one label, the lower half."""
    _, labels = np.unique(np.unique(texts_with_labels) >> np.uint64(32), return_counts=True)
    return int((labels > 1).sum())


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


# --- what a set is like -----------------------------------------------------------------------------------------------


def described(survey: Survey, lengths: np.ndarray) -> str:
    """A set in a line: how much it is, how long its samples are, and its labels.

    :param lengths: tokens of each sample.
    """
    half, most = np.percentile(lengths, (50, 95))
    parts = [
        _many(survey.records, "record"),
        *([_many(survey.samples, "sample")] if survey.samples != survey.records else []),
        f"{survey.tokens:,} tokens",
        f"lengths: mean {lengths.mean():.1f}, median {half:.0f}, 95 % at most {most:.0f}, longest {lengths.max()}",
    ]
    if survey.labels:
        frequent = sorted(survey.labels.items(), key=lambda pair: (-pair[1], pair[0]))
        more = f" and {len(frequent) - _SHOWN} more" if len(frequent) > _SHOWN else ""
        parts.append("labels: " + ", ".join(f"{name} {count:,}" for name, count in frequent[:_SHOWN]) + more)
    return " · ".join(parts)


# --- findings ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Oddity:
    """One thing to tell."""

    name: str
    """The key of ``[data] lint`` that says how loudly."""
    message: str
    level: Level


def oddities(surveys: Mapping[str, Survey], settings: Lint) -> list[Oddity]:
    """What to tell of these sets, the loudest first.

    :param surveys: by the name of the set: ``training``, ``eval``, ``eval/clean``, ``test``. Training data that are
        streamed have none.
    """
    found = [pair for name, survey in surveys.items() for pair in _of_one(name, survey)]
    if (train := surveys.get(TRAINING)) is not None:
        found += _of_training(train)
        found += (pair for name, one in surveys.items() if name != TRAINING for pair in _between(train, name, one))
    told = [Oddity(name, message, getattr(settings, name)) for name, message in found]
    loudness = ("error", "warning", "note")
    return sorted((one for one in told if one.level != "off"), key=lambda one: loudness.index(one.level))


def _of_one(name: str, survey: Survey) -> Iterator[tuple[str, str]]:
    if survey.empty:
        yield "empty", f"{name}: {_many(survey.empty, 'record')} without text, the first at {survey.first_empty}"
    if survey.duplicates:
        share = _share(survey.duplicates, survey.records)
        yield (
            "duplicates",
            f"{name}: {survey.at_least}{_many(survey.duplicates, 'record')} with the texts of an earlier one ({share})",
        )
    if survey.full > _MUCH_CUT * survey.samples:
        share = _share(survey.full, survey.samples)
        yield "cut", f"{name}: {share} of the samples fill task.max_length, so their texts may be cut off"
    if survey.unknown > _MANY_UNKNOWN * survey.tokens:
        share = _share(survey.unknown, survey.tokens)
        yield "unknown_tokens", f"{name}: {share} of the tokens are unknown to the tokenizer"


def _of_training(train: Survey) -> Iterator[tuple[str, str]]:
    if train.contradictions:
        many = f"{train.at_least}{_many(train.contradictions, 'text')}"
        yield "contradictions", f"{TRAINING}: {many} with more than one label"
    if train.labels and max(train.labels.values()) >= _UNBALANCED * min(train.labels.values()):
        common = max(train.labels, key=lambda label: train.labels[label])  # type: ignore[index]
        rare = min(train.labels, key=lambda label: train.labels[label])  # type: ignore[index]
        yield (
            "balance",
            (
                f'{TRAINING}: {train.labels[common]:,} records are "{common}", {train.labels[rare]:,} "{rare}"; '
                'see [loss] class_weights = "balanced" and [training] sampler = "balanced"'
            ),
        )


def _between(train: Survey, name: str, survey: Survey) -> Iterator[tuple[str, str]]:
    leaked = int(np.isin(survey.texts, train.texts).sum())
    if leaked:
        share = _share(leaked, survey.records)
        yield (
            "leaks",
            f"{name}: {survey.at_least}{_many(leaked, 'record')} with texts of the training data too ({share})",
        )
    if train.labels and survey.labels:
        for labels, there, absent in (
            (train.labels.keys() - survey.labels.keys(), TRAINING, name),
            (survey.labels.keys() - train.labels.keys(), name, TRAINING),
        ):
            if labels:
                yield "unseen_labels", f"{there}: {_names(labels)} never occurs in {absent}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"


def _names(labels: Iterable[str]) -> str:
    names = sorted(labels)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f'"{name}"' for name in names[:_SHOWN]) + more
