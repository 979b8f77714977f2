"""A tokenizer that exists: ``tokenizer.json``, or the files from before there was one.

BERT's ``vocab.txt``, or ``vocab.json`` and ``merges.txt`` of RoBERTa and GPT-2.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import tokenizers
from tokenizers import models, normalizers

from rtx_core import InputError, Source, SpecialTokens, Tokenizer, hookimpl
from rtx_core.sources import folder_of
from rtx_plugins.tokenizers.common import bert_wordpiece, byte_level_bpe, wrapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MERGES = "merges.txt"

_USUAL = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>"),
    *("<cls>", "<sep>", "<|endoftext|>", "<|padding|>"),
)
"""How tokenizers spell special tokens."""


@attrs.frozen(kw_only=True)
class Pretrained(Tokenizer):
    """Loaded as it is, but for padding and truncation that are written into it, which are switched off.

    Where it puts other special tokens around a text than the architecture expects, those of the architecture are taken.
    """

    path: Source
    """Where its files are: a folder, ``run:NAME`` for the kept model of ``runs/NAME`` in the working directory, or
    ``hub:ORG/NAME[@REVISION]``."""

    def check(self) -> Iterable[tuple[str, str]]:
        """A folder must hold a tokenizer; a run may still be trained, and files of the hub may not be here yet."""
        if self.path.scheme == "folder" and not _files_in(Path(self.path.location)):
            yield "path", _no_files(Path(self.path.location), self.path)

    def build(self, texts: Iterable[str], special_tokens: SpecialTokens) -> tokenizers.Tokenizer:  # noqa: ARG002 - not trained
        """Load it.

        :raises InputError: there are no tokenizer files, one can't be read, or it lacks special tokens.
        """
        tokenizer = self._read(special_tokens)
        if _Wrapped.by(tokenizer, special_tokens) != _Wrapped.expected(special_tokens):
            tokenizer.post_processor = wrapping(tokenizer, special_tokens)
        return tokenizer

    def notes(self, special_tokens: SpecialTokens) -> Sequence[str]:
        """Which of several files was read, and whether the special tokens around a text are others than the file's."""
        file, *others = self._files()
        notes = [f"{file} was read, not {' or '.join(other.name for other in others)} beside it"] if others else []
        theirs, ours = _Wrapped.by(self._read(special_tokens), special_tokens), _Wrapped.expected(special_tokens)
        without_types = special_tokens.pair_token_type == 0  # then no model looks at them, and nothing is lost
        if theirs.tokens != ours.tokens or (theirs != ours and not without_types):
            notes.append(f"{file} makes {theirs} of texts; {ours} is taken, as the architecture expects")
        return notes

    def _read(self, special_tokens: SpecialTokens) -> tokenizers.Tokenizer:
        """The tokenizer of the files, without padding and truncation."""
        file = self._files()[0]
        tokenizer = _READERS[file.name](file, special_tokens)
        _require(special_tokens, tokenizer.get_vocab(), file)
        # In the vocabulary is not enough: only a registered token is found in text whole and left alone by masking. One
        # that is registered already keeps how it treats the spaces beside it.
        there = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
        tokenizer.add_special_tokens([token for token in special_tokens.names if token not in there])
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def _files(self) -> list[Path]:
        """The files from which it can be made, the best first.

        :raises InputError: there are none.
        """
        try:
            folder = folder_of(self.path, Path.cwd())
        except InputError as error:
            raise InputError(f"tokenizer.path: {error}") from error
        files = _files_in(folder)
        if not files:
            raise InputError(f"tokenizer.path: {_no_files(folder, self.path if self.path.scheme == 'hub' else folder)}")
        return files


@attrs.frozen
class _Wrapped:
    """A text and a pair with special tokens around them. M, the mask, stands for each text: always one token."""

    tokens: tuple[tuple[str, ...], tuple[str, ...]]
    """Of a text and of a pair."""
    token_types: tuple[int, ...]
    """Of the pair."""
    mask: str

    @classmethod
    def by(cls, tokenizer: tokenizers.Tokenizer, special_tokens: SpecialTokens) -> _Wrapped:
        """As a tokenizer does it."""
        mask = special_tokens.mask
        single, pair = tokenizer.encode(mask), tokenizer.encode(mask, mask)
        # An encoding's own tokens are the text that a token was found as, " <mask>" too.
        names = [tuple(str(tokenizer.id_to_token(number)) for number in one.ids) for one in (single, pair)]
        return cls((names[0], names[1]), tuple(pair.type_ids), mask)

    @classmethod
    def expected(cls, special_tokens: SpecialTokens) -> _Wrapped:
        """As the architecture does it."""
        head, sep, mask = special_tokens.cls, special_tokens.sep, special_tokens.mask
        first, second = (head, mask, *[sep] * special_tokens.pair_separators), (mask, sep)
        types = (0,) * len(first) + (special_tokens.pair_token_type,) * len(second)
        return cls(((head, mask, sep), first + second), types, mask)

    def __str__(self) -> str:
        single, pair = (" ".join("…" if token == self.mask else token for token in tokens) for tokens in self.tokens)
        return f'"{single}" and "{pair}" (token types {" ".join(map(str, self.token_types))})'


