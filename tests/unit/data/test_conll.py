"""Column files: a word a line, blank lines between sentences."""

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtx_plugins.data.conll import Conll

FIELD = st.text(st.characters(codec="utf-8", exclude_characters=" \t\n\r\0\ufeff"), min_size=1, max_size=6)
ROWS = st.lists(st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=4), min_size=1, max_size=4)


def read(file, **settings):
    """Line and values of each record, of the columns ``w`` and ``t`` unless others are given."""
    return [
        (record.line, record.values)
        for record in Conll(**{"columns": ("w", "t"), "files": (file,)} | settings).records()
    ]


@given(sentences=ROWS, between=st.sampled_from([" ", "\t", "  ", " \t "]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_back(write, sentences, between):
    """Any words and tags come back sentence by sentence, each with the line of its first word."""
    text, expected, line = "", [], 1
    for sentence in sentences:
        words, tags = zip(*sentence, strict=True)
        expected.append((line, {"w": list(words), "t": list(tags)}))
        text += "".join(f"{word}{between}{tag}\n" for word, tag in sentence) + "\n"
        line += len(sentence) + 1
    assert read(write("a.txt", text)) == expected


CONLL_2003 = """\
-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
"""


def test_the_format_of_the_shared_task(write):
    """CoNLL-2003: four columns, and lines that part documents."""
    file = write("train.txt", CONLL_2003)
    assert read(file, columns=("word", "pos", "chunk", "tag"), skip="-DOCSTART-") == [
        (3, {"word": ["EU", "rejects"], "pos": ["NNP", "VBZ"], "chunk": ["I-NP", "I-VP"], "tag": ["I-ORG", "O"]}),
        (6, {"word": ["Peter"], "pos": ["NNP"], "chunk": ["I-NP"], "tag": ["I-PER"]}),
    ]


def test_columns_can_be_renamed(write):
    """As with every reader of files."""
    assert read(write("a.txt", "a O\n"), rename={"w": "words"}) == [(1, {"words": ["a"], "t": ["O"]})]


def test_packed_files_are_unpacked(write):
    """As with every reader of text."""
    assert read(write("a.txt.gz", gzip.compress(b"a O\n"))) == [(1, {"w": ["a"], "t": ["O"]})]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": ()}, "columns"),
        ({"columns": ("a", "b", "a")}, '"a" occurs more than once'),
        ({"columns": ("a",), "delimiter": ""}, 'must be one character, and no line\'s end, got ""'),
        ({"columns": ("a",), "delimiter": ", "}, 'must be one character, and no line\'s end, got ", "'),
    ],
)
def test_settings_that_make_no_sense(tmp_path, settings, message):
    """No columns, two with one name, and a delimiter that is no character are refused by the fields' validators."""
    with pytest.raises(ValueError, match=message):
        Conll(files=(tmp_path,), **settings)


@pytest.mark.parametrize("skip", ["", ("# ", "")])
def test_not_everything_can_be_skipped(tmp_path, skip):
    """An empty beginning is reported with the field's name."""
    data = Conll(files=(tmp_path,), columns=("w",), skip=skip)
    assert list(data.check()) == [("skip", "every line begins with an empty text; leave it out")]
