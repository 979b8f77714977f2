"""Learning language from text alone: predict tokens that were hidden (Devlin et al. 2019, arXiv:1810.04805).

Whole words are hidden as in BERT's later models, spans of words as in SpanBERT (Joshi et al. 2020, arXiv:1907.10529).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs
import numpy as np
from attrs.validators import and_, ge, gt, le

from rtx_core import InputError, Outputs, Record, Sample, Task, hookimpl
from rtx_core.chance import generator
from rtx_plugins.tasks.common import sample_of, special_ids, truncating
from rtx_plugins.tasks.language import LanguagePart, LanguageTask
from rtx_plugins.tasks.words import begins_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import tokenizers

    from rtx_core import SpecialTokens

Masking = Literal["token", "whole_word", "span"]

_SPAN_STOP = 0.2
_LONGEST_SPAN = 10
SPAN_LENGTHS = np.arange(1, _LONGEST_SPAN + 1)
"""Words of a span."""
SPAN_CHANCES = (1.0 - _SPAN_STOP) ** (SPAN_LENGTHS - 1.0) * _SPAN_STOP / (1.0 - (1.0 - _SPAN_STOP) ** _LONGEST_SPAN)
"""How likely each length is: geometric with p = 0.2, up to 10 words, 3.8 on average."""
_MEAN_SPAN = float(SPAN_LENGTHS @ SPAN_CHANCES)


@attrs.frozen(kw_only=True)
class Replace:
    """What the tokens become that were chosen to be predicted; the rest of them stay, since no text that the model is
    used on later holds the mask.
    """

    mask: float = attrs.field(default=0.8, validator=and_(ge(0.0), le(1.0)))
    """The share that the mask token replaces."""
    random: float = attrs.field(default=0.1, validator=and_(ge(0.0), le(1.0)))
    """The share that any other token of the vocabulary replaces, each equally likely."""


@attrs.frozen(kw_only=True)
class MaskedLm(LanguageTask):
    """Texts without labels; some of their tokens are chosen to be predicted, other ones in each epoch.

    Of the chosen 80 % are masked, 10 % replaced by a random token and 10 % left alone. A text that is longer than
    ``max_length`` becomes several sequences.
    """

    default_metrics: ClassVar[tuple[str, ...]] = ("perplexity", "accuracy")
    pipeline_tag: ClassVar[str | None] = "fill-mask"

    mask_probability: float = attrs.field(default=0.15, validator=[gt(0.0), le(1.0)])
    """Chance of each token to be predicted, however they are chosen; special tokens never are."""
    masking: Masking = "token"
    """What is chosen and replaced together. ``token``: each by itself; ``whole_word``: all pieces of a word, where the
    tokenizer's vocabulary tells them apart (``##``, ``Ġ``, ``▁``); ``span``: 1 to 10 whole words in a row, of
    geometric length (p = 0.2), as SpanBERT."""
    replace: Replace = attrs.field(factory=Replace)
    """What becomes of the chosen tokens: ``replace = { mask = 0.8, random = 0.1 }``."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Shares of one whole."""
        if self.replace.mask + self.replace.random > 1.0:
            yield "replace", f"mask {self.replace.mask} and random {self.replace.random} are more than 1 together"

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,  # noqa: ARG002 - the vocabulary is known
        *,
        max_length: int,
        special_tokens: SpecialTokens,
    ) -> MaskedLmPart:
        """The part that encodes and masks.

        :raises InputError: the tokenizer has no mask token, or doesn't tell where words begin.
        """
        begins = None
        if self.masking != "token":
            begins = begins_word(tokenizer)
            if begins is None:
                raise InputError(
                    f'task.masking: "{self.masking}" needs a vocabulary that marks where words begin or go on '
                    '(##, Ġ, ▁), and this tokenizer\'s does not; write masking = "token"'
                )
        return MaskedLmPart(
            self.text,
            truncating(tokenizer, max_length),
            self,
            Vocabulary.of(tokenizer, special_tokens.mask),
            begins,
        )


@attrs.frozen(eq=False)
class Vocabulary:
    """What masking has to know of a tokenizer."""

    mask: int
    """Id of the mask token."""
    ordinary: np.ndarray
    """int32: the ids of all tokens that are not special, rising."""
    is_ordinary: np.ndarray
    """bool, by id."""

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer, mask: str) -> Vocabulary:
        """Look at a tokenizer's special tokens, of which one masks.

        :raises InputError: there is no such token.
        """
        special = special_ids(tokenizer)
        if mask not in special:
            there = ", ".join(special) or "none"
            raise InputError(
                f"task masked_lm: the tokenizer needs the mask token {mask}; its special tokens are {there}"
            )
        numbers = np.array(sorted(tokenizer.get_vocab().values()), dtype=np.int32)
        ordinary = np.setdiff1d(numbers, np.array(list(special.values()), dtype=np.int32))
        is_ordinary = np.zeros(int(numbers[-1]) + 1, dtype=bool)
        is_ordinary[ordinary] = True
        return cls(special[mask], ordinary, is_ordinary)


