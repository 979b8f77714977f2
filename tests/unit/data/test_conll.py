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


@pytest.mark.parametrize(
    ("content", "settings", "expected"),
    [
        ("a O\nb O", {}, [(1, ["a", "b"])]),
        ("\n\n \t\na O\n\n\n\nb O\n\n", {}, [(4, ["a"]), (8, ["b"])]),
        ("a O\r\n\r\nb O\r\n", {}, [(1, ["a"]), (3, ["b"])]),
        ("\ufeffa O\n", {}, [(1, ["a"])]),
        (" a  O \n\tb\t\tO\n", {}, [(1, ["a", "b"])]),
        ("10\u00a0000 O\nx\u2028y O\nz\u0085 O\n", {}, [(1, ["10\u00a0000", "x\u2028y", "z\u0085"])]),
        ("שלום O\n😀 O\n", {}, [(1, ["שלום", "😀"])]),
        ("New York\tO\n", {"delimiter": "\t"}, [(1, ["New York"])]),
        ("a|\n|O\n", {"delimiter": "|"}, [(1, ["a", ""])]),
        ("\t \na\tO\n", {"delimiter": "\t"}, [(2, ["a"])]),
        ("# one\na O\n# two\nb O\n\n# three\n", {"skip": "# "}, [(2, ["a", "b"])]),
        ("# x\n-DOCSTART- O\n\na O\n", {"skip": ("# ", "-DOCSTART-")}, [(4, ["a"])]),
        ("#tag O\n", {"skip": "# "}, [(1, ["#tag"])]),
        ("a O\n\n" * 3, {"limit": 2}, [(1, ["a"]), (3, ["a"])]),
    ],
)
def test_awkward_files_are_read(write, content, settings, expected):
    """Blank lines, line ends, spaces that are part of a word, comments, and a file without an end of its last line."""
    assert [(line, values["w"]) for line, values in read(write("a.txt", content), **settings)] == expected


def test_columns_can_be_renamed(write):
    """As with every reader of files."""
    assert read(write("a.txt", "a O\n"), rename={"w": "words"}) == [(1, {"words": ["a"], "t": ["O"]})]


def test_packed_files_are_unpacked(write):
    """As with every reader of text."""
    assert read(write("a.txt.gz", gzip.compress(b"a O\n"))) == [(1, {"w": ["a"], "t": ["O"]})]


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("", {}, "a.txt: no records in this file"),
        ("\n \n", {}, "a.txt: no records in this file"),
        ("-DOCSTART- O\n", {"skip": "-DOCSTART-"}, "a.txt: no records in this file"),
        ("a O\n\nb\n", {}, 'a.txt:3: 1 column, expected 2: "w", "t"'),
        ("a O\nNew York O\n", {}, 'a.txt:2: 3 columns, expected 2: "w", "t"'),
        ("a O\n", {"delimiter": "\t"}, 'a.txt:1: 1 column, expected 2: "w", "t"'),
        ("a\tO\t\n", {"delimiter": "\t"}, 'a.txt:1: 3 columns, expected 2: "w", "t"'),
        ("a O\n\u00a0\n", {}, 'a.txt:2: 1 column, expected 2: "w", "t"'),
        ("-DOCSTART- -X- O O\n\na O\n", {}, 'a.txt:1: 4 columns, expected 2: "w", "t"'),
        ("a O\nb\0 O\n", {}, "a.txt:2: a NUL byte at byte 5: this is not UTF-8 text"),
        (b"a O\n\xe4 O\n", {}, "a.txt:2: byte 0xe4 at byte 4 is not UTF-8; save the file as UTF-8"),
        ("a O\n".encode("utf-16"), {}, "a.txt: the file is UTF-16 or UTF-32; save it as UTF-8"),
        ("a O\n", {"rename": {"x": "y"}}, 'a.txt: no column "x" to rename; there are "w", "t"'),
    ],
)
def test_awkward_files_are_refused(write, complaint, content, settings, message):
    """A line with another number of columns, and what is no text, is one error with file and line."""
    assert complaint(Conll(files=(write("a.txt", content),), **{"columns": ("w", "t")} | settings)) == message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": ()}, "columns"),
        ({"columns": ("a", "b", "a")}, '"a" occurs more than once'),
        ({"columns": ("a",), "delimiter": ""}, "delimiter"),
        ({"columns": ("a",), "delimiter": ", "}, "delimiter"),
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
