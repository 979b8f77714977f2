"""BERT's WordPiece, trained on the training text as a stage of the run (Schuster & Nakajima 2012; Devlin et al. 2019).

The vocabulary is a pure function of the text. ``tokenizers``' trainer alone is not: it numbers the single characters in
the order of a randomly seeded hash table, and breaks ties between merges by those numbers. So every character is handed
to it as a special token, which fixes the numbers, and the model is then built from the vocabulary alone.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import attrs
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from rtx_core import InputError, SpecialTokens, Tokenizer, hookimpl
from rtx_plugins.tokenizers.common import CONTINUATION, LARGEST, MAX_WORD_LENGTH, bert_wordpiece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Split = Callable[[str], list[str]]

# Splitting here first changes no word: the normaliser works on single characters and runs of combining marks, and the
# pre-tokenizer splits at these too. Other white space is left to them: BERT drops some of it as control characters.
_SPACES = re.compile("[ \t\r\n]+")
_DISTINCT_STRINGS = 1 << 18  # tens of MB; folded into the words when full, so that text without spaces stays bounded
_SMALLEST = 7  # five special tokens, and one character at the beginning of a word and inside it
_REPEATS = 1000  # a word of 100 characters makes a text of 100 kB, whatever its count


@attrs.frozen(kw_only=True)
class WordPiece(Tokenizer):
    """Pieces of words, longest match first; every word is normalised as BERT does."""

    vocab_size: int = attrs.field(
        default=30_000, validator=[attrs.validators.ge(_SMALLEST), attrs.validators.le(LARGEST)]
    )
    """Most entries of the vocabulary, special tokens included; a small text may give fewer. Where it has no room for
    every character, the most frequent are taken."""
    min_frequency: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    """Two pieces are joined into one only where they stand together at least this often."""
    limit_alphabet: int = attrs.field(default=1000, validator=attrs.validators.ge(1))
    """Most different characters; a word with any other character is unknown."""
    lowercase: bool = True
    """Make all text lower case."""
    strip_accents: bool | None = None
    """Remove accents; None does so where text is made lower case."""
    handle_chinese_chars: bool = True
    """Make each Chinese character a word of its own."""

    def build(self, texts: Iterable[str], special_tokens: SpecialTokens) -> tokenizers.Tokenizer:
        """Train; the special tokens come first in the vocabulary, in the order of ``special_tokens.names``.

        :raises InputError: the texts hold no word.
        """
        normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.handle_chinese_chars,
            strip_accents=self.strip_accents,
            lowercase=self.lowercase,
        )
        split = splitter(normalizer)
        words = count_words(texts, split)
        room = self.vocab_size - len(special_tokens.names)
        alphabet = frequent_characters(words, split, limit=self.limit_alphabet, room=room)
        if not alphabet:
            raise InputError("tokenizer.wordpiece: the training text holds no words to train on")
        first_entries = [*special_tokens.names, *pieces_of(alphabet, split)]
        vocabulary = self._train(learnable(words, alphabet), first_entries)
        return bert_wordpiece(vocabulary, special_tokens, normalizer=normalizer)

    def _train(self, words: Mapping[str, int], first_entries: list[str]) -> dict[str, int]:
        """The vocabulary: the first entries, then merges by falling frequency."""
        trainer = trainers.WordPieceTrainer(
            vocab_size=self.vocab_size,
            min_frequency=self.min_frequency,
            special_tokens=first_entries,
            continuing_subword_prefix=CONTINUATION,
            show_progress=False,
        )
        scratch = tokenizers.Tokenizer(models.WordPiece())
        scratch.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        scratch.train_from_iterator(_repeated(words), trainer)
        return scratch.get_vocab(with_added_tokens=False)


def splitter(normalizer: normalizers.Normalizer) -> Split:
    """What the finished tokenizer will do to a text before it looks for pieces."""
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def split(text: str) -> list[str]:
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))]

    return split


def count_words(texts: Iterable[str], split: Split) -> Counter[str]:
    """How often each word occurs. Reads the texts once and holds distinct words only."""
    words: Counter[str] = Counter()
    strings: Counter[str] = Counter()

    def fold() -> None:
        for string, count in strings.items():
            for word in split(string):
                words[word] += count
        strings.clear()

    for text in texts:
        # Each distinct string is split once, not each occurrence: half the time on a novel, far less on more text.
        strings.update(_SPACES.split(text))
        if len(strings) > _DISTINCT_STRINGS:
            fold()
    fold()
    return words


def frequent_characters(words: Mapping[str, int], split: Split, *, limit: int, room: int) -> list[str]:
    """The most frequent characters, in the order of their code points.

    :param limit: how many at most.
    :param room: how many entries of the vocabulary they may take.
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        if len(word) <= MAX_WORD_LENGTH:
            for character in word:
                counts[character] += count
    chosen = []
    for character in sorted(counts, key=lambda c: (-counts[c], c))[:limit]:
        room -= len(pieces_of([character], split))
        if room < 0:
            break
        chosen.append(character)
    return sorted(chosen)


def pieces_of(characters: Sequence[str], split: Split) -> list[str]:
    """The entries of single characters: each as a word's first, and those that can stand later in one as that too."""
    inner = [character for character in characters if len(split(f"a{character}")) == 1]
    return [*characters, *(CONTINUATION + character for character in inner)]


def learnable(words: Mapping[str, int], alphabet: Iterable[str]) -> dict[str, int]:
    """The words that can be encoded: the trainer would drop other characters and join what stands beside them."""
    known = set(alphabet)
    return {word: count for word, count in words.items() if len(word) <= MAX_WORD_LENGTH and known.issuperset(word)}


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Texts that hold each word as often as it was counted; the trainer takes no counts."""
    for word, count in sorted(words.items()):
        for start in range(0, count, _REPEATS):
            yield " ".join([word] * min(_REPEATS, count - start))


@hookimpl
def tokenizer() -> dict[str, type[Tokenizer]]:
    """Offer the component."""
    return {"wordpiece": WordPiece}
