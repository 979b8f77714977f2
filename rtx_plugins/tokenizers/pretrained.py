"""A tokenizer that exists: ``tokenizer.json``, or the ``vocab.txt`` of a BERT from before there was one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import tokenizers
from tokenizers import models, normalizers

from rtx_core import InputError, Source, SpecialTokens, Tokenizer, hookimpl
from rtx_plugins.tokenizers.common import bert_wordpiece, template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FILES = ("tokenizer.json", "vocab.txt")


@attrs.frozen(kw_only=True)
class Pretrained(Tokenizer):
    """Loaded as it is; only padding and truncation that are written into it are switched off."""

    path: Source
    """Where its files are: a folder, or ``run:NAME`` for the kept model of ``runs/NAME`` in the working directory."""

    def check(self) -> Iterable[tuple[str, str]]:
        """A folder must hold a tokenizer; a run may still be trained, so it is looked at when it is read."""
        if self.path.scheme == "folder" and _file_in(Path(self.path.location)) is None:
            yield "path", _no_files(Path(self.path.location))

    def build(self, texts: Iterable[str], special_tokens: SpecialTokens) -> tokenizers.Tokenizer:  # noqa: ARG002 - not trained
        """Load it, with the architecture's template where the file has none.

        :raises InputError: there are no tokenizer files, one can't be read, or it lacks special tokens.
        """
        folder = self._folder()
        file = _file_in(folder)
        if file is None:
            raise InputError(f"tokenizer.path: {_no_files(folder)}")
        tokenizer = _from_json(file) if file.name == "tokenizer.json" else _from_vocabulary(file, special_tokens)
        _require(special_tokens, tokenizer.get_vocab(), file)
        # In the vocabulary is not enough: only a registered token is found in text whole and left alone by masking.
        tokenizer.add_special_tokens(list(special_tokens.names))
        if tokenizer.num_special_tokens_to_add(is_pair=False) == 0:
            tokenizer.post_processor = template(special_tokens, tokenizer.get_vocab())
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def _folder(self) -> Path:
        if self.path.scheme == "hub":
            raise InputError(f'tokenizer.path: "{self.path}": hub: sources are not supported yet; give a folder')
        if self.path.scheme == "folder":
            return Path(self.path.location)
        folder = Path("runs") / self.path.location / "model"
        if not folder.is_dir():
            raise InputError(f'tokenizer.path: "{self.path}" has no kept model: there is no folder "{folder}"')
        return folder


def _file_in(folder: Path) -> Path | None:
    return next((folder / name for name in _FILES if (folder / name).is_file()), None)


def _no_files(folder: Path) -> str:
    return f'no tokenizer in "{folder}": expected {" or ".join(_FILES)}'


def _from_json(file: Path) -> tokenizers.Tokenizer:
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
        raise InputError(
            f"{file}: the vocabulary lacks {', '.join(missing)}, which the architecture needs; "
            "take the tokenizer that belongs to it, or train one"
        )


@hookimpl
def tokenizer() -> dict[str, type[Tokenizer]]:
    """Offer the component."""
    return {"pretrained": Pretrained}
