"""Embeddings of texts: what belongs together is near (Reimers & Gurevych 2019, arXiv:1908.10084)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import numpy as np

from rtx_core import DataError, InputError, Layout, Outputs, Record, Sample, Task, TextRole, hookimpl
from rtx_core.header import counted
from rtx_plugins.tasks.common import chunks, described, quoted, text_of, truncating, value_of
from rtx_plugins.tasks.sentence_folder import sentence_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import tokenizers
    import torch
    from tokenizers import Encoding

    from rtx_core import Architecture, Head, SpecialTokens
    from rtx_core.components import TargetKind

_at_least_2 = attrs.validators.ge(2)


@attrs.frozen(kw_only=True)
class Prompts:
    """What is put before a text, as it stands, by the text's role."""

    anchor: str = ""
    """Before anchors and queries."""
    positive: str = ""
    """Before positives and documents."""
    negative: str | None = None
    """Before negatives; None: as before positives."""


@attrs.frozen(kw_only=True)
class MaxLengths:
    """Tokens kept of a text by its role, prompt and special tokens included."""

    anchor: int = attrs.field(validator=_at_least_2)
    """Of anchors and queries."""
    positive: int = attrs.field(validator=_at_least_2)
    """Of positives and documents."""
    negative: int | None = attrs.field(default=None, validator=attrs.validators.optional(_at_least_2))
    """Of negatives; None: as of positives."""


def _at_least_2_tokens(_instance: object, _attribute: attrs.Attribute[Any], value: int | MaxLengths | None) -> None:
    """Validator of a length that may be a table, whose own fields have their rules.

    :raises ValueError: it leaves no room.
    """
    if isinstance(value, int) and value < 2:  # noqa: PLR2004 - as every task's max_length
        raise ValueError(f"must be >= 2, got {value}")


