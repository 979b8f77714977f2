"""Texts with more tokens than a sequence holds: cut at the end, shortened to head and tail, or read in windows.

Head and tail: the first quarter of the tokens that fit is the text's head, the rest its tail. Of 512 tokens those are
the 128 + 382 with which Sun et al. 2019 (arXiv:1905.05583, section 5.3.1) classified long texts best.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Literal, TypeVar

import attrs
import numpy as np
import tokenizers

from rtx_core import InputError, Sample
from rtx_plugins.tasks.common import chunks, text_room

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenizers import Encoding

LongText = Literal["truncate", "head_tail", "windows"]

Text = TypeVar("Text", str, list[str])
"""A text, or its words."""

_PART = 250_000
"""Characters that are encoded at once: meanwhile the library takes some two hundred bytes for each."""
_SINGLE_SPACE = re.compile(r"(?<=\S) (?=\S)")


def long_text_rules(
    long_text: LongText, stride: int | None, max_length: int | None, *, pair: bool = False
) -> Iterator[tuple[str, str]]:
    """Rules across a task's fields: which is broken, and how.

    :param pair: the task reads two texts together.
    """
    if pair and long_text != "truncate":
        yield "long_text", f'"{long_text}" is for one text; of a pair the longer one is cut, so leave it out'
    if stride is not None and long_text != "windows":
        yield "stride", 'only windows share tokens; write long_text = "windows" too, or leave it out'
    elif stride is not None and max_length is not None and stride >= max_length:
        yield "stride", f"windows of {max_length} tokens (max_length) can't share {stride}"


def long_text_limits(long_text: LongText) -> tuple[str, ...]:
    """What the model's card says where another library, which cuts a long text at its end, reads less of it."""
    if long_text == "truncate":
        return ()
    how = "in windows" if long_text == "windows" else "by its head and its tail"
    return (
        f"rtx reads a longer text {how}, and the figures above are of that; transformers reads its beginning alone",
    )


@attrs.frozen(eq=False)
class Tokens:
    """A text's n tokens, with the special tokens around them."""

    ids: np.ndarray
    """int32, special tokens included."""
    types: np.ndarray
    """uint8, as long."""
    before: int
    """Special tokens before the text."""
    after: int
    words: np.ndarray
    """int64 ``[n]``: the number of the word that each token is a piece of; it rises. Empty where not asked for."""
    offsets: np.ndarray
    """int64 ``[n, 2]``: each token's first character and the one after its last. Empty where not asked for."""

    @classmethod
    def of(cls, encoding: Encoding, *, special: int, with_words: bool) -> Tokens:
        """What of the library's encoding is needed.

        :param special: how many special tokens stand around a text.
        """
        before = 0
        while before < special and encoding.token_to_sequence(before) is None:
            before += 1
        after = special - before
        inside = slice(before, len(encoding) - after)
        return cls(
            ids=np.array(encoding.ids, dtype=np.int32),
            types=np.array(encoding.type_ids, dtype=np.uint8),
            before=before,
            after=after,
            words=np.array(encoding.word_ids[inside] if with_words else [], dtype=np.int64),
            offsets=np.array(encoding.offsets[inside] if with_words else [], dtype=np.int64).reshape(-1, 2),
        )

    def __len__(self) -> int:
        return len(self.ids) - self.before - self.after

    def sample(self, sequences: Sequence[np.ndarray], positions: Sequence[np.ndarray], targets: np.ndarray) -> Sample:
        """Sequences of these tokens, each between the special ones, as one sample.

        :param sequences: the places in the text of the tokens of each.
        :param positions: of the targets in each, counted from its first special token.
        """
        first, last = np.arange(self.before), np.arange(len(self.ids) - self.after, len(self.ids))
        places = [np.concatenate([first, self.before + inside, last]) for inside in sequences]
        lengths = np.array([len(row) for row in places])
        taken = np.concatenate(places)
        starts = np.repeat(lengths.cumsum() - lengths, [len(row) for row in positions])
        return Sample(
            input_ids=self.ids[taken],
            token_types=self.types[taken],
            target_positions=(starts + np.concatenate(positions)).astype(np.int32),
            targets=targets,
            lengths=tuple(lengths.tolist()) if len(lengths) > 1 else (),
        )


