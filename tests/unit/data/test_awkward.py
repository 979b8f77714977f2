r"""A table of awkward files: what each reader makes of one, or the error that it gives.

A row is: name, format, file, its content, settings, and what is expected: the records as ``(line, values)``, or the error
without the folder's name. Where an error ends in a library's own words, ``…`` stands for them.
"""

# ruff: noqa: E501 - a table has a row a line

import datetime as dt
import gzip
import io
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rtx_core import DataError
from rtx_plugins.data.arrow import Arrow
from rtx_plugins.data.conll import Conll
from rtx_plugins.data.csv import Csv
from rtx_plugins.data.jsonl import Jsonl
from rtx_plugins.data.parquet import Parquet
from rtx_plugins.data.spans import Spans
from rtx_plugins.data.text import Text

FORMATS = {
    "text": Text,
    "csv": Csv,
    "jsonl": Jsonl,
    "conll": Conll,
    "spans": Spans,
    "parquet": Parquet,
    "arrow": Arrow,
}

FOLDER = object()
"""In place of a file's content: a folder has its name."""
NOTHING = object()
"""In place of a file's content: there is nothing of its name."""

WT = {"columns": ("w", "t")}
NOON = dt.datetime.fromisoformat("2020-02-29T12:00")
LONG = "x" * 5_000_000
DIGITS = "1" * 5000


def gz(text):
    return gzip.compress(text.encode(), mtime=0)


def zst(text):
    return pa.compress(text.encode(), codec="zstd", asbytes=True)


def parquet(*values, kind=None, **options):
    out = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array(values, kind)}), out, **options)
    return out.getvalue()


def stream(*values, kind=None):
    table, out = pa.table({"a": pa.array(values, kind)}), io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def feather(*values, kind=None):
    table, out = pa.table({"a": pa.array(values, kind)}), io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def damaged(content, place):
    """The bytes with eight of them turned around."""
    return content[:place] + bytes(byte ^ 0xFF for byte in content[place : place + 8]) + content[place + 8 :]


def one(*rows):
    """Records of one column each, on consecutive lines from the first."""
    return [(line, {"text": row}) for line, row in enumerate(rows, start=1)]


def spans(text, *entries):
    return json.dumps({"text": text, "spans": entries}, ensure_ascii=False)


def span(start, end, label="A"):
    return {"start": start, "end": end, "label": label}


NO_RECORDS = "a: no records in this file"
NOT_UTF_8 = "is not UTF-8; save the file as UTF-8"
UTF_16 = "a: the file is UTF-16 or UTF-32; save it as UTF-8"
OLD_MAC = r"a: lines end in \r alone, as on old Macs; end them with \n or \r\n"
WHOLE = "each line must be one whole object"
SURROGATE = "is half of a surrogate pair; the other half is missing"