def _files_in(folder: Path) -> list[Path]:
    """The files from which a tokenizer can be made, the best first."""
    found = [folder / name for name in _READERS if (folder / name).is_file()]
    return [file for file in found if file.name != "vocab.json" or (folder / _MERGES).is_file()]


def _no_files(folder: Path, shown: object) -> str:
    alone = f", but only vocab.json without {_MERGES} is there" if (folder / "vocab.json").is_file() else ""
    return f'no tokenizer in "{shown}": expected tokenizer.json, vocab.txt, or vocab.json with {_MERGES}{alone}'


def _from_json(file: Path, special_tokens: SpecialTokens) -> tokenizers.Tokenizer:  # noqa: ARG001 - it says all
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{file}: not a tokenizer that can be read: {error}") from error


def _from_vocabulary(file: Path, special_tokens: SpecialTokens) -> tokenizers.Tokenizer:
    """BERT's WordPiece from one token a line, with the settings and the added tokens of the files beside it."""
    try:
        vocabulary = models.WordPiece.read_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{file}: not a vocabulary that can be read: {error}") from error
    _require(special_tokens, vocabulary, file)
    settings = file.with_name("tokenizer_config.json")
    normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=_flag(settings, "tokenize_chinese_chars") is not False,
        strip_accents=_flag(settings, "strip_accents"),
        lowercase=_flag(settings, "do_lower_case") is not False,
    )
    tokenizer = bert_wordpiece(vocabulary, special_tokens, normalizer=normalizer)
    _add_tokens(tokenizer, file.with_name("added_tokens.json"))
    return tokenizer


def _from_merges(file: Path, special_tokens: SpecialTokens) -> tokenizers.Tokenizer:
    """RoBERTa's byte-level BPE from its vocabulary, with the merges, settings and added tokens beside it."""
    try:
        vocabulary, merges = models.BPE.read_file(str(file), str(file.with_name(_MERGES)))
        model = models.BPE(vocabulary, merges)
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{file}: with {_MERGES} not a vocabulary that can be read: {error}") from error
    _require(special_tokens, vocabulary, file)
    add_prefix_space = _flag(file.with_name("tokenizer_config.json"), "add_prefix_space") is True
    tokenizer = byte_level_bpe(model, special_tokens, add_prefix_space=add_prefix_space)
    _add_tokens(tokenizer, file.with_name("added_tokens.json"))
    return tokenizer


_READERS = {"tokenizer.json": _from_json, "vocab.txt": _from_vocabulary, "vocab.json": _from_merges}
"""By file, that which says most first."""


def _flag(file: Path, name: str) -> bool | None:
    """A setting of the file; None where it is not set and BERT's default holds."""
    value = _json_object(file).get(name)
    if value is None or isinstance(value, bool):
        return value
    raise InputError(f"{file}: {name}: expected true or false, got {json.dumps(value)}")


def _add_tokens(tokenizer: tokenizers.Tokenizer, file: Path) -> None:
    """Append the tokens that somebody added to the vocabulary; they must get the numbers that the weights know."""
    numbers = _json_object(file)
    if not all(isinstance(number, int) for number in numbers.values()):
        raise InputError(f"{file}: expected a number for each token")
    for token, number in sorted(numbers.items(), key=lambda item: item[1]):
        tokenizer.add_tokens([token])
        got = tokenizer.token_to_id(token)
        if got != number:
            raise InputError(f'{file}: "{token}" should have the number {number}, but the vocabulary gives it {got}')


def _json_object(file: Path) -> dict[str, Any]:
    """The file's content; empty where there is no such file."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{file}: expected a JSON object")
    return value


def _require(special_tokens: SpecialTokens, vocabulary: Mapping[str, int], file: Path) -> None:
    missing = [token for token in special_tokens.names if token not in vocabulary]
    if missing:
        others = [token for token in _USUAL if token in vocabulary and token not in special_tokens.names]
        there = f" (it has {', '.join(others)})" if others else ""
        raise InputError(
            f"{file}: the vocabulary lacks {', '.join(missing)}, which the architecture needs{there}; "
            "take the tokenizer that belongs to it, or train one"
        )


@hookimpl
def tokenizer() -> dict[str, type[Tokenizer]]:
    """Offer the component."""
    return {"pretrained": Pretrained}
