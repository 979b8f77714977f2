"""Learning language from text alone: predict tokens that were hidden (Devlin et al. 2019, arXiv:1810.04805)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

import attrs
import numpy as np

from rtx_core import InputError, Outputs, Record, Sample, Task, hookimpl
from rtx_core.chance import generator
from rtx_plugins.tasks.common import chunks, sample_of, special_ids, text_of, truncating

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import tokenizers
    import torch

    from rtx_core import SpecialTokens
    from rtx_core.components import TargetKind

# Of the chosen tokens 80 % are hidden, 10 % become another and 10 % stay, since no text that a model is used on later
# holds the mask.
_MASKED = 0.8
_MASKED_OR_RANDOM = 0.9


@attrs.frozen(kw_only=True)
class MaskedLm(Task):
    """Texts without labels; some of their tokens are chosen to be predicted, other ones in each epoch.

    Of the chosen 80 % are masked, 10 % replaced by a random token and 10 % left alone. A text that is longer than
    ``max_length`` becomes several sequences.
    """

    default_loss: ClassVar[str] = "cross_entropy"
    default_head: ClassVar[str] = "linear"
    default_metrics: ClassVar[tuple[str, ...]] = ("perplexity",)
    target_kind: ClassVar[TargetKind | None] = "class"

    text: str = "text"
    """The column of the text."""
    mask_probability: float = attrs.field(default=0.15, validator=[attrs.validators.gt(0.0), attrs.validators.le(1.0)])
    """Chance of each token to be predicted, independent of the others; special tokens never are."""

    def columns(self, *, targets: bool) -> tuple[str, ...]:  # noqa: ARG002 - the text is its own target
        """The columns that a record must have."""
        return (self.text,)

    def texts(self, record: Record) -> Iterator[str]:
        """The text of a record."""
        yield text_of(record, self.text)

    def outputs(self, records: Iterable[Record], vocab_size: int) -> Outputs:  # noqa: ARG002 - the vocabulary is known
        """One output for each entry of the vocabulary."""
        return Outputs(size=vocab_size)

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,  # noqa: ARG002 - the vocabulary is known
        *,
        max_length: int,
        special_tokens: SpecialTokens,
    ) -> MaskedLmPart:
        """The part that encodes and masks.

        :raises InputError: the tokenizer has no mask token.
        """
        return MaskedLmPart(
            self.text,
            self.mask_probability,
            truncating(tokenizer, max_length),
            Vocabulary.of(tokenizer, special_tokens.mask),
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
class MaskedLmPart:
    """The task with a tokenizer that cuts long texts."""

    column: str
    mask_probability: float
    tokenizer: tokenizers.Tokenizer
    vocabulary: Vocabulary

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:  # noqa: ARG002
        """Encode records in order; a long text becomes consecutive sequences, each with the special tokens around it.

        They have no targets before :meth:`prepare`.

        :raises DataError: there is no text, with its file and line.
        """
        for texts in chunks((text_of(record, self.column) for record in records), len):
            for encoding in self.tokenizer.encode_batch_fast(texts):
                for piece in (encoding, *encoding.overflowing):
                    yield sample_of(piece, [], [])

    def notes(self) -> Sequence[str]:
        """Nothing is lost."""
        return ()

    def prepare(self, sample: Sample, seed: int) -> Sample:
        """Choose tokens, replace most of them, and make those that were there the targets."""
        chance = generator(seed, "mask")
        maskable = np.flatnonzero(self.vocabulary.is_ordinary[sample.input_ids])
        chosen = maskable[chance.random(len(maskable)) < self.mask_probability]
        treatment = chance.random(len(chosen))
        masked = chosen[treatment < _MASKED]
        swapped = chosen[(treatment >= _MASKED) & (treatment < _MASKED_OR_RANDOM)]
        input_ids = sample.input_ids.copy()
        input_ids[masked] = self.vocabulary.mask
        input_ids[swapped] = self.vocabulary.ordinary[chance.integers(len(self.vocabulary.ordinary), size=len(swapped))]
        return attrs.evolve(
            sample,
            input_ids=input_ids,
            target_positions=chosen.astype(np.int32),
            targets=sample.input_ids[chosen].astype(np.int64),
        )

    def predictions(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits ``[N, K]``."""
        return logits

    def answers(self, records: Sequence[Record], logits: Sequence[torch.Tensor], *, scores: bool) -> NoReturn:  # noqa: ARG002
        """Refuse: the model learns language, not an answer.

        :raises InputError: always.
        """
        raise InputError(
            "predict: a model of the task masked_lm has no answers to give; train a task with labels on top of it "
            '([architecture] from_pretrained = "run:NAME")'
        )


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"masked_lm": MaskedLm}
