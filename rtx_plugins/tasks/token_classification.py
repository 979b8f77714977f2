"""One label for each word of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from rtx_core import DataError, InputError, Layout, Outputs, Record, Task, hookimpl
from rtx_plugins.tasks.common import (
    Labels,
    label_of,
    list_of,
    names_once,
    outputs_of,
    sorted_labels,
    text_of,
    unknown_label,
    words_of,
)
from rtx_plugins.tasks.long_texts import Reader, long_text_limits, long_text_rules
from rtx_plugins.tasks.tagging import SpansPart, WordsPart, labelled_spans
from rtx_plugins.tasks.tags import OUTSIDE, Scheme, Tag, all_tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import tokenizers

    from rtx_core import Architecture, Head, SpecialTokens
    from rtx_core.components import TargetKind


@attrs.frozen(kw_only=True)
class TokenClassification(Task):
    """Lists of words and lists of tags, equally long, or texts and spans of their characters.

    A word's tag is learnt and predicted at its first sub-word. One that ``max_length`` cuts off, or of which the
    tokenizer leaves nothing (a lone control character), is not learnt and not measured; the others keep their own tags.

    For words ``predict`` adds the column ``prediction``, one tag for each, with a scheme ``entities`` (start, end and
    label; the end is the first word after it), and, where scores are wanted, ``scores`` with the probability of each
    tag for each word. For a text it adds ``spans``: start and end (of characters), label and text. The score of an
    entity or a span is the mean probability of its words' tags.
    """

    default_loss: ClassVar[str] = "cross_entropy"
    default_head: ClassVar[str] = "linear"
    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "f1")
    target_kind: ClassVar[TargetKind | None] = "class"
    pipeline_tag: ClassVar[str | None] = "token-classification"

    words: str = "words"
    """The column of the words, a list of texts."""
    tags: str = "tags"
    """The column of the tags, a list as long as that of the words."""
    text: str | None = None
    """The column of a text, where records have texts and spans. Its words are those of the tokenizer."""
    spans: str = "spans"
    """The column of a text's spans: a list of ``{start, end, label}`` that don't overlap. They count characters from 0,
    ``end`` is the first one after the span. A word that a span cuts belongs to it as a whole."""
    scheme: Literal["IOB2", "IOBES", "plain"] | None = None
    """What tags mean together: ``IOB2`` (B-PER, I-PER, O), ``IOBES`` (also E-PER, S-PER), or ``plain``: each stands
    alone. None: ``plain`` for tags, and ``IOB2`` for the tags that are made of spans."""
    labels: tuple[str, ...] | None = attrs.field(default=None, validator=names_once)
    """The tags in the order of the model's outputs, or the labels of spans. None: those of the training data, sorted.
    ``predict`` gives a word that the model doesn't see the tag ``O`` where there is a scheme or that is one of them,
    else the most frequent."""
    long_text: Literal["truncate", "windows"] = "truncate"
    """What is read of a text that is longer than ``max_length``: its beginning, or all of it in windows. Each word is
    learnt, measured and predicted once: in the window where it has the most context on its shorter side."""
    stride: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(0)))
    """Tokens that neighbouring windows share; None is a quarter of those of the text in a window."""

    @property
    def span_scheme(self) -> Scheme | None:
        """The scheme; None where it is plain."""
        if self.scheme is None:
            return None if self.text is None else "IOB2"
        return None if self.scheme == "plain" else self.scheme

    @property
    def own_metrics(self) -> tuple[str, ...]:
        """Figures of tags where each stands alone, else of entities."""
        return self.default_metrics if self.span_scheme is None else ("accuracy", "entities")

    def check(self) -> Iterable[tuple[str, str]]:
        """Words and tags, or a text and spans; labels that fit the scheme; only windows have a stride."""
        yield from long_text_rules(self.long_text, self.stride, self.max_length)
        if self.text is None:
            yield from self._rules_for_words()
        else:
            yield from self._rules_for_text(self.text)

    def _rules_for_words(self) -> Iterator[tuple[str, str]]:
        if self.words == self.tags:
            yield "tags", f'"{self.tags}" is the column of the words too'
        if self.spans != _default("spans"):
            yield "spans", 'spans are of a text; name its column too, as text = "text"'
        if self.labels is not None and len(self.labels) < 2:  # noqa: PLR2004 - with one class there is nothing to decide
            yield "labels", "expected at least two labels"
        if self.span_scheme is not None:
            for label in self.labels or ():
                try:
                    Tag.parse(label, self.span_scheme)
                except ValueError as error:
                    yield "labels", str(error)

    def _rules_for_text(self, text: str) -> Iterator[tuple[str, str]]:
        for field in ("words", "tags"):
            if getattr(self, field) != _default(field):
                yield field, "a record has words and tags, or a text and spans; leave this out, or text"
        if self.spans == text:
            yield "spans", f'"{text}" is the column of the text too'
        if self.scheme == "plain":
            yield "scheme", "spans need IOB2 or IOBES, or two that touch would be one"

    def layout(self, architecture: Architecture, head: Head, max_length: int) -> Layout:  # noqa: ARG002 - by the task alone
        """A long text may be read otherwise than by others."""
        return Layout(limits=long_text_limits(self.long_text))

    def columns(self, *, targets: bool) -> tuple[str, ...]:
        """The columns that a record must have."""
        if self.text is None:
            return (self.words, self.tags) if targets else (self.words,)
        return (self.text, self.spans) if targets else (self.text,)

    def texts(self, record: Record) -> Iterator[str]:
        """The text of a record, or its words as one."""
        yield " ".join(words_of(record, self.words)) if self.text is None else text_of(record, self.text)

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:  # noqa: ARG002 - not predicted
        """The tags and how often each occurs in the training data, on words that are cut off too; of spans the tags
        that they may need, which are not counted, since their words are not known yet.

        :raises InputError: there are no spans, or fewer than two tags.
        """
        scheme = self.span_scheme
        if self.text is None or scheme is None:
            labels = ((tag, record) for record in records for tag in self._tags(record))
            return attrs.evolve(outputs_of(labels, self.tags, self.labels), scheme=scheme)
        found = set()
        for record in records:
            for span in labelled_spans(record, self.spans, text_of(record, self.text)):
                if self.labels is not None and span.label not in self.labels:
                    raise unknown_label(span.label, self.labels, record, self.spans)
                found.add(span.label)
        if not found:
            raise InputError(f'task: column "{self.spans}" of the training data has no span; at least one is needed')
        names = all_tags(self.labels or sorted_labels(found), scheme)
        return Outputs(size=len(names), labels=names, scheme=scheme)

    def _tags(self, record: Record) -> Iterator[str]:
        """A record's tags.

        :raises DataError: one is none of the scheme.
        """
        for value in list_of(record, self.tags, "tags"):
            tag = label_of(value, record, self.tags)
            if self.span_scheme is not None:
                try:
                    Tag.parse(tag, self.span_scheme)
                except ValueError as error:
                    raise DataError(record.file, record.line, f'column "{self.tags}": {error}') from None
            yield tag

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,
        *,
        max_length: int,
        special_tokens: SpecialTokens,  # noqa: ARG002 - the tokenizer adds them
    ) -> WordsPart | SpansPart:
        """The part that encodes and answers."""
        reader = Reader.of(tokenizer, max_length, self.long_text, self.stride, with_words=True)
        labels, scheme = Labels.of(outputs), self.span_scheme
        if self.text is None or scheme is None:
            return WordsPart(reader, labels, scheme, self.words, self.tags, _fallback(outputs, scheme))
        return SpansPart(reader, labels, scheme, self.text, self.spans)


def _default(field: str) -> str:
    """What a column is called unless it is written."""
    return str(attrs.fields_dict(TokenClassification)[field].default)


def _fallback(outputs: Outputs, scheme: Scheme | None) -> str:
    """The tag of a word that the model didn't see."""
    names = outputs.labels or ()
    counts = outputs.counts or (0,) * len(names)
    outside = str(OUTSIDE)
    return outside if scheme is not None or outside in names else names[counts.index(max(counts))]


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"token_classification": TokenClassification}