TABLE = [
    # --- plain text: bytes, lines ---------------------------------------------------------------------------------
    ("text: 0 bytes (case 25)", "text", "a", "", {}, NO_RECORDS),
    ("text: blank lines alone", "text", "a", "\n \n\t\n\u00a0\n", {}, NO_RECORDS),
    ("text: no end of the last line", "text", "a", "x\ny", {}, one("x", "y")),
    ("text: CRLF leaves no trace (case 26)", "text", "a", "x\r\ny\r\n", {}, one("x", "y")),
    ("text: CR alone, several", "text", "a", "x\ry\rz\r", {}, OLD_MAC),
    ("text: CR alone, no last", "text", "a", "x\ry", {}, OLD_MAC),
    ("text: CR within a line", "text", "a", "10 %\r20 %\nx\n", {}, one("10 %\r20 %", "x")),
    ("text: one line that ends in CR", "text", "a", "x\r", {}, one("x")),
    ("text: U+2028 U+0085 FF are content (26)", "text", "a", "a\u2028b\nc\fd\ne\x85f\n", {}, one("a\u2028b", "c\fd", "e\x85f")),
    ("text: VT, FS, U+2029 are content", "text", "a", "a\x0bb\x1cc\u2029d\n", {}, one("a\x0bb\x1cc\u2029d")),
    ("text: BOM", "text", "a", "\ufeffx\n", {}, one("x")),
    ("text: BOM alone", "text", "a", "\ufeff\n", {}, NO_RECORDS),
    ("text: BOM of a file appended to another", "text", "a", "x\n\ufeffy\n", {}, one("x", "\ufeffy")),
    ("text: NUL", "text", "a", b"x\ny\0z\n", {}, "a:2: a NUL byte at byte 3: this is not UTF-8 text"),
    ("text: Latin-1", "text", "a", b"x\nM\xfcller\n", {}, f"a:2: byte 0xfc at byte 3 {NOT_UTF_8}"),
    ("text: cut within a character", "text", "a", b"x\nab\xc3", {}, f"a:2: byte 0xc3 at byte 4 {NOT_UTF_8}"),
    ("text: half a surrogate as bytes", "text", "a", b"\xed\xa0\x80\n", {}, f"a:1: byte 0xed at byte 0 {NOT_UTF_8}"),
    ("text: an overlong encoding", "text", "a", b"\xc0\xaf\n", {}, f"a:1: byte 0xc0 at byte 0 {NOT_UTF_8}"),
    ("text: beyond Unicode", "text", "a", b"\xf5\x80\x80\x80\n", {}, f"a:1: byte 0xf5 at byte 0 {NOT_UTF_8}"),
    ("text: UTF-16 with BOM", "text", "a", "x\n".encode("utf-16"), {}, UTF_16),
    ("text: UTF-16 BE with BOM", "text", "a", b"\xfe\xff\0x\0\n", {}, UTF_16),
    ("text: UTF-32 with BOM", "text", "a", "x\n".encode("utf-32"), {}, UTF_16),
    ("text: UTF-16 without BOM", "text", "a", "x\n".encode("utf-16-le"), {}, "a:1: a NUL byte at byte 1: this is not UTF-8 text"),
    ("text: 5 MB in a line", "text", "a", f"{LONG}\ny\n", {}, one(LONG, "y")),
    ("text: an emoji of several characters", "text", "a", "👩\u200d👩\u200d👧 🇩🇪\n", {}, one("👩\u200d👩\u200d👧 🇩🇪")),
    ("text: right to left", "text", "a", "\u200fשלום\u202b مرحبا\n", {}, one("\u200fשלום\u202b مرحبا")),
    ("text: combining marks stay apart", "text", "a", "e\u0301 é\n", {}, one("e\u0301 é")),
    ("text: 1,000 marks on a letter", "text", "a", "e" + "\u0301" * 1000 + "\n", {}, one("e" + "\u0301" * 1000)),
    ("text: a paragraph of CRLF lines", "text", "a", "x\r\ny\r\n\r\nz", {"unit": "paragraph"}, [(1, {"text": "x\ny"}), (4, {"text": "z"})]),
    # --- which files, limits, names -------------------------------------------------------------------------------
    ("file: missing", "text", "gone", NOTHING, {}, "gone: can't be read: No such file or directory"),
    ("file: a folder of its name", "text", "a", FOLDER, {}, 'a: this is a folder; name the files in it, as "a/*"'),
    ("file: a pattern without match", "text", "*.txt", NOTHING, {}, "*.txt: no file matches this pattern"),
    ("file: a folder that isn't there", "jsonl", "x/a.jsonl", NOTHING, {}, "x/a.jsonl: can't be read: No such file or directory"),
    ("file: a name with spaces and brackets", "text", "a [1] ü.txt", "x\n", {}, one("x")),
    ("limit: larger than the file", "text", "a", "x\ny\n", {"limit": 99}, one("x", "y")),
    ("limit: what is beyond is not read", "jsonl", "a", '{"text": "x"}\nbroken\n', {"limit": 1}, one("x")),
    ("rename: the name is taken", "csv", "a", "a,text\n1,2\n", {"rename": {"a": "text"}}, 'a:2: rename: the record has "text" already'),
    ("rename: a swap", "csv", "a", "a,b\n1,2\n", {"rename": {"a": "b", "b": "a"}}, [(2, {"b": "1", "a": "2"})]),
    ("rename: no such column", "csv", "a", "b\n1\n", {"rename": {"a": "c"}}, 'a: no column "a" to rename; there are "b"'),
    # --- packed ---------------------------------------------------------------------------------------------------
    ("gz", "text", "a.gz", gz("x\ny\n"), {}, one("x", "y")),
    ("gz: two files end to end", "text", "a.gz", gz("x\n") + gz("y\n"), {}, one("x", "y")),
    ("gz: of nothing", "text", "a.gz", gz(""), {}, "a.gz: no records in this file"),
    ("gz: 0 bytes", "text", "a.gz", b"", {}, "a.gz: no records in this file"),
    ("gz: plain text", "text", "a.gz", b"x\n", {}, "a.gz: can't be read: Not a gzipped file (b'x\\n')"),
    ("gz: cut", "text", "a.gz", gz("x\n" * 9)[:-9], {}, "a.gz: can't be read: Compressed file ended before the end-of-stream marker was reached"),
    ("gz: its checksum", "text", "a.gz", gz("x\n")[:-8] + bytes(8), {}, "a.gz: can't be read: CRC check failed…"),
    ("gz: damaged within", "text", "a.gz", damaged(gz("".join(map(str, range(99)))), 20), {}, "a.gz: can't be read: …"),
    ("gz: not UTF-8 inside", "text", "a.gz", gzip.compress(b"\xff\n"), {}, f"a.gz:1: byte 0xff at byte 0 {NOT_UTF_8}"),
    ("gz: of a TSV", "csv", "a.tsv.gz", gz("a\tb\n1\t2\n"), {}, [(2, {"a": "1", "b": "2"})]),
    ("zst", "jsonl", "a.jsonl.zst", zst('{"text": "x"}\n'), {}, one("x")),
    ("zst: two files end to end", "text", "a.ZST", zst("x\n") + zst("y\n"), {}, one("x", "y")),
    ("zst: plain text", "text", "a.zst", b"x\n", {}, "a.zst: can't be read: …"),
    ("zst: cut", "text", "a.zst", zst("x\n" * 1000)[:-5], {}, "a.zst: can't be read: …"),
    ("zst: more after it", "text", "a.zst", zst("x\n") + b"and more", {}, "a.zst: can't be read: …"),
    # --- csv ------------------------------------------------------------------------------------------------------
    ("csv: 0 bytes (case 25)", "csv", "a", "", {}, NO_RECORDS),
    ("csv: a header alone (case 25)", "csv", "a", "text,label\n", {}, NO_RECORDS),
    ("csv: a header and blank lines", "csv", "a", "text,label\n\n\n", {}, NO_RECORDS),
    ("csv: null words stay text (case 24)", "csv", "a", "text\nnull\nNA\nNone\nnan\n007\n", {}, [(i + 2, {"text": v}) for i, v in enumerate(["null", "NA", "None", "nan", "007"])]),
    ("csv: truth and numbers stay text", "csv", "a", "a,b,c\ntrue,1.50,1e5\n", {}, [(2, {"a": "true", "b": "1.50", "c": "1e5"})]),
    ("csv: an empty field is an empty text (24)", "csv", "a", "a,b\n,\n", {}, [(2, {"a": "", "b": ""})]),
    ("csv: the only field, empty", "csv", "a", 'a\n""\n', {}, [(2, {"a": ""})]),
    ("csv: BOM is no part of a name (case 26)", "csv", "a", "\ufefftext\r\nx\r\n", {}, [(2, {"text": "x"})]),
    ("csv: BOM before quotes", "csv", "a", '\ufeff"a,b",c\n1,2\n', {}, [(2, {"a,b": "1", "c": "2"})]),
    ("csv: no end of the last line", "csv", "a", "a,b\n1,2", {}, [(2, {"a": "1", "b": "2"})]),
    ("csv: blank lines anywhere", "csv", "a", '\n"a",b\n\n\n1,2\n\n', {}, [(5, {"a": "1", "b": "2"})]),
    ("csv: quotes over several lines", "csv", "a", 'a,b\n"x\n\ny",1\nz,2\n', {}, [(2, {"a": "x\n\ny", "b": "1"}), (5, {"a": "z", "b": "2"})]),
    ("csv: CRLF within quotes", "csv", "a", 'a,b\r\n"x\r\ny",1\r\n', {}, [(2, {"a": "x\ny", "b": "1"})]),
    ("csv: doubled quotes", "csv", "a", 'a,b\n"say ""hi""",5" pipe\n', {}, [(2, {"a": 'say "hi"', "b": '5" pipe'})]),
    ("csv: spaces stay", "csv", "a", "a, b\n x , y \n", {}, [(2, {"a": " x ", " b": " y "})]),
    ("csv: U+2028, U+0085", "csv", "a", "a,b\nx\u2028y,\x85\n", {}, [(2, {"a": "x\u2028y", "b": "\x85"})]),
    ("csv: form feed, vertical tab", "csv", "a", "a,b\nx\fy,\x0b\n", {}, [(2, {"a": "x\fy", "b": "\x0b"})]),
    ("csv: emoji, right to left, marks", "csv", "a", "😀,שלום\ne\u0301,\u202eabc\n", {}, [(2, {"😀": "e\u0301", "שלום": "\u202eabc"})]),
    ("csv: 5 MB in a field", "csv", "a", f"a,b\n{LONG},2\n", {}, [(2, {"a": LONG, "b": "2"})]),
    ("csv: an empty name, as pandas writes it", "csv", "a", ",b\n0,x\n", {}, [(2, {"": "0", "b": "x"})]),
    ("csv: two empty names", "csv", "a", "a,,\n1,2,3\n", {}, 'a:1: the header has "" more than once'),
    ("csv: a name twice", "csv", "a", "\na,b,a\n1,2,3\n", {}, 'a:2: the header has "a" more than once'),
    ("csv: a short row", "csv", "a", "a,b\n1\n", {}, "a:2: 1 field, the header has 2; quote what holds the delimiter"),
    ("csv: a long row after quoted lines", "csv", "a", 'a,b\n"x\ny",1\nx,y,2\n', {}, "a:4: 3 fields, the header has 2; quote what holds the delimiter"),
    ("csv: a delimiter too many at each end", "csv", "a", "a,b\n1,2,\n", {}, "a:2: 3 fields, the header has 2; quote what holds the delimiter"),
    ("csv: spaces are no blank line", "csv", "a", "a,b\n  \n", {}, "a:2: 1 field, the header has 2; quote what holds the delimiter"),
    ("csv: an unclosed quote", "csv", "a", 'a,b\nx,1\n"y,2\nz,3\n', {}, 'a:3: not CSV: a quote opens in this row and never closes; quotechar = "" reads quotes as text'),
    ("csv: text after a quote", "csv", "a", 'a,b\n"x"y,1\n', {}, "a:2: not CSV: ',' expected after '\"'; write a quote in a quoted field twice, or set quotechar = \"\" to read quotes as text"),
    ("csv: CR alone", "csv", "a", "a,b\r1,2\r3,4\r", {}, OLD_MAC),
    ("csv: CR within a line", "csv", "a", "a,b\n1,2\r3,4\n", {}, r"a:2: not CSV: a carriage return in the middle of a line; end lines with \n or \r\n"),
    ("csv: NUL", "csv", "a", b"a\nx\0y\n", {}, "a:2: a NUL byte at byte 3: this is not UTF-8 text"),
    ("csv: Latin-1 within quotes", "csv", "a", b'a\n"x\n\xe4"\n', {}, f"a:3: byte 0xe4 at byte 5 {NOT_UTF_8}"),
    ("csv: UTF-16, as Excel's Unicode text", "csv", "a", "a\tb\n".encode("utf-16"), {}, UTF_16),
    ("csv: semicolons", "csv", "a", "a;b\nx,y;2\n", {"delimiter": ";"}, [(2, {"a": "x,y", "b": "2"})]),
    ("csv: semicolons unsaid, commas within", "csv", "a", "a;b\nx,y;2\n", {}, 'a:2: 2 fields, the header has 1; if the header names several columns, write delimiter = ";"'),
    ("csv: tabs unsaid", "csv", "a", "a\tb\nx,y\t2\n", {}, r'a:2: 2 fields, the header has 1; if the header names several columns, write delimiter = "\t"'),
    ("csv: bars unsaid", "csv", "a", "a|b\nx,y|2\n", {}, 'a:2: 2 fields, the header has 1; if the header names several columns, write delimiter = "|"'),
    ("csv: other quotes", "csv", "a", "a,b\n'x,y',2\n", {"quotechar": "'"}, [(2, {"a": "x,y", "b": "2"})]),
    ("csv: quotes as text", "csv", "a", 'a,b\n"x,2\n', {"quotechar": ""}, [(2, {"a": '"x', "b": "2"})]),
    ("tsv: tabs in quotes", "csv", "a.tsv", 'a\tb\n"x\ty"\t2\n', {}, [(2, {"a": "x\ty", "b": "2"})]),
    ("tsv: commas", "csv", "A.TSV", "a\tb\nx,y\t2\n", {}, [(2, {"a": "x,y", "b": "2"})]),
    ("tsv: with commas after all", "csv", "a.tsv", "a,b\nx,2\n", {"delimiter": ","}, [(2, {"a": "x", "b": "2"})]),
    # --- jsonl ----------------------------------------------------------------------------------------------------
    ("jsonl: 0 bytes (case 25)", "jsonl", "a", "", {}, NO_RECORDS),
    ("jsonl: blank lines alone", "jsonl", "a", "\n \n\t\r\n", {}, NO_RECORDS),
    ("jsonl: no end of the last line", "jsonl", "a", '{"a": 1}', {}, [(1, {"a": 1})]),
    ("jsonl: CRLF and blank lines", "jsonl", "a", '{"a": 1}\r\n\r\n \t\n{"b": 2}\r\n', {}, [(1, {"a": 1}), (4, {"b": 2})]),
    ("jsonl: CR alone", "jsonl", "a", '{"a": 1}\r{"a": 2}\r', {}, OLD_MAC),
    ("jsonl: BOM", "jsonl", "a", '\ufeff{"a": 1}\n', {}, [(1, {"a": 1})]),
    ("jsonl: BOM of an appended file", "jsonl", "a", '{"a": 1}\n\ufeff{"a": 2}\n', {}, f"a:2: column 1: not JSON: Expecting value; {WHOLE}"),
    ("jsonl: U+2028, U+0085", "jsonl", "a", '{"a": "x\u2028y\x85z"}\n', {}, [(1, {"a": "x\u2028y\x85z"})]),
    ("jsonl: a raw form feed", "jsonl", "a", '{"a": "x\fy"}\n', {}, f"a:1: column 9: not JSON: Invalid control character at; {WHOLE}"),
    ("jsonl: an escaped form feed", "jsonl", "a", r'{"a": "x\fy"}', {}, [(1, {"a": "x\fy"})]),
    ("jsonl: mixed types are kept", "jsonl", "a", '{"a": 1}\n{"a": "1"}\n{"a": [1]}\n{"a": null}\n{"a": true}\n', {}, [(i + 1, {"a": v}) for i, v in enumerate([1, "1", [1], None, True])]),
    ("jsonl: truth as text", "jsonl", "a", '{"a": "true"}\n', {}, [(1, {"a": "true"})]),
    ("jsonl: records with other keys", "jsonl", "a", '{"a": 1}\n{}\n', {}, [(1, {"a": 1}), (2, {})]),
    ("jsonl: nested objects", "jsonl", "a", '{"a": {"b": [{"c": null}]}}\n', {}, [(1, {"a": {"b": [{"c": None}]}})]),
    ("jsonl: an empty key", "jsonl", "a", '{"": 1}\n', {}, [(1, {"": 1})]),
    ("jsonl: a key twice", "jsonl", "a", '{"a": 1, "b": 2, "a": 3}\n', {}, 'a:1: the key "a" stands in one object more than once'),
    ("jsonl: a key twice, deep", "jsonl", "a", '{"x": {"a": 1, "a": 3}}\n', {}, 'a:1: the key "a" stands in one object more than once'),
    ("jsonl: NaN", "jsonl", "a", '{"a": NaN}\n', {}, "a:1: NaN is not JSON; write null, or leave the row out"),
    ("jsonl: Infinity", "jsonl", "a", '{"a": -Infinity}\n', {}, "a:1: -Infinity is not JSON; write null, or leave the row out"),
    ("jsonl: NaN as text", "jsonl", "a", '{"a": "NaN"}\n', {}, [(1, {"a": "NaN"})]),
    ("jsonl: too large for a float", "jsonl", "a", '{"a": 1e999}\n', {}, "a:1: 1e999 is too large for a float"),
    ("jsonl: too small for a float", "jsonl", "a", '{"a": 1e-999}\n', {}, [(1, {"a": 0.0})]),
    ("jsonl: beyond 64 bits", "jsonl", "a", '{"a": 123456789012345678901234567890}\n', {}, [(1, {"a": 123456789012345678901234567890})]),
    ("jsonl: a number of 5,000 digits", "jsonl", "a", f'{{"a": {DIGITS}}}', {}, "a:1: a number of more than 4,300 digits is too long"),
    ("jsonl: an emoji as two escapes", "jsonl", "a", r'{"a": "\ud83d\ude00"}', {}, [(1, {"a": "😀"})]),
    ("jsonl: half a surrogate pair", "jsonl", "a", r'{"a": "\ud83d!"}', {}, rf"a:1: \ud83d {SURROGATE}"),
    ("jsonl: the other half, in a key", "jsonl", "a", r'{"\uDC00": 1}', {}, rf"a:1: \udc00 {SURROGATE}"),
    ("jsonl: a surrogate's spelling as text", "jsonl", "a", r'{"a": "\\ud83d"}', {}, [(1, {"a": r"\ud83d"})]),
    ("jsonl: an escaped NUL", "jsonl", "a", r'{"a": "x\u0000y"}', {}, [(1, {"a": "x\0y"})]),
    ("jsonl: no quotes around a key", "jsonl", "a", '\n{"a": 1, b: 2}\n', {}, f"a:2: column 10: not JSON: Expecting property name enclosed in double quotes; {WHOLE}"),
    ("jsonl: Python's quotes", "jsonl", "a", "{'a': 1}\n", {}, f"a:1: column 2: not JSON: Expecting property name enclosed in double quotes; {WHOLE}"),
    ("jsonl: a comma too many", "jsonl", "a", '{"a": 1,}\n', {}, "a:1: column …"),
    ("jsonl: a colon missing after BOM", "jsonl", "a", '\ufeff{"a" 1}\n', {}, f"a:1: column 6: not JSON: Expecting ':' delimiter; {WHOLE}"),
    ("jsonl: two objects on a line", "jsonl", "a", '{"a": 1} {"a": 2}\n', {}, f"a:1: column 10: not JSON: Extra data; {WHOLE}"),
    ("jsonl: an unclosed text", "jsonl", "a", '{"a": "x\n', {}, f"a:1: column 7: not JSON: Unterminated string starting at; {WHOLE}"),
    ("jsonl: an object over several lines", "jsonl", "a", '{\n"a": 1\n}\n', {}, f"a:1: column 2: not JSON: Expecting property name enclosed in double quotes; {WHOLE}"),
    ("jsonl: an array over several lines", "jsonl", "a", '[\n{"a": 1}\n]\n', {}, f"a:1: column 2: not JSON: Expecting value; {WHOLE}"),
    ("jsonl: a list", "jsonl", "a", '["a"]\n', {}, 'a:1: expected an object in braces, got ["a"]'),
    ("jsonl: null", "jsonl", "a", "null\n", {}, "a:1: expected an object in braces, got null"),
    ("jsonl: 100,000 brackets", "jsonl", "a", "[" * 100_000, {}, "a:1: nested too deeply to be read"),
    ("jsonl: a CSV", "jsonl", "a", "text,label\nx,y\n", {}, f"a:1: column 1: not JSON: Expecting value; {WHOLE}"),
    ("jsonl: Latin-1", "jsonl", "a", b'{"a": "x"}\n{"a": "\xe4"}\n', {}, f"a:2: byte 0xe4 at byte 18 {NOT_UTF_8}"),
    ("jsonl: 5 MB in a line", "jsonl", "a", f'{{"text": "{LONG}"}}\n', {}, one(LONG)),
    # --- conll ----------------------------------------------------------------------------------------------------
    ("conll: 0 bytes (case 25)", "conll", "a", "", WT, NO_RECORDS),
    ("conll: blank lines alone", "conll", "a", "\n \n", WT, NO_RECORDS),
    ("conll: without blank lines it is one sentence", "conll", "a", "a O\nb O", WT, [(1, {"w": ["a", "b"], "t": ["O", "O"]})]),
    ("conll: many blank lines", "conll", "a", "\n\n \t\na O\n\n\n\nb O\n\n", WT, [(4, {"w": ["a"], "t": ["O"]}), (8, {"w": ["b"], "t": ["O"]})]),
    ("conll: CRLF", "conll", "a", "a O\r\n\r\nb O\r\n", WT, [(1, {"w": ["a"], "t": ["O"]}), (3, {"w": ["b"], "t": ["O"]})]),
    ("conll: CR alone", "conll", "a", "a O\rb O\r", WT, OLD_MAC),
    ("conll: BOM", "conll", "a", "\ufeffa O\n", WT, [(1, {"w": ["a"], "t": ["O"]})]),
    ("conll: runs of spaces and tabs", "conll", "a", " a  O \n\tb\t\tO\n", WT, [(1, {"w": ["a", "b"], "t": ["O", "O"]})]),
    ("conll: other spaces are part of a word", "conll", "a", "10\u00a00 O\nx\u2028y O\nz\x85 O\n", WT, [(1, {"w": ["10\u00a00", "x\u2028y", "z\x85"], "t": ["O"] * 3})]),
    ("conll: right to left, emoji", "conll", "a", "שלום O\n😀 O\n", WT, [(1, {"w": ["שלום", "😀"], "t": ["O", "O"]})]),
    ("conll: words with spaces", "conll", "a", "New York\tO\n", WT | {"delimiter": "\t"}, [(1, {"w": ["New York"], "t": ["O"]})]),
    ("conll: empty fields", "conll", "a", "a|\n|O\n", WT | {"delimiter": "|"}, [(1, {"w": ["a", ""], "t": ["", "O"]})]),
    ("conll: a blank line with tabs", "conll", "a", "\t \na\tO\n", WT | {"delimiter": "\t"}, [(2, {"w": ["a"], "t": ["O"]})]),
    ("conll: comments", "conll", "a", "# one\na O\n# two\nb O\n\n# three\n", WT | {"skip": "# "}, [(2, {"w": ["a", "b"], "t": ["O", "O"]})]),
    ("conll: a word that looks like one", "conll", "a", "#tag O\n", WT | {"skip": "# "}, [(1, {"w": ["#tag"], "t": ["O"]})]),
    ("conll: DOCSTART passed over", "conll", "a", "# x\n-DOCSTART- O\n\na O\n", WT | {"skip": ("# ", "-DOCSTART-")}, [(4, {"w": ["a"], "t": ["O"]})]),
    ("conll: nothing but DOCSTART", "conll", "a", "-DOCSTART- O\n", WT | {"skip": "-DOCSTART-"}, NO_RECORDS),
    ("conll: DOCSTART with its own columns", "conll", "a", "-DOCSTART- -X- O O\n\na O\n", WT, 'a:1: 4 columns, expected 2: "w", "t"'),
    ("conll: a column missing", "conll", "a", "a O\n\nb\n", WT, 'a:3: 1 column, expected 2: "w", "t"'),
    ("conll: a column too many", "conll", "a", "a O\nNew York O\n", WT, 'a:2: 3 columns, expected 2: "w", "t"'),
    ("conll: another delimiter", "conll", "a", "a O\n", WT | {"delimiter": "\t"}, 'a:1: 1 column, expected 2: "w", "t"'),
    ("conll: a delimiter at the end", "conll", "a", "a\tO\t\n", WT | {"delimiter": "\t"}, 'a:1: 3 columns, expected 2: "w", "t"'),
    ("conll: a no-break space is no blank line", "conll", "a", "a O\n\u00a0\n", WT, 'a:2: 1 column, expected 2: "w", "t"'),
    ("conll: NUL", "conll", "a", "a O\nb\0 O\n", WT, "a:2: a NUL byte at byte 5: this is not UTF-8 text"),
    ("conll: Latin-1", "conll", "a", b"a O\n\xe4 O\n", WT, f"a:2: byte 0xe4 at byte 4 {NOT_UTF_8}"),
    ("conll: UTF-16", "conll", "a", "a O\n".encode("utf-16"), WT, UTF_16),
    ("conll: limit counts sentences", "conll", "a", "a O\n\nb O\n\nc O\n", WT | {"limit": 1}, [(1, {"w": ["a"], "t": ["O"]})]),
    ("conll: rename what isn't there", "conll", "a", "a O\n", WT | {"rename": {"x": "y"}}, 'a: no column "x" to rename; there are "w", "t"'),
    # --- spans ----------------------------------------------------------------------------------------------------
    ("spans: none", "spans", "a", spans("x"), {}, [(1, {"text": "x", "spans": []})]),
    ("spans: side by side", "spans", "a", spans("ab", span(1, 2), span(0, 1)), {}, [(1, {"text": "ab", "spans": [span(0, 1), span(1, 2)]})]),
    ("spans: an emoji is one character", "spans", "a", spans("😀 Anna", span(2, 6)), {}, [(1, {"text": "😀 Anna", "spans": [span(2, 6)]})]),
    ("spans: offsets of UTF-16 leave the text", "spans", "a", spans("😀 Anna", span(3, 7)), {}, "a:1: span 1: 3 to 7 is not in the text, which has 6 characters"),
    ("spans: offsets of UTF-16 beside the word", "spans", "a", spans("😀 Anna sah", span(3, 7) | {"text": "Anna"}), {}, 'a:1: span 1: 3 to 7 is "nna ", but the span says "Anna"; offsets count characters, not bytes or UTF-16 units'),
    ("spans: a mark may be cut from its letter", "spans", "a", spans("e\u0301x", span(0, 1)), {}, [(1, {"text": "e\u0301x", "spans": [span(0, 1)]})]),
    ("spans: half a surrogate pair in the text", "spans", "a", r'{"text": "\ud83d", "spans": []}', {}, rf"a:1: \ud83d {SURROGATE}"),
    ("spans: out of the text", "spans", "a", spans("abc", span(1, 4)), {}, "a:1: span 1: 1 to 4 is not in the text, which has 3 characters"),
    ("spans: before the text", "spans", "a", spans("abc", span(-1, 2)), {}, "a:1: span 1: -1 to 2 is not in the text, which has 3 characters"),
    ("spans: backwards", "spans", "a", spans("abc", span(2, 1)), {}, "a:1: span 1: 2 to 1 is not in the text, which has 3 characters"),
    ("spans: empty", "spans", "a", spans("abc", span(1, 1)), {}, "a:1: span 1: 1 to 1 holds no character"),
    ("spans: in an empty text", "spans", "a", spans("", span(0, 1)), {}, "a:1: span 1: 0 to 1 is not in the text, which has 0 characters"),
    ("spans: crossing", "spans", "a", spans("abcd", span(0, 3), span(2, 4, "B")), {}, 'a:1: 0 to 3 ("A") and 2 to 4 ("B") overlap'),
    ("spans: one within another", "spans", "a", spans("abcd", span(0, 4), span(1, 2)), {}, 'a:1: 0 to 4 ("A") and 1 to 2 ("A") overlap'),
    ("spans: twice the same", "spans", "a", spans("abcd", span(0, 1), span(0, 1)), {}, 'a:1: 0 to 1 ("A") and 0 to 1 ("A") overlap'),
    ("spans: over a blank line in an array", "spans", "a", f"[\n\n{spans('x')},\n{spans('y')}]", {}, [(3, {"text": "x", "spans": []}), (4, {"text": "y", "spans": []})]),
    ("spans: CRLF in an array", "spans", "a", f"[\r\n{spans('x')}\r\n]\r\n", {}, [(2, {"text": "x", "spans": []})]),
    ("spans: offsets as text", "spans", "a", spans("abc", span("0", 1)), {}, 'a:1: span 1: start: expected a whole number of characters, got "0"'),
    # --- parquet and arrow ----------------------------------------------------------------------------------------
    ("parquet: null alone", "parquet", "a", parquet(None, None), {}, [(1, {"a": None}), (2, {"a": None})]),
    ("parquet: dictionary", "parquet", "a", parquet("x", "y", "x", kind=pa.dictionary(pa.int8(), pa.string())), {}, [(i + 1, {"a": v}) for i, v in enumerate("xyx")]),
    ("parquet: timestamp", "parquet", "a", parquet(NOON, kind=pa.timestamp("ms")), {}, [(1, {"a": NOON})]),
    ("parquet: decimal", "parquet", "a", parquet(Decimal("-0.10"), kind=pa.decimal128(9, 2)), {}, [(1, {"a": Decimal("-0.10")})]),
    ("parquet: half floats", "parquet", "a", parquet(1.5, kind=pa.float16()), {}, [(1, {"a": 1.5})]),
    ("parquet: unsigned 64 bits", "parquet", "a", parquet(2**64 - 1, kind=pa.uint64()), {}, [(1, {"a": 2**64 - 1})]),
    ("parquet: lone NUL, U+2028", "parquet", "a", parquet("x\0y\u2028"), {}, [(1, {"a": "x\0y\u2028"})]),
    ("parquet: no rows", "parquet", "a", parquet(kind=pa.string()), {}, NO_RECORDS),
    ("parquet: 0 bytes (case 25)", "parquet", "a", b"", {}, "a: can't be read: Parquet file size is 0 bytes"),
    ("parquet: cut", "parquet", "a", parquet(*map(str, range(99)))[:-1], {}, "a: can't be read: …"),
    ("parquet: damaged pages", "parquet", "a", damaged(parquet(*map(str, range(99)), compression="zstd"), 40), {}, "a: can't be read: …"),
    ("parquet: a column that isn't there", "parquet", "a", parquet(1), {"columns": ("b",)}, 'a: no column "b"; there are "a"'),
    ("parquet: is arrow", "parquet", "a", feather(1), {}, 'a: this is Arrow, not Parquet; write type = "arrow"'),
    ("parquet: is an arrow stream", "parquet", "a", stream(1), {}, "a: can't be read: …"),
    ("parquet: a CSV of its name", "parquet", "a.parquet", b"text,label\nx,y\n", {}, "a.parquet: can't be read: Parquet magic bytes not found in footer. …"),
    ("parquet: packed as a whole", "parquet", "a.gz", b"", {}, "a.gz: Parquet is read in place and can't be packed as a whole; unpack it"),
    ("arrow: a file", "arrow", "a", feather("x", None), {}, [(1, {"a": "x"}), (2, {"a": None})]),
    ("arrow: a stream", "arrow", "a", stream("x", None), {}, [(1, {"a": "x"}), (2, {"a": None})]),
    ("arrow: a stream without its end", "arrow", "a", stream("x")[:-8], {}, [(1, {"a": "x"})]),
    ("arrow: a stream cut in a batch", "arrow", "a", stream("x")[:-16], {}, "a: can't be read: …"),
    ("arrow: a file cut", "arrow", "a", feather("x")[:-8], {}, "a: can't be read: …"),
    ("arrow: 0 bytes (case 25)", "arrow", "a", b"", {}, NO_RECORDS),
    ("arrow: a timestamp's nanoseconds", "arrow", "a", stream(0, kind=pa.timestamp("ns", "UTC")), {}, [(1, {"a": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)})]),
    ("arrow: is parquet", "arrow", "a", parquet(1), {}, 'a: this is Parquet, not Arrow; write type = "parquet"'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "content", "settings", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_awkward_files(write, tmp_path, kind, name, content, settings, expected):
    """Each is read as its row says, or refused with one line that names the file and, where there is one, the line."""
    if content is FOLDER:
        (tmp_path / name).mkdir()
    elif content is not NOTHING:
        write(name, content)
    data = FORMATS[kind](files=(tmp_path / name,), **settings)
    if not isinstance(expected, str):
        assert [(record.line, record.values) for record in data.records()] == expected
        return
    with pytest.raises(DataError) as caught:
        list(data.records())
    said = str(caught.value).replace(f"{tmp_path}/", "")
    assert "\n" not in said
    if expected.endswith("…"):
        said, expected = said[: len(expected) - 1], expected[:-1]
    assert said == expected


def test_the_table_is_long_and_says_each_thing_once():
    """At least a hundred rows, each with a name of its own."""
    names = [row[0] for row in TABLE]
    assert len(names) >= 100
    assert len(set(names)) == len(names)
    cases = [row[1:] for row in TABLE]
    assert [row[0] for at, row in enumerate(TABLE) if row[1:] in cases[:at]] == []
