"""SentencePiece's unigram model, trained on the training text as a stage of the run (Kudo 2018, arXiv:1804.10959).

``tokenizers``' trainer walks a randomly seeded hash table: the last digits of its scores, and which score a character
gets that it lost on the way, differ from process to process, with one thread too. Both are put in order afterwards;
then eight processes gave the same bytes for each of nine texts, some of them full of ties. That is measured, not
proven: which pieces are dropped hangs on sums whose last digits vary, so two that are equally good to 14 digits could
change places. A resumed run reads the tokenizer that it has kept.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from rtx_core import InputError, SpecialTokens, Tokenizer, hookimpl
from rtx_plugins.tokenizers.common import LARGEST, registered, template, to_train_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SMALLEST = 7  # five special tokens, the mark of a word's beginning, and one character
_DIGITS = 6  # of log probabilities; what the order of sums changes lies some 8 digits below
_STEP = 1e-4  # between the scores of characters that the trainer adds at the end


@attrs.frozen(kw_only=True)
class Unigram(Tokenizer):
    """The likeliest pieces of a text; the space before a word is part of its first piece (written ``▁``).

    Text is normalised by NFKC, runs of white space become one space. A character that the training text does not have
    is unknown.
    """

    vocab_size: int = attrs.field(
        default=30_000, validator=[attrs.validators.ge(_SMALLEST), attrs.validators.le(LARGEST)]
    )
    """Most entries of the vocabulary, special tokens and all characters of the text included; a small text may give
    fewer."""
    max_piece_length: int = attrs.field(default=16, validator=attrs.validators.ge(1))
    """Characters of the longest piece."""
    lowercase: bool = False
    """Make all text lower case."""

    def build(self, texts: Iterable[str], special_tokens: SpecialTokens) -> tokenizers.Tokenizer:
        """Train; the special tokens come first in the vocabulary, in the order of ``special_tokens.names``.

        :raises InputError: the texts hold no word, or more different characters than the vocabulary has room for.
        """
        normalizer, pre_tokenizer = self._normalizer(), pre_tokenizers.Metaspace(prepend_scheme="always")
        scratch = tokenizers.Tokenizer(models.Unigram())
        scratch.normalizer, scratch.pre_tokenizer = normalizer, pre_tokenizer
        self._train(scratch, to_train_on(texts, "unigram"), special_tokens)
        tokenizer = tokenizers.Tokenizer(_in_order(scratch, special_tokens))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
        tokenizer.add_special_tokens(registered(special_tokens))
        tokenizer.post_processor = template(special_tokens, tokenizer.get_vocab())
        return tokenizer

    def _normalizer(self) -> normalizers.Normalizer:
        steps = [normalizers.Nmt(), normalizers.NFKC()]
        if self.lowercase:
            steps.append(normalizers.Lowercase())
        return normalizers.Sequence([*steps, normalizers.Strip(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])

    def _train(self, scratch: tokenizers.Tokenizer, texts: Iterable[str], special_tokens: SpecialTokens) -> None:
        trainer = trainers.UnigramTrainer(
            vocab_size=self.vocab_size,
            special_tokens=list(special_tokens.names),
            unk_token=special_tokens.unk,
            max_piece_length=self.max_piece_length,
            show_progress=False,
        )
        characters: set[str] = set()
        try:
            scratch.train_from_iterator(_watched(texts, characters), trainer)
        except Exception as error:  # the library raises nothing narrower
            if "not large enough" not in str(error):
                raise
            raise self._too_small(len(characters), special_tokens) from error
        # The library compares without the special tokens, and gives more entries than it was asked for.
        if scratch.get_vocab_size() > self.vocab_size:
            raise self._too_small(len(characters), special_tokens)

    def _too_small(self, characters: int, special_tokens: SpecialTokens) -> InputError:
        return InputError(
            f"tokenizer.unigram: vocab_size: {self.vocab_size} entries have no room for each of the text's "
            f"{characters} different characters beside the {len(special_tokens.names)} special tokens; "
            "write a larger one, or take bpe, which needs no room for characters"
        )


def _watched(texts: Iterable[str], characters: set[str]) -> Iterator[str]:
    for text in texts:
        characters.update(text)
        yield text


def _in_order(scratch: tokenizers.Tokenizer, special_tokens: SpecialTokens) -> models.Unigram:
    """The trained model without what depends on the order of a hash table; the likeliest pieces first."""
    trained = [(piece, round(score, _DIGITS)) for piece, score in json.loads(scratch.to_str())["model"]["vocab"]]
    first = len(special_tokens.names)
    scores = dict(trained[first:])
    # The trainer lists characters that it lost again, 0.0001 apart from the lowest score on, in the table's order.
    low = min(scores.values())
    steps = {round(low + number * _STEP, _DIGITS) for number in range(len(scores))}
    lost = sorted(piece for piece, score in scores.items() if len(piece) == 1 and score in steps)
    scores |= zip(lost, sorted(scores[piece] for piece in lost), strict=True)
    ordered = sorted(scores.items(), key=lambda one: (-one[1], one[0]))
    return models.Unigram(trained[:first] + ordered, unk_id=special_tokens.names.index(special_tokens.unk))


@hookimpl
def tokenizer() -> dict[str, type[Tokenizer]]:
    """Offer the component."""
    return {"unigram": Unigram}