@attrs.frozen(kw_only=True)
class Embedding(Task):
    """Pairs of texts that belong together, an anchor and its positive, perhaps with texts that are near but wrong.

    ``predict`` adds ``embedding``, a list of numbers, of whichever of the columns is there; where there are several of
    them, an object with an embedding for each (``anchor``, ``positive``, ``negative``, of a list of negatives a list;
    null where a record has none).
    """

    default_loss: ClassVar[str] = "in_batch_contrastive"
    default_head: ClassVar[str] = "pooling"
    default_metrics: ClassVar[tuple[str, ...]] = ("retrieval",)
    target_kind: ClassVar[TargetKind | None] = "embedding"
    pipeline_tag: ClassVar[str | None] = "sentence-similarity"

    anchor: str = "anchor"
    """The column of the text that asks: a query, a question, a sentence."""
    positive: str = "positive"
    """The column of the text that belongs to it: a passage, an answer, a paraphrase."""
    negative: str | None = None
    """The column of a text, or of a list of texts, that don't belong to the anchor though they are near it (hard
    negatives). A record may have none: no such column, null, or an empty text or list. None: no record has any."""
    prompts: Prompts = attrs.field(factory=Prompts)
    """Text put before each text by its role: ``{ anchor = "query: ", positive = "passage: " }``."""
    max_length: int | MaxLengths | None = attrs.field(  # type: ignore[assignment]  # the core asks for longest alone
        default=None, validator=_at_least_2_tokens
    )
    """Tokens kept of each text, prompt and special tokens included, of all or by role: ``{ anchor = 64, positive = 256
    }``; None takes what the architecture can."""

    @property
    def longest(self) -> int | None:
        """The longest of the lengths."""
        if not isinstance(self.max_length, MaxLengths):
            return self.max_length
        return max(self.max_length.anchor, self.max_length.positive, self.max_length.negative or 0)

    def check(self) -> Iterable[tuple[str, str]]:
        """Roles have columns of their own."""
        if self.positive == self.anchor:
            yield "positive", f'"{self.positive}" is the column of the anchor too'
        if self.negative in (self.anchor, self.positive):
            yield "negative", f'"{self.negative}" is the column of the anchor or the positive too'

    def columns(self, *, targets: bool) -> tuple[str, ...]:
        """The columns that a record must have; for ``predict`` that of the anchor, or of the positive instead."""
        return (self.anchor, self.positive) if targets else (self.anchor,)

    def texts(self, record: Record) -> Iterator[str]:
        """The texts of a record, with their prompts."""
        return (self.prompt(role) + text for role, text in self.texts_by_role(record, targets=True))

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:  # noqa: ARG002 - none is predicted
        """None: the head's features are what is predicted.

        :raises InputError: these records are for an evaluation, or the column of negatives is in none of them.
        """
        first: Record | None = None
        has_negatives = self.negative is None
        for record in records:
            if _is_judged(record):
                raise InputError(f"data.train: {record.file} holds queries and documents for an evaluation, no pairs")
            has_negatives = has_negatives or self.negative in record.values
            first = first or record
        if first is not None and not has_negatives:
            raise InputError(
                f'task.negative: no training record has a column "{self.negative}"; the first has '
                f"{quoted(first.values)}"
            )
        return Outputs(size=0)

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,  # noqa: ARG002 - there are none
        *,
        max_length: int,
        special_tokens: SpecialTokens,  # noqa: ARG002 - the tokenizer adds them
    ) -> EmbeddingPart:
        """The part that encodes and answers."""
        lengths = self.max_length
        if not isinstance(lengths, MaxLengths):
            lengths = MaxLengths(anchor=max_length, positive=max_length)
        wanted = {
            TextRole.ANCHOR: lengths.anchor,
            TextRole.POSITIVE: lengths.positive,
            TextRole.NEGATIVE: lengths.negative or lengths.positive,
        }
        made = {length: truncating(tokenizer, length) for length in set(wanted.values())}
        return EmbeddingPart(self, {role: made[length] for role, length in wanted.items()})

    def layout(self, architecture: Architecture, head: Head, max_length: int) -> Layout:
        """A folder that ``sentence-transformers`` loads too, where it has a module for what the head does."""
        modules = head.sentence_transformers_modules(architecture.hidden_size)
        if modules is None:
            return Layout(limits=("its embeddings are rtx's alone: sentence-transformers has no module for its head",))
        roles = (TextRole.ANCHOR, TextRole.POSITIVE, TextRole.NEGATIVE)
        lengths = self.max_length if isinstance(self.max_length, MaxLengths) else None
        return sentence_folder(
            modules,
            prompts=dict(zip(("query", "document", "negative"), map(self.prompt, roles), strict=True)),
            max_length=max_length,
            lengths=None if lengths is None else {"query": lengths.anchor, "document": lengths.positive},
            encoder_options=architecture.hf_encoder_options,
        )

    # --- records ------------------------------------------------------------------------------------------------------

    def prompt(self, role: TextRole) -> str:
        """What stands before a text of this role."""
        prompts = self.prompts
        negative = prompts.positive if prompts.negative is None else prompts.negative
        return {TextRole.ANCHOR: prompts.anchor, TextRole.POSITIVE: prompts.positive}.get(_side(role), negative)

    def texts_by_role(self, record: Record, *, targets: bool) -> list[tuple[TextRole, str]]:
        """The texts of a record without prompts: an anchor, its positive, its negatives; or a query or a document.

        :param targets: whether a pair is wanted; else whatever is there.
        :raises DataError: a text is missing or of the wrong type.
        """
        if _is_judged(record):
            return [(record.values["role"], text_of(record, "text"))]
        wanted = ((TextRole.ANCHOR, self.anchor), (TextRole.POSITIVE, self.positive))
        texts = [
            (role, text_of(record, column))
            for role, column in wanted
            if targets or record.values.get(column) is not None
        ]
        texts += [(TextRole.NEGATIVE, text) for text in self._negatives(record)]
        if not texts:
            value_of(record, self.anchor)  # says which columns there are
            raise DataError(record.file, record.line, f'column "{self.anchor}": expected text, got null')
        return texts

    def _negatives(self, record: Record) -> list[str]:
        value = None if self.negative is None else record.values.get(self.negative)
        if value is None or value == "":
            return []
        texts = list(value) if isinstance(value, list | tuple) else [value]
        for text in texts:
            if not isinstance(text, str):
                message = f'column "{self.negative}": expected a text or a list of texts, got {described(value)}'
                raise DataError(record.file, record.line, message)
        return texts


def _is_judged(record: Record) -> bool:
    """Whether a record is a query or a document of an evaluation; no file's value is a :class:`TextRole`."""
    return isinstance(record.values.get("role"), TextRole)


def _side(role: TextRole) -> TextRole:
    """The role in training that an evaluation's text has."""
    return {TextRole.QUERY: TextRole.ANCHOR, TextRole.DOCUMENT: TextRole.POSITIVE}.get(role, role)