@attrs.frozen(eq=False)
class MaskedLmPart(LanguagePart):
    """The task with a tokenizer that cuts long texts."""

    task: MaskedLm
    vocabulary: Vocabulary
    begins: np.ndarray | None
    """bool, by id: tokens that begin a word; None where each is chosen by itself."""

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:  # noqa: ARG002
        """Encode records in order; a long text becomes consecutive sequences, each with the special tokens around it.

        They have no targets before :meth:`prepare`.

        :raises DataError: there is no text, with its file and line.
        """
        for pieces in self.pieces(records):
            for piece in pieces:
                yield sample_of(piece, [], [])

    def prepare(self, sample: Sample, seed: int) -> Sample:
        """Choose tokens, replace most of them, and make those that were there the targets."""
        chance = generator(seed, "mask")
        maskable = np.flatnonzero(self.vocabulary.is_ordinary[sample.input_ids])
        units = self._units(sample, maskable, chance)
        chosen, units = maskable[units >= 0], units[units >= 0]
        treatment = chance.random(units.max(initial=-1) + 1)[units]
        mask, random = self.task.replace.mask, self.task.replace.random
        masked = chosen[treatment < mask]
        swapped = chosen[(treatment >= mask) & (treatment < mask + random)]
        input_ids = sample.input_ids.copy()
        input_ids[masked] = self.vocabulary.mask
        input_ids[swapped] = self.vocabulary.ordinary[chance.integers(len(self.vocabulary.ordinary), size=len(swapped))]
        return attrs.evolve(
            sample,
            input_ids=input_ids,
            target_positions=chosen.astype(np.int32),
            targets=sample.input_ids[chosen].astype(np.int64),
        )

    def _units(self, sample: Sample, maskable: np.ndarray, chance: np.random.Generator) -> np.ndarray:
        """For each maskable token the number of what is chosen with it, −1 where it is not chosen."""
        share = self.task.mask_probability
        if self.begins is None:
            return _singly(len(maskable), share, chance)
        words = words_of_sample(sample, maskable, self.begins)
        count = int(words.max(initial=-1)) + 1
        choose = _singly if self.task.masking == "whole_word" else in_spans
        units: np.ndarray = choose(count, share, chance)[words]
        return units


def words_of_sample(sample: Sample, maskable: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The number of the word, from 0, that each token at the positions ``maskable`` belongs to.

    A token goes on with the word of the one before it, unless that is special or of another sequence.
    """
    sequence = np.repeat(np.arange(len(sample.sequence_lengths)), sample.sequence_lengths)[maskable]
    first = begins[sample.input_ids[maskable]]
    first[:1] = True
    first[1:] |= (np.diff(maskable) > 1) | (np.diff(sequence) > 0)
    words: np.ndarray = np.cumsum(first) - 1
    return words


def _singly(count: int, share: float, chance: np.random.Generator) -> np.ndarray:
    """Choose each of so many things by itself: its own number, or −1."""
    return np.where(chance.random(count) < share, np.arange(count), -1)


def in_spans(words: int, share: float, chance: np.random.Generator) -> np.ndarray:
    """Choose spans of words: the number of each word's span, or −1.

    Spans and gaps between them alternate as a renewal process that has always run, so that each word, the first and the
    last too, is chosen with probability ``share`` exactly. After a word that is free, and after a span, a span begins
    with probability q; with spans of mean length μ the share of chosen words is qμ / (qμ + 1 − q).
    """
    begin = share / (share + _MEAN_SPAN * (1.0 - share))
    cycles = words + 1  # each has at least one word
    lengths = chance.choice(SPAN_LENGTHS, size=cycles, p=SPAN_CHANCES)
    gaps = np.minimum(chance.geometric(begin, size=cycles) - 1, words)
    if chance.random() < share:
        # The first word is inside a span: so many of its words are left as an inspection at random finds.
        at_least = SPAN_CHANCES[::-1].cumsum()[::-1]
        gaps[0], lengths[0] = 0, chance.choice(SPAN_LENGTHS, p=at_least / at_least.sum())
    else:
        gaps[0] += 1
    needed = int(np.searchsorted(np.cumsum(gaps + lengths), words)) + 1
    numbers = np.stack([np.full(needed, -1), np.arange(needed)], axis=1).ravel()
    repeats = np.stack([gaps[:needed], lengths[:needed]], axis=1).ravel()
    spans: np.ndarray = np.repeat(numbers, repeats)[:words]
    return spans


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"masked_lm": MaskedLm}
