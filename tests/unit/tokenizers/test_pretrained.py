"""Tokenizers from files: what is read, what is switched off, and what is refused."""

import json

import attrs
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from rtx_core import InputError, Source
from rtx_plugins.tokenizers.pretrained import Pretrained
from rtx_plugins.tokenizers.wordpiece import WordPiece

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cafe", "Café", "字", "字字", "a", "##b"]


@pytest.fixture
def vocabulary_folder(tmp_path):
    """A function: a folder with vocab.txt and, where settings are given, tokenizer_config.json."""

    def make(tokens=tuple(VOCABULARY), **settings):
        (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        if settings:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        return tmp_path

    return make


@pytest.fixture
def load(special_tokens):
    """A function: the tokenizer of a folder."""

    def build(folder, special_tokens=special_tokens):
        return Pretrained(path=Source("folder", str(folder))).build(iter(()), special_tokens)

    return build


def test_a_trained_tokenizer_comes_back_as_it_was(tmp_path, special_tokens, load):
    """What was written to tokenizer.json is read without a change."""
    trained = WordPiece(vocab_size=100).build(["hello world"] * 2, special_tokens)
    trained.save(str(tmp_path / "tokenizer.json"))
    assert load(tmp_path).to_str() == trained.to_str()


def test_padding_and_truncation_in_the_file_are_switched_off(tmp_path, special_tokens, load):
    """A tokenizer that was saved with padding to 8 and truncation to 4 tokens gives whole, unpadded sequences."""
    trained = WordPiece(vocab_size=100).build(["a b c d e f"] * 2, special_tokens)
    trained.enable_padding(length=8)
    trained.enable_truncation(4)
    trained.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load(tmp_path)
    assert tokenizer.encode("a").tokens == ["[CLS]", "a", "[SEP]"]
    assert tokenizer.encode("a b c d e f").tokens == ["[CLS]", "a", "b", "c", "d", "e", "f", "[SEP]"]


@pytest.mark.parametrize("post_processor", [None, processors.ByteLevel()])
def test_a_missing_template_is_supplied(tmp_path, special_tokens, load, post_processor):
    """A file whose post-processor adds no special tokens gets those of the architecture."""
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    model = models.WordPiece(vocabulary, unk_token=special_tokens.unk)
    bare = tokenizers.Tokenizer(model)
    bare.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if post_processor is not None:
        bare.post_processor = post_processor
    bare.save(str(tmp_path / "tokenizer.json"))
    encoding = load(tmp_path).encode("a", "[MASK]")
    assert encoding.tokens == ["[CLS]", "a", "[SEP]", "[MASK]", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 1, 1]


def test_tokenizer_json_wins_over_vocab_txt(special_tokens, vocabulary_folder, load):
    """Where a folder has both, tokenizer.json says more."""
    folder = vocabulary_folder()
    WordPiece(vocab_size=100).build(["other words"] * 2, special_tokens).save(str(folder / "tokenizer.json"))
    assert "other" in load(folder).get_vocab()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["cafe", "字", "字"]),
        ({"do_lower_case": True, "strip_accents": None}, ["cafe", "字", "字"]),
        ({"do_lower_case": False}, ["Café", "字", "字"]),
        ({"do_lower_case": True, "strip_accents": False}, ["[UNK]", "字", "字"]),
        ({"tokenize_chinese_chars": False}, ["cafe", "字字"]),
    ],
)
def test_vocab_txt_is_berts_wordpiece(vocabulary_folder, load, settings, expected):
    """A bare vocab.txt has BERT's defaults, and tokenizer_config.json changes them."""
    encoding = load(vocabulary_folder(**settings)).encode("Café 字字")
    assert encoding.tokens == ["[CLS]", *expected, "[SEP]"]