def identity_of(text: str) -> int:
    """63 bits of a text's hash: equal texts have one, and of a billion different ones hardly any two."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@attrs.define(eq=False)
class EmbeddingPart:
    """The task with a tokenizer for each role, which truncates."""

    task: Embedding
    tokenizers: Mapping[TextRole, tokenizers.Tokenizer]
    texts_cut: int = attrs.field(default=0, init=False)
    """Texts that ``max_length`` cut since the last notes."""
    queries_left_out: int = attrs.field(default=0, init=False)
    """Queries for which nothing is relevant since the last notes."""

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:
        """Encode records, one sample each, in order: each text is a sequence, its target stands at its first token.

        A query for which no document is relevant has no sample.

        :param targets: False for records of which any text may be missing.
        :raises DataError: a text is missing, of the wrong type, or has no token.
        """
        wanted = self._found(records) if targets else records
        texts = ((record, self.task.texts_by_role(record, targets=targets)) for record in wanted)
        for chunk in chunks(texts, lambda item: sum(len(text) for _, text in item[1])):
            encodings = self._encoded([pair for _, pairs in chunk for pair in pairs])
            for record, pairs in chunk:
                yield _sample(record, pairs, [next(encodings) for _ in pairs])

    def _found(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            is_query = _is_judged(record) and record.values["role"] is TextRole.QUERY
            if is_query and not any(grade > 0 for _, grade in record.values["judgments"]):
                self.queries_left_out += 1
            else:
                yield record

    def _encoded(self, texts: Sequence[tuple[TextRole, str]]) -> Iterator[Encoding]:
        """An encoding for each text, in order, by the tokenizer of its role."""
        encoded: dict[TextRole, Iterator[Encoding]] = {}
        for side, tokenizer in self.tokenizers.items():
            own = [self.task.prompt(role) + text for role, text in texts if _side(role) is side]
            encoded[side] = iter(tokenizer.encode_batch_fast(own))
        for role, _ in texts:
            encoding = next(encoded[_side(role)])
            self.texts_cut += bool(encoding.overflowing)
            yield encoding

    def notes(self) -> Sequence[str]:
        """How many texts are not seen whole, and how many queries are left out."""
        cut, self.texts_cut = self.texts_cut, 0
        left_out, self.queries_left_out = self.queries_left_out, 0
        return [
            *([f"{counted(cut, 'text')} cut at max_length"] if cut else []),
            *([f"{left_out:,} queries have no relevant document and are left out"] if left_out else []),
        ]

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The embeddings ``[N, E]``."""
        return logits

    def answers(
        self,
        records: Sequence[Record],
        logits: Sequence[torch.Tensor],
        *,
        scores: bool,  # noqa: ARG002 - an embedding has none
    ) -> list[dict[str, Any]]:
        """``embedding``, from embeddings ``[N, E]`` of the texts of each record."""
        return [{"embedding": self._answer(*pair)} for pair in zip(records, logits, strict=True)]

    def _answer(self, record: Record, rows: torch.Tensor) -> list[float] | dict[str, Any]:
        roles = [role for role, _ in self.task.texts_by_role(record, targets=False)]
        embeddings = rows.float().tolist()
        if len(set(roles)) == 1 and roles[0] is not TextRole.NEGATIVE:
            only: list[float] = embeddings[0]
            return only
        # Each role that the task has, so that all such answers have the same columns in a table.
        named: dict[str, Any] = {"anchor": None, "positive": None}
        named |= {} if self.task.negative is None else {"negative": None}
        others = [role for role in roles if role is not TextRole.NEGATIVE]
        named |= {role.name.lower(): embedding for role, embedding in zip(others, embeddings, strict=False)}
        negatives = embeddings[len(others) :]
        if negatives:
            is_list = not isinstance(record.values[self.task.negative or ""], str)
            named["negative"] = negatives if is_list else negatives[0]
        return named


def _sample(record: Record, texts: Sequence[tuple[TextRole, str]], encodings: Sequence[Encoding]) -> Sample:
    """The texts of a record as sequences end to end; a query's judgments stand where its own target does."""
    lengths = [len(encoding.ids) for encoding in encodings]
    if 0 in lengths:
        raise DataError(record.file, record.line, "a text has no token, so it can't be embedded")
    starts = np.cumsum([0, *lengths[:-1]])
    if _is_judged(record):
        targets = [(texts[0][0], record.values["number"], 0)]
        targets += [(TextRole.JUDGMENT, *judgment) for judgment in record.values.get("judgments", ())]
        starts = np.repeat(starts, len(targets))
    else:
        targets = [(role, identity_of(text), 0) for role, text in texts]
    return Sample(
        input_ids=np.concatenate([np.array(encoding.ids, dtype=np.int32) for encoding in encodings]),
        token_types=np.concatenate([np.array(encoding.type_ids, dtype=np.uint8) for encoding in encodings]),
        target_positions=starts.astype(np.int32),
        targets=np.array(targets, dtype=np.int64),
        lengths=tuple(lengths) if len(lengths) > 1 else (),
    )


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"embedding": Embedding}