@attrs.frozen(eq=False)
class Reader:
    """Encodes whole texts, and says which of their tokens are read together."""

    tokenizer: tokenizers.Tokenizer
    """It doesn't truncate."""
    long_text: LongText
    room: int
    """Tokens of the text that a sequence holds."""
    stride: int
    """Tokens that neighbouring windows share."""
    with_words: bool
    """Whether it is wanted which word a token is of, and where it stands in the text."""

    @classmethod
    def of(
        cls,
        tokenizer: tokenizers.Tokenizer,
        max_length: int,
        long_text: LongText,
        stride: int | None,
        *,
        with_words: bool = False,
    ) -> Reader:
        """A reader with a tokenizer of its own.

        :param max_length: tokens of a sequence, special ones included.
        :param stride: None is a quarter of a window.
        :raises InputError: a sequence has no room for text, or windows would not move.
        """
        room = text_room(tokenizer, max_length)
        stride = room // 4 if stride is None else stride
        if stride >= room:
            raise InputError(f"task.stride: windows hold {room} tokens of a text and can't share {stride}")
        whole = tokenizers.Tokenizer.from_str(tokenizer.to_str())
        whole.no_truncation()
        return cls(whole, long_text, room, stride, with_words)

    def read(self, texts: Sequence[Text]) -> Iterator[Tokens]:
        """The tokens of each text, or of each list of words.

        A text of millions of characters is encoded in parts, so that the memory for it stays bounded.
        """
        parts = [_parts(text) for text in texts]
        encoded = self._encoded([part for of_text in parts for part in of_text])
        for of_text in parts:
            yield _joined(of_text, list(itertools.islice(encoded, len(of_text))))

    def _encoded(self, texts: list[Text]) -> Iterator[Tokens]:
        encode = self.tokenizer.encode_batch if self.with_words else self.tokenizer.encode_batch_fast
        special = self.tokenizer.num_special_tokens_to_add(is_pair=False)
        for chunk in chunks(texts, _characters, characters_of_each=_PART):
            for encoding in encode(chunk, is_pretokenized=isinstance(chunk[0], list)):
                yield Tokens.of(encoding, special=special, with_words=self.with_words)

    def windows(self, tokens: int) -> list[range]:
        """The tokens of a text of this many that are read together, from its beginning: one window, or several."""
        if self.long_text != "windows":
            return [range(min(tokens, self.room))]
        starts = range(0, max(1, tokens - self.stride), self.room - self.stride)
        return [range(start, min(start + self.room, tokens)) for start in starts]

    def sequences(self, tokens: int) -> list[np.ndarray]:
        """The places in a text of the tokens of each sequence."""
        if self.long_text == "head_tail" and tokens > self.room:
            head = (self.room + 2) // 4  # a quarter, rounded
            return [np.append(np.arange(head), np.arange(tokens - (self.room - head), tokens))]
        return [np.arange(window.start, window.stop) for window in self.windows(tokens)]


def _characters(text: str | list[str]) -> int:
    return len(text) if isinstance(text, str) else sum(map(len, text))


def _parts(text: Text) -> list[Text]:
    """A text, or a list of words, in parts that give the same tokens when they are encoded one by one.

    A text is cut before a single space: tokenizers begin a word there, and some want the space with it. Where there is
    none, as in Chinese, it stays in one part.
    """
    if isinstance(text, list):
        return list(chunks(text, len)) or [text]
    bounds: list[int] = [0]
    while found := _SINGLE_SPACE.search(text, bounds[-1] + _PART):
        bounds.append(found.start())
    return [text[start:stop] for start, stop in itertools.pairwise([*bounds, len(text)])]


def _joined(parts: Sequence[Text], encoded: Sequence[Tokens]) -> Tokens:
    """The tokens of a whole text from those of its parts."""
    if len(encoded) == 1:
        return encoded[0]
    words, offsets = [], []
    word = character = 0
    for part, tokens in zip(parts, encoded, strict=True):
        words.append(tokens.words + word)
        offsets.append(tokens.offsets + character)
        word += len(part) if isinstance(part, list) else int(tokens.words.max(initial=-1)) + 1
        character += len(part)
    first, *_, last = encoded
    return Tokens(
        ids=_with_ends([tokens.ids for tokens in encoded], encoded),
        types=_with_ends([tokens.types for tokens in encoded], encoded),
        before=first.before,
        after=last.after,
        words=np.concatenate(words),
        offsets=np.concatenate(offsets),
    )


def _with_ends(rows: Sequence[np.ndarray], encoded: Sequence[Tokens]) -> np.ndarray:
    """The rows of all parts, with the special tokens before the first and after the last alone."""
    inside = [row[tokens.before : tokens.before + len(tokens)] for row, tokens in zip(rows, encoded, strict=True)]
    return np.concatenate([rows[0][: encoded[0].before], *inside, rows[-1][len(rows[-1]) - encoded[-1].after :]])
