"""Tokenizers from files: what is read, what is switched off, and what is refused."""

import io
import json
import shutil

import attrs
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from rtx_core import InputError, Source, config
from rtx_core.console import Console
from rtx_core.prepare import prepare
from rtx_core.registry import Registry
from rtx_plugins.tokenizers.bpe import Bpe
from rtx_plugins.tokenizers.common import template
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


def test_which_of_several_files_is_read_is_said(special_tokens, vocabulary_folder, load):
    """tokenizer.json says most, then vocab.txt; the others are named, and a folder with one file needs no note."""
    folder = vocabulary_folder()
    component = Pretrained(path=Source("folder", str(folder)))
    assert component.notes(special_tokens) == []
    for name in ("vocab.json", "merges.txt"):
        (folder / name).write_text("{}")
    assert component.notes(special_tokens) == [f"{folder}/vocab.txt was read, not vocab.json beside it"]
    WordPiece(vocab_size=100).build(["other words"] * 2, special_tokens).save(str(folder / "tokenizer.json"))
    assert "other" in load(folder).get_vocab()
    expected = f"{folder}/tokenizer.json was read, not vocab.txt or vocab.json beside it"
    assert component.notes(special_tokens) == [expected]


@pytest.mark.parametrize(
    ("theirs", "types", "said"),
    [
        ({"cls": "[SEP]"}, 1, '"[SEP] … [SEP]" and "[SEP] … [SEP] … [SEP]" (token types 0 0 0 1 1)'),
        ({"pair_separators": 2}, 1, '"[CLS] … [SEP]" and "[CLS] … [SEP] [SEP] … [SEP]" (token types 0 0 0 0 1 1)'),
        ({"pair_token_type": 0}, 1, '"[CLS] … [SEP]" and "[CLS] … [SEP] … [SEP]" (token types 0 0 0 0 0)'),
        ({"pair_token_type": 1}, 0, None),
        ({}, 1, None),
    ],
)
def test_another_template_than_the_architectures_is_replaced(tmp_path, special_tokens, load, theirs, types, said):
    """Tokens and types are the architecture's; it is said, but where types differ that the model doesn't look at."""
    trained = WordPiece(vocab_size=100).build(["a b"] * 2, special_tokens)
    trained.post_processor = template(attrs.evolve(special_tokens, **theirs), trained.get_vocab())
    trained.save(str(tmp_path / "tokenizer.json"))
    family = attrs.evolve(special_tokens, pair_token_type=types)
    encoding = load(tmp_path, family).encode("a", "b")
    assert encoding.tokens == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, types, types]
    ours = '"[CLS] … [SEP]" and "[CLS] … [SEP] … [SEP]" (token types 0 0 0 1 1)'
    notes = [f"{tmp_path}/tokenizer.json makes {said} of texts; {ours} is taken, as the architecture expects"]
    assert Pretrained(path=Source("folder", str(tmp_path))).notes(family) == (notes if said else [])


def test_a_replaced_template_of_a_byte_level_tokenizer_keeps_offsets(tmp_path, roberta_tokens, load):
    """The space before a word stays out of its offsets."""
    trained = Bpe().build(["ab cd"] * 5, roberta_tokens)
    trained.post_processor = template(attrs.evolve(roberta_tokens, pair_separators=1), trained.get_vocab())
    trained.save(str(tmp_path / "tokenizer.json"))
    assert load(tmp_path, roberta_tokens).encode("ab cd").offsets[1:-1] == [(0, 2), (3, 5)]


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


@pytest.fixture
def merges_folder(tmp_path, roberta_tokens, random_texts):
    """A function: a folder with vocab.json and merges.txt of a trained byte-level BPE, and settings where given."""

    def make(**settings):
        trained = Bpe(vocab_size=500).build(random_texts(100, seed=4), roberta_tokens)
        trained.model.save(str(tmp_path))
        if settings:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        return tmp_path

    return make


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_vocab_json_and_merges_txt_equal_transformers(
    roberta_tokens, merges_folder, load, random_texts, add_prefix_space
):
    """The same two files give the ids that transformers' RobertaTokenizer gives, of texts and of pairs."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    folder = merges_folder(add_prefix_space=add_prefix_space)
    ours = load(folder, roberta_tokens)
    theirs = transformers.RobertaTokenizer.from_pretrained(folder)
    texts = random_texts(200, seed=6)
    assert [ours.encode(text).ids for text in texts] == theirs(texts)["input_ids"]
    pairs = list(zip(texts[:100], texts[100:], strict=True))
    assert [ours.encode(*pair).ids for pair in pairs] == theirs(texts[:100], texts[100:])["input_ids"]


def test_what_transformers_saves_equals_transformers(roberta_tokens, merges_folder, load, random_texts, tmp_path):
    """A saved RobertaTokenizer whose mask takes the space before it is read as transformers reads it."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    mask = transformers.AddedToken("<mask>", lstrip=True)
    saved = transformers.RobertaTokenizer.from_pretrained(merges_folder(), mask_token=mask)
    saved.save_pretrained(tmp_path / "saved")
    ours, theirs = (
        load(tmp_path / "saved", roberta_tokens),
        transformers.AutoTokenizer.from_pretrained(tmp_path / "saved"),
    )
    for text in (*random_texts(100, seed=6), "the <mask> swam", "<mask><mask>"):
        assert ours.encode(text).ids == theirs(text)["input_ids"]
    assert ours.encode("a <mask>").ids == ours.encode("a<mask>").ids
    assert Pretrained(path=Source("folder", str(tmp_path / "saved"))).notes(roberta_tokens) == []


