"""What all readers share: which files are meant, decoding, columns, limits and fingerprints."""

import gzip
import hashlib
import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from rtx_core import DataError
from rtx_plugins.data.common import matches, unpacked_name
from rtx_plugins.data.csv import Csv
from rtx_plugins.data.jsonl import Jsonl
from rtx_plugins.data.text import Text


def packed_as(ending, content):
    """Bytes as the packer of this ending writes them."""
    return gzip.compress(content) if ending == ".gz" else pa.compress(content, codec="zstd", asbytes=True)


def texts(data):
    """The column ``text`` of every record."""
    return [record.values["text"] for record in data.records()]


# --- which files ------------------------------------------------------------------------------------------------------


def test_files_keep_their_order_and_patterns_are_sorted(write):
    """Files are read as listed, those of a pattern by name, and each of them once."""
    for name in ("b.txt", "a.txt", "sub/c.txt", "sub/deep/d.txt", "e.md", ".hidden.txt"):
        file = write(name, f"{Path(name).stem}\n")
    folder = file.parent
    data = Text(files=(folder / "e.md", folder / "**/*.txt", folder / "a.txt"))
    assert texts(data) == ["e", "a", "b", "c", "d"]


def test_a_name_that_looks_like_a_pattern_is_a_name_if_it_exists(write):
    """Brackets in the name of a file, or of the folder that a pattern stands in, are no pattern."""
    file = write("[old]/data[1].txt", "x\n")
    assert matches(file) == [file]
    assert matches(file.parent / "*.txt") == [file]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.txt", "missing.txt: can't be read: No such file or directory"),
        ("none/*.txt", "none/*.txt: no file matches this pattern"),
        ("folder", 'folder: this is a folder; name the files in it, as "folder/*"'),
    ],
)
def test_files_that_are_not_there_are_named(tmp_path, name, message):
    """A missing file, a pattern that matches nothing, and a folder are one error each."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError) as caught:
        list(Text(files=(tmp_path / name,)).records())
    assert str(caught.value) == f"{tmp_path}/{message}"


def test_a_pattern_does_not_match_folders(write):
    """``*`` takes the files beside a folder."""
    file = write("a/x.txt", "x\n")
    write("a/y/z.txt", "z\n")
    assert matches(file.parent / "*") == [file]


def test_files_are_needed():
    """An empty list is refused by the field's validator."""
    with pytest.raises(ValueError, match="files"):
        Text(files=())


# --- what is in them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "content"),
    [(Text, "x\ny\n"), (Jsonl, '{"text": "x"}\n{"text": "y"}\n'), (Csv, "text\nx\ny\n")],
)
@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_packed_files_are_the_same_data(write, component, content, ending):
    """A name that ends in ``.gz`` or ``.zst`` is unpacked; records and fingerprint equal those of the plain file."""
    plain = component(files=(write("a.txt", content),))
    packed = component(files=(write(f"a.txt{ending}", packed_as(ending, content.encode())),))
    assert texts(plain) == texts(packed) == ["x", "y"]
    assert plain.fingerprint() == packed.fingerprint()


def test_a_large_packed_file_is_read_line_by_line(write):
    """Lines come through whole where the file's blocks end within them."""
    content = "".join(f"line {i} " + "é" * (i % 50) + "\n" for i in range(20_000))
    for ending in (".gz", ".zst"):
        file = write(f"a{ending}", packed_as(ending, content.encode()))
        assert texts(Text(files=(file,))) == content.splitlines()


def test_a_file_packed_in_parts_is_read_whole(write):
    """Both formats allow packed files end to end, as parallel packers write them; the case of the name is no matter."""
    for ending in (".gz", ".zst"):
        file = write(f"A{ending.upper()}", packed_as(ending, b"x\n") + packed_as(ending, b"y\n"))
        assert texts(Text(files=(file,))) == ["x", "y"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("A.TSV", "a.tsv"), ("a.csv.gz", "a.csv"), ("a.b.Zst", "a.b"), ("gz", "gz"), ("a.gz.zst", "a.gz")],
)
def test_the_name_of_what_is_packed(name, expected):
    """One ending is taken away, whatever its case."""
    assert unpacked_name(Path(name)) == expected


def test_a_gzipped_tsv_is_a_tsv(write):
    """The ending before ``.gz`` counts."""
    file = write("a.tsv.gz", gzip.compress(b"text\tlabel\nx\ty\n", mtime=0))
    assert texts(Csv(files=(file,))) == ["x"]


