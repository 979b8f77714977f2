"""Learning language from text alone: predict each token from those before it (Bengio et al. 2003)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs
import numpy as np

from rtx_core import Outputs, Record, Sample, Task, hookimpl
from rtx_plugins.tasks.common import sample_of, truncating
from rtx_plugins.tasks.language import LanguagePart, LanguageTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import tokenizers

    from rtx_core import SpecialTokens


@attrs.frozen(kw_only=True)
class CausalLm(LanguageTask):
    """Texts without labels; at every token but the last the next one is predicted.

    A text stands between the special tokens of the architecture, and where it ends is predicted too. A text that is
    longer than ``max_length`` becomes several sequences, of which the last alone has its end. The architecture must be
    causal: BERT is with ``is_decoder = true``.
    """

    default_metrics: ClassVar[tuple[str, ...]] = ("perplexity",)
    causal: ClassVar[bool] = True
    pipeline_tag: ClassVar[str | None] = "text-generation"

    def build(
        self,
        tokenizer: tokenizers.Tokenizer,
        outputs: Outputs,  # noqa: ARG002 - the vocabulary is known
        *,
        max_length: int,
        special_tokens: SpecialTokens,  # noqa: ARG002 - the tokenizer adds them
    ) -> CausalLmPart:
        """The part that encodes."""
        return CausalLmPart(self.text, truncating(tokenizer, max_length))


@attrs.frozen(eq=False)
class CausalLmPart(LanguagePart):
    """The task with a tokenizer that cuts long texts."""

    def samples(self, records: Iterable[Record], *, targets: bool = True) -> Iterator[Sample]:  # noqa: ARG002
        """Encode records in order; a long text becomes consecutive sequences.

        They have no targets before :meth:`prepare`, so that they can be cut and put together anywhere.

        :raises DataError: there is no text, with its file and line.
        """
        for *others, last in self.pieces(records):
            for piece in others:
                # What follows is more text, not the end that the special token would tell of.
                ordinary = np.flatnonzero(np.array(piece.special_tokens_mask) == 0)
                yield _cut(sample_of(piece, [], []), int(ordinary[-1]) + 1)
            yield sample_of(last, [], [])

    def prepare(self, sample: Sample, seed: int) -> Sample:  # noqa: ARG002 - nothing is left to chance
        """Make each token the target of the one before it, within each sequence."""
        has_next = np.ones(len(sample.input_ids), dtype=bool)
        ends = np.cumsum(sample.sequence_lengths)
        has_next[ends[ends > 0] - 1] = False
        positions = np.flatnonzero(has_next)
        return attrs.evolve(
            sample,
            target_positions=positions.astype(np.int32),
            targets=sample.input_ids[positions + 1].astype(np.int64),
        )


def _cut(sample: Sample, length: int) -> Sample:
    return attrs.evolve(sample, input_ids=sample.input_ids[:length], token_types=sample.token_types[:length])


@hookimpl
def task() -> dict[str, type[Task]]:
    """Offer the component."""
    return {"causal_lm": CausalLm}