def test_a_mask_in_a_text_takes_the_space_before_it(roberta_tokens, merges_folder, load):
    """As in RoBERTa's own files, although vocab.json can't say so."""
    tokenizer = load(merges_folder(), roberta_tokens)
    assert tokenizer.encode("the <mask>").ids == tokenizer.encode("the<mask>").ids


@pytest.mark.parametrize(
    ("name", "content"), [("vocab.json", "[]"), ("vocab.json", "{"), ("merges.txt", "a\n"), ("merges.txt", "zq qz\n")]
)
def test_damaged_merges_are_one_clear_error(roberta_tokens, merges_folder, load, name, content):
    """Either file may be broken, or name a piece that the other has not."""
    folder = merges_folder()
    (folder / name).write_text(content)
    with pytest.raises(InputError, match="vocab.json: with merges.txt not a vocabulary that can be read: "):
        load(folder, roberta_tokens)


def test_vocab_json_needs_merges_txt(roberta_tokens, merges_folder, load):
    """One file alone is no tokenizer, and the error says which is missing."""
    folder = merges_folder()
    (folder / "merges.txt").unlink()
    with pytest.raises(
        InputError, match="vocab.json with merges.txt, but only vocab.json without merges.txt is there$"
    ):
        load(folder, roberta_tokens)


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
    with pytest.raises(InputError) as caught:
        load(folder, family)
    assert str(caught.value) == (
        f"{folder}/{name}: the vocabulary lacks <s>, <mask>, which the architecture needs (it has [CLS], [MASK]); "
        "take the tokenizer that belongs to it, or train one"
    )


def test_a_folder_without_tokenizer_is_found_by_check(tmp_path, load):
    """``check`` and the run say which files were looked for."""
    component = Pretrained(path=Source("folder", str(tmp_path)))
    expected = f'no tokenizer in "{tmp_path}": expected tokenizer.json, vocab.txt, or vocab.json with merges.txt'
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
    with pytest.raises(InputError, match='tokenizer.path: run "missing" has kept no model here'):
        Pretrained(path=Source("run", "missing")).build(iter(()), special_tokens)


def test_a_tokenizer_of_the_hub(tmp_path, special_tokens, hub_cache):
    """It is read from the cache; what is not there is not fetched now, and named."""
    trained = WordPiece(vocab_size=100).build(["cafe a"] * 2, special_tokens)
    trained.save(str(tmp_path / "tokenizer.json"))
    component = Pretrained(path=Source("hub", "org/name", "v1"))
    with pytest.raises(
        InputError, match="tokenizer.path: hub:org/name@v1 is not in the cache .*; run and plan fetch it"
    ):
        component.build(iter(()), special_tokens)
    hub_cache("org/name", tmp_path, branch="v1")
    assert component.build(iter(()), special_tokens).to_str() == trained.to_str()


PIPELINE = """
[task]
type = "masked_lm"
[data]
type = "text"
[data.train]
files = ["a.txt"]
[tokenizer]
type = "pretrained"
path = "tokenizer"
[architecture]
type = "bert"
preset = "tiny"
[optimizer]
lr = 0.1
[training]
duration = "1 step"
batch_size = 1
"""


def test_a_run_says_the_notes_once(tmp_path, special_tokens):
    """When it reads the folder; a resume takes the run's own copy and needs neither the folder nor the note."""
    (tmp_path / "a.toml").write_text(PIPELINE)
    (tmp_path / "a.txt").write_text("cafe a\n")
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    WordPiece(vocab_size=100).build(["cafe a"] * 2, special_tokens).save(str(folder / "tokenizer.json"))
    pipeline = config.load(tmp_path / "a.toml", registry=Registry.discover())
    said = []
    for _ in range(2):
        stream = io.StringIO()
        with Console(stream) as console:
            prepare(pipeline, console=console, tokenizer_folder=tmp_path / "own", cache=False)
        said.append(stream.getvalue())
        shutil.rmtree(folder, ignore_errors=True)
    assert said == [f"tokenizer: {folder}/tokenizer.json was read, not vocab.txt beside it\n", ""]