def test_vocab_txt_equals_transformers(special_tokens, vocabulary_folder, load, random_texts):
    """The same vocab.txt gives the ids that transformers' BertTokenizer gives."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    trained = WordPiece(vocab_size=400).build(random_texts(100, seed=5), special_tokens).get_vocab()
    folder = vocabulary_folder(sorted(trained, key=trained.get))
    ours, theirs = load(folder), transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    for text in random_texts(100, seed=6):
        assert ours.encode(text).ids == theirs(text)["input_ids"]


def test_added_tokens_beside_vocab_txt_are_found(vocabulary_folder, load):
    """Tokens that were added to a vocabulary have the numbers after it and are never cut."""
    folder = vocabulary_folder()
    (folder / "added_tokens.json").write_text('{"<b>": 12, "<a>": 11}')
    tokenizer = load(folder)
    assert tokenizer.encode("a<b><a>").ids[1:-1] == [9, 12, 11]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"<a>": 40}', '"<a>" should have the number 40, but the vocabulary gives it 11'),
        ('{"<a>": null}', "expected a number for each token"),
        ("[]", "expected a JSON object"),
        ("{", "not JSON"),
    ],
)
def test_bad_added_tokens_are_one_clear_error(vocabulary_folder, load, content, message):
    """Added tokens whose numbers can't be those of the weights are refused with the file's name."""
    folder = vocabulary_folder()
    (folder / "added_tokens.json").write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        load(folder)
    assert "added_tokens.json" in str(caught.value)


def test_settings_of_another_type_are_refused(vocabulary_folder, load):
    """A setting that is no truth value is not guessed at."""
    with pytest.raises(InputError, match='do_lower_case: expected true or false, got "yes"'):
        load(vocabulary_folder(do_lower_case="yes"))


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json"])
def test_missing_special_tokens_are_named(tmp_path, special_tokens, load, vocabulary_folder, name):
    """A vocabulary without tokens that the architecture needs is refused with their names."""
    folder = vocabulary_folder()
    if name == "tokenizer.json":
        WordPiece(vocab_size=100).build(["a"], special_tokens).save(str(folder / name))
    family = attrs.evolve(special_tokens, cls="<s>", mask="<mask>")
    with pytest.raises(InputError, match=f"{name}: the vocabulary lacks <s>, <mask>, which"):
        load(folder, family)


def test_a_folder_without_tokenizer_is_found_by_check(tmp_path, load):
    """``check`` and the run say which files were looked for."""
    component = Pretrained(path=Source("folder", str(tmp_path)))
    expected = f'no tokenizer in "{tmp_path}": expected tokenizer.json or vocab.txt'
    assert list(component.check()) == [("path", expected)]
    with pytest.raises(InputError) as caught:
        load(tmp_path)
    assert str(caught.value) == f"tokenizer.path: {expected}"


def test_check_accepts_what_can_be_read_later(vocabulary_folder):
    """A folder with a tokenizer passes, and so does a run that is not there yet."""
    assert list(Pretrained(path=Source("folder", str(vocabulary_folder()))).check()) == []
    assert list(Pretrained(path=Source("run", "later")).check()) == []


@pytest.mark.parametrize(
    ("name", "content"), [("tokenizer.json", b"{}"), ("tokenizer.json", b""), ("vocab.txt", b"\xff\n")]
)
def test_unreadable_files_are_one_clear_error(tmp_path, load, name, content):
    """A file that is damaged is named."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: not a .* that can be read"):
        load(tmp_path)


def test_a_run_means_its_kept_model(tmp_path, special_tokens, monkeypatch):
    """``run:NAME`` is the folder ``runs/NAME/model`` of the working directory."""
    trained = WordPiece(vocab_size=100).build(["hello world"] * 2, special_tokens)
    (tmp_path / "runs" / "before" / "model").mkdir(parents=True)
    trained.save(str(tmp_path / "runs" / "before" / "model" / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    component = Pretrained(path=Source("run", "before"))
    assert component.build(iter(()), special_tokens).to_str() == trained.to_str()


def test_a_run_without_kept_model_is_refused(tmp_path, special_tokens, monkeypatch):
    """A run that doesn't exist, or hasn't finished, is named."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match='"run:missing" has no kept model'):
        Pretrained(path=Source("run", "missing")).build(iter(()), special_tokens)


def test_the_hub_is_refused_for_now(special_tokens):
    """A source on the network is named as not supported."""
    with pytest.raises(InputError, match='"hub:org/name": hub: sources are not supported yet'):
        Pretrained(path=Source("hub", "org/name")).build(iter(()), special_tokens)
