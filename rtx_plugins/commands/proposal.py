"""From what the columns of a file hold to the text of a pipeline, with a comment on each choice."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import attrs
import tomlkit

from rtx_core import InputError
from rtx_plugins.commands.columns import MOST_ROWS, is_second_text, most_frequent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rtx_plugins.commands.columns import Column, Table

_FEWEST_ROWS = 20
_PIECES_A_WORD = 1.4
"""Tokens that a vocabulary of a few thousand entries makes of a word or punctuation mark of English, with some room."""
_SPECIAL_TOKENS = 3
_LONGEST = 512
"""Positions of the presets."""
_BALANCED = 3.0
"""The most frequent label over the rarest: beyond this, accuracy says little."""
_SHOWN_LABELS = 5
_SHOWN_CHARACTERS = 30
_FEW_ROWS = 400
"""Below this a tenth for evaluation is too small to measure on."""
_SOME_ROWS = 2_000
_MANY_ROWS = 50_000
_PATIENCE = 8
_NO_DROPOUT = (
    "# Hidden words differ in each epoch, so a short run has nothing to learn by heart.",
    "hidden_dropout_prob = 0.0",
    "attention_probs_dropout_prob = 0.0",
)


@attrs.frozen(kw_only=True)
class Finding:
    """What can be learnt from a table, and from which columns."""

    task: str
    read: Sequence[Column]
    """The columns whose words the model reads."""
    target: Column | None
    """The column of labels or tags."""
    keys: Mapping[str, Any]
    """The keys of ``[task]`` that name columns."""
    reasons: Sequence[str]
    """Why, in sentences."""
    note: str | None = None
    """What the person should know before they trust it."""


@attrs.frozen(kw_only=True)
class Files:
    """Where the data are, how they are read, and where the pipeline is written."""

    data: Path
    type: str
    """The data plugin."""
    settings: Mapping[str, str]
    """Further keys of ``[data]``."""
    output: Path


@attrs.frozen(kw_only=True)
class Proposal:
    """A pipeline for a file of data."""

    text: str
    """What to write."""
    note: str | None
    """What to say beside it, on one line."""


def propose(files: Files, table: Table) -> Proposal:
    """Make a pipeline for a file of data.

    :raises InputError: there is nothing in the file to learn from.
    """
    data = files.data
    if table.rows < _FEWEST_ROWS:
        message = f"{data}: {table.rows} rows are too few to learn from and to measure on; {_FEWEST_ROWS} are the least"
        raise InputError(message)
    finding = find(data, table)
    recipe = Recipe.of(finding, table.rows)
    rows = f"{table.rows:,} rows" if table.complete else f"the first {MOST_ROWS:,} rows"
    sections = (
        [
            f"# Written by `rtx init` after a look at {rows} of {data.name}. Change what you like:",
            "# `rtx check` finds mistakes, `rtx plan` shows what would be done, `rtx run` does it.",
        ],
        _task(finding),
        list(_data(files, finding, table)),
        *recipe.sections(finding),
    )
    return Proposal(text="\n\n".join("\n".join(section) for section in sections) + "\n", note=finding.note)


# --- task -------------------------------------------------------------------------------------------------------------


def find(data: Path, table: Table) -> Finding:
    """What a table lends itself to: tags for words, labels or numbers for texts, else language alone.

    :raises InputError: no column holds text.
    """
    lists = table.lists()
    if len(lists) > 1 and lists[0].tokens == lists[1].tokens:
        return _token_classification(lists[0], lists[1])
    labels = table.labels()
    if labels and (texts := table.texts(without=labels[:1])):
        _refuse_missing_header(data, texts[0], labels[0])
        return _sequence_classification(labels, texts, table)
    quantities = table.quantities()
    if quantities and (texts := table.texts(without=quantities[:1])):
        return _regression(quantities, texts, table)
    if not (texts := table.texts()):
        known = ", ".join(f'"{column.name}"' for column in table.columns) or "none that every row has"
        raise InputError(f"{data}: no column holds text to learn from; the columns are {known}")
    return _masked_lm(texts[0], table)


def _token_classification(words: Column, tags: Column) -> Finding:
    return Finding(
        task="token_classification",
        read=[words],
        target=tags,
        keys={"words": words.name, "tags": tags.name},
        reasons=[
            f"Two columns hold lists of the same lengths: {_quoted(words.name)} has more different items, so it is the",
            f"words; {_quoted(tags.name)} has {len(tags.values)} ({_counts(tags)}), the tags.",
        ],
    )


def _sequence_classification(labels: Sequence[Column], texts: Sequence[Column], table: Table) -> Finding:
    label = labels[0]
    read, why = _read(texts, table)
    reasons = [f"{_quoted(label.name)} has {len(label.values)} different values: {_counts(label)}. So it is the label."]
    return Finding(
        task="sequence_classification",
        read=read,
        target=label,
        keys={"text": _names(read), "label": label.name},
        reasons=[*reasons, *_others(labels), why],
    )


def _regression(quantities: Sequence[Column], texts: Sequence[Column], table: Table) -> Finding:
    target = quantities[0]
    read, why = _read(texts, table)
    return Finding(
        task="regression",
        read=read,
        target=target,
        keys={"text": _names(read), "target": target.name},
        reasons=[
            f"No column can be a label, but {_quoted(target.name)} holds many different numbers. So it is the target.",
            *_others(quantities),
            why,
        ],
    )


def _others(candidates: Sequence[Column]) -> list[str]:
    others = ", ".join(_quoted(column.name) for column in candidates[1:])
    return [f"Others could be it too: {others}."] if others else []


def _read(texts: Sequence[Column], table: Table) -> tuple[list[Column], str]:
    """The text or the pair of texts to read, and why."""
    pair = [column for column in table.columns if column in texts[:2]]
    if len(pair) > 1 and is_second_text(texts[0], texts[1]):
        names = " and ".join(_quoted(column.name) for column in pair)
        return pair, f"{names} both hold free text, so they are read as a pair. For one alone write its name only."
    return [texts[0]], f"{_quoted(texts[0].name)} holds the most text, {texts[0].mean_words:.0f} words a row."


def _names(read: Sequence[Column]) -> str | list[str]:
    """The key ``text`` of these columns."""
    return read[0].name if len(read) == 1 else [column.name for column in read]


def _masked_lm(text: Column, table: Table) -> Finding:
    reasons = [
        f"{_quoted(text.name)} holds text, {text.mean_words:.0f} words a row. The model learns to fill in words."
    ]
    note = None
    if len(table.columns) > 1:
        reasons.append("No column has few enough different values to be a label.")
        counts = [_distinct(column) for column in table.columns if column is not text][:_SHOWN_LABELS]
        note = (
            f"no label was found, so the pipeline learns language alone (masked_lm): {', '.join(counts)} "
            f"in {table.rows:,} rows"
        )
    return Finding(task="masked_lm", read=[text], target=None, keys={"text": text.name}, reasons=reasons, note=note)


def _distinct(column: Column) -> str:
    more = "more than " if column.many else ""
    return f"{_quoted(column.name)} has {more}{len(column.values):,} different values"


def _refuse_missing_header(data: Path, text: Column, label: Column) -> None:
    """A label for a name beside a name of several words: the first line is a row like the others."""
    if label.name in label.values and len(text.name.split()) > 1:
        raise InputError(
            f'{data}: the first line must name the columns, but "{label.name}" stands in other rows too; '
            "put a line such as text,label on top"
        )


def _task(finding: Finding) -> list[str]:
    return [
        "[task]",
        *map(_comment, finding.reasons),
        f"type = {_toml(finding.task)}",
        *(f"{key} = {_toml(value)}" for key, value in finding.keys.items()),
        *_max_length(finding),
    ]


def _max_length(finding: Finding) -> Iterator[str]:
    words = sum(column.tokens_of(0.99) for column in finding.read)
    wanted = math.ceil((words * _PIECES_A_WORD + _SPECIAL_TOKENS) / 16) * 16
    yield _comment(f"99 % of the rows have at most {words} words and punctuation marks, each a token or two.")
    if finding.task == "masked_lm":
        yield _comment("What is longer becomes several sequences.")
        yield f"max_length = {min(max(wanted, 64), 128)}"
    else:
        yield _comment("What is longer is cut off; shorter sequences are faster.")
        yield f"max_length = {min(max(wanted, 16), _LONGEST)}"


# --- data -------------------------------------------------------------------------------------------------------------


def _data(files: Files, finding: Finding, table: Table) -> Iterator[str]:
    yield "[data]"
    yield f"type = {_toml(files.type)}"
    yield from (f"{key} = {_toml(value)}" for key, value in files.settings.items())
    share = 0.2 if table.rows < _FEW_ROWS else 0.1
    stratified = finding.task == "sequence_classification"
    yield _comment(
        f"{share:.0%} of the rows measure the model while it trains, and {share / 2:.0%} once at the end. Chosen by"
    )
    yield _comment(
        "chance that always falls the same"
        + (", each label by its share." if stratified else ". Files of your own go into [data.eval] and [data.test].")
    )
    split = f"eval = {share}, test = {share / 2}" + (", stratify = true" if stratified else "")
    yield f"split = {{ {split} }}"
    yield ""
    yield "[data.train]"
    # Relative to the pipeline's folder, so that both can be moved together.
    yield f"files = [{_toml(os.path.relpath(files.data, files.output.parent))}]"


# --- how to learn it --------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Recipe:
    """Sizes, rates and durations that work from scratch; measured on short texts, from 300 to 8,000 of them."""

    preset: str
    vocab_size: int
    lr: float
    epochs: int
    batch_size: int

    @classmethod
    def of(cls, finding: Finding, rows: int) -> Recipe:
        """A model learns nothing in a few hundred steps, so few rows are read more often than many."""
        if finding.task == "masked_lm":
            return cls(preset="tiny", vocab_size=8000, lr=2e-3, epochs=math.ceil(20_000 / rows) + 3, batch_size=16)
        many, some = rows > _MANY_ROWS, rows > _SOME_ROWS
        return cls(
            preset="mini" if many else "tiny",
            vocab_size=16_000 if many else 8_000 if some else 4_000,
            lr=1e-3 if some else 5e-4,
            epochs=math.ceil(10_000 / rows) + 4,
            batch_size=64 if some else 16,
        )

    def sections(self, finding: Finding) -> Iterator[list[str]]:
        """The tables from ``[tokenizer]`` on."""
        yield [
            "[tokenizer]",
            _comment("Pieces of words, learnt from the training rows: there are no weights that would need others."),
            'type = "wordpiece"',
            f"vocab_size = {self.vocab_size}",
        ]
        yield [
            "[architecture]",
            _comment("A small BERT that starts from nothing. With pretrained weights in a folder, write"),
            _comment('from_pretrained = "FOLDER" instead of these two lines, take [tokenizer] away, and lr = 3e-5.'),
            'type = "bert"',
            f'preset = "{self.preset}"',
            *(_NO_DROPOUT if finding.task == "masked_lm" else ()),
        ]
        yield [
            "[optimizer]",
            _comment("A small model from scratch learns best at ten times the rate that pretrained weights bear."),
            'type = "adamw"',
            f"lr = {self.lr:g}",
        ]
        yield [
            "[scheduler]",
            _comment("The rate rises for a tenth of the run, then falls to 0 along half a cosine."),
            'type = "cosine"',
            'warmup = "10%"',
        ]
        yield [
            "[training]",
            _comment("A model needs some hundred steps to learn anything, so few rows are read more often than many."),
            f'duration = "{self.epochs} epochs"',
            f"batch_size = {self.batch_size}",
            _comment("It is measured twenty times, and the kept model is the best by this value."),
            'eval_every = "5%"',
            f"monitor = {_toml(_monitor(finding))}",
        ]
        yield [
            "[callbacks.early_stopping]",
            _comment("When so many evaluations in a row bring nothing better, the run stops."),
            f"patience = {_PATIENCE}",
        ]
        yield [
            "[callbacks.checkpoint]",
            _comment("A run that is interrupted goes on from here with --resume. Each new best is saved anyway."),
            'every = "20%"',
        ]


def _monitor(finding: Finding) -> str:
    if finding.target is None:
        return "eval/loss"
    if finding.task == "token_classification":
        return "eval/f1_macro" if "O" in finding.target.values else "eval/accuracy"
    if finding.task == "regression":
        return "eval/mae"
    counts = finding.target.values.values()
    return "eval/f1_macro" if max(counts) > _BALANCED * min(counts) else "eval/accuracy"


# --- words ------------------------------------------------------------------------------------------------------------


def _comment(text: str) -> str:
    return f"# {text}"


def _toml(value: Any) -> str:
    return str(tomlkit.item(value).as_string())


def _quoted(name: str) -> str:
    """A name in a comment: on one line, not too long."""
    return _toml(name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…")


def _counts(column: Column) -> str:
    shown = [f"{_quoted(value)} {count:,}" for value, count in most_frequent(column, _SHOWN_LABELS)]
    return ", ".join(shown) + (", …" if len(column.values) > _SHOWN_LABELS else "")