@pytest.mark.parametrize("name", ["gone.gz", "gone.zst"])
def test_a_missing_packed_file_is_named(tmp_path, name):
    """In the system's words."""
    with pytest.raises(DataError) as caught:
        list(Text(files=(tmp_path / name,)).records())
    assert str(caught.value) == f"{tmp_path}/{name}: can't be read: No such file or directory"


def test_a_record_knows_its_file_and_line(write):
    """Both are those of the file that it was read from."""
    first, second = write("a.txt", "a\n\nb\n"), write("b.txt", "c\n")
    records = list(Text(files=(first, second)).records())
    assert [(record.file, record.line) for record in records] == [(str(first), 1), (str(first), 3), (str(second), 1)]


def test_one_empty_file_among_others_is_refused(write):
    """The error names the empty one (case 25)."""
    files = (write("a.txt", "a\n"), write("empty.txt", ""))
    with pytest.raises(DataError) as caught:
        list(Text(files=files).records())
    assert str(caught.value) == f"{files[1]}: no records in this file"


def test_reading_starts_afresh_each_time(write):
    """Every call of ``records`` begins at the first record."""
    data = Text(files=(write("a.txt", "a\nb\n"),))
    assert texts(data) == texts(data) == ["a", "b"]


def test_records_are_read_one_by_one(write):
    """The first records come although the file is malformed further on: nothing is read ahead."""
    file = write("a.jsonl", '{"text": "x"}\n{"text": "y"}\nbroken\n')
    assert [record.values["text"] for record in itertools.islice(Jsonl(files=(file,)).records(), 2)] == ["x", "y"]


@pytest.mark.parametrize(
    ("limit", "expected"), [(1, ["a"]), (3, ["a", "b", "c"]), (9, ["a", "b", "c"]), (None, ["a", "b", "c"])]
)
def test_a_limit_counts_records_over_all_files(write, limit, expected):
    """``limit`` keeps the first records; None keeps all."""
    data = Text(files=(write("a.txt", "a\nb\n"), write("b.txt", "c\n")), limit=limit)
    assert texts(data) == expected


def test_a_limit_is_positive(tmp_path):
    """Zero is refused by the field's validator."""
    with pytest.raises(ValueError, match="limit"):
        Text(files=(tmp_path,), limit=0)


# --- columns ----------------------------------------------------------------------------------------------------------


def test_columns_can_swap_their_names(write):
    """All names change at once."""
    data = Csv(files=(write("a.csv", "a,b,c\n1,2,3\n"),), rename={"a": "b", "b": "a"})
    assert [record.values for record in data.records()] == [{"b": "1", "a": "2", "c": "3"}]


def test_a_column_that_only_some_records_have_can_be_renamed(write):
    """A record without it is left as it is."""
    data = Jsonl(files=(write("a.jsonl", '{"a": 1}\n{"b": 2}\n'),), rename={"b": "text"})
    assert [record.values for record in data.records()] == [{"a": 1}, {"text": 2}]


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"body": "text"}, 'a.csv: no column "body" to rename; there are "review", "text"'),
        ({"review": "text"}, 'a.csv:2: rename: the record has "text" already'),
    ],
)
def test_a_rename_that_can_not_be_done_is_refused(write, complaint, rename, message):
    """A column that is not there, or a name that is taken, is one error."""
    file = write("a.csv", "review,text\nx,y\n")
    assert complaint(Csv(files=(file,), rename=rename)) == message


def test_two_columns_can_not_get_one_name(tmp_path):
    """That is reported before any file is read, with the field's name."""
    data = Text(files=(tmp_path,), rename={"a": "text", "b": "text"})
    assert list(data.check()) == [("rename", '2 columns are renamed to "text"')]


# --- fingerprints -----------------------------------------------------------------------------------------------------


def test_the_fingerprint_is_a_hash_of_the_hashes(write):
    """Sha256 over the digest of each file in order, so that where one ends and the next begins counts too."""
    files = (write("a.txt", "ab\n"), write("b.txt", "c\n"))
    digests = b"".join(hashlib.sha256(content).digest() for content in (b"ab\n", b"c\n"))
    assert Text(files=files).fingerprint() == hashlib.sha256(digests).hexdigest()
    assert Text(files=files[::-1]).fingerprint() != Text(files=files).fingerprint()


def test_moved_data_keep_their_fingerprint(write):
    """Names and folders don't count."""
    assert Text(files=(write("a.txt", "x\n"),)).fingerprint() == Text(files=(write("b/c.txt", "x\n"),)).fingerprint()
