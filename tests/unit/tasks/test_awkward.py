r"""A table of awkward records: what a task makes of them, read from a file as a run does, or the error that it gives.

A row is: name, task, records, settings, and what is expected: the tokens of each sample with its targets, and the notes;
or the error without the folder's name. A target stands behind the token at which it is learnt: ``a:1``.
"""

import io
import json

import pytest

from rtx_core import config
from rtx_core.console import Console
from rtx_core.errors import InputError
from rtx_core.prepare import prepare
from rtx_core.registry import Registry

TASKS = {
    "classes": 'type = "sequence_classification"\nlabels = ["no", "1", "7"]',
    "found": 'type = "sequence_classification"',
    "tags": 'type = "token_classification"\nlabels = ["O", "P"]',
    "lm": 'type = "masked_lm"',
}
PIPELINE = """
[task]
{task}
[data]
type = "jsonl"
[data.train]
files = ["data.jsonl"]
[tokenizer]
type = "pretrained"
path = "."
[architecture]
type = "bert"
preset = "tiny"
[optimizer]
lr = 0.1
[training]
duration = "1 step"
batch_size = 2
"""
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "un", "##believ", "##ably"]


def text(value, label="no"):
    return {"text": value, "label": label}


def words(words, tags):
    return {"words": words, "tags": tags}


TRUE = True
LABEL = "expected a label (text or an integer), got"
CUT = ("task.max_length=5",)

TABLE = [
    # --- whole texts ----------------------------------------------------------------------------------------------
    ("one record", "classes", [text("a b")], (), ["[CLS]:0 a b [SEP]"], []),
    ("an empty text", "classes", [text(""), text("a", "7")], (), ["[CLS]:0 [SEP]", "[CLS]:2 a [SEP]"], []),
    ("white space", "classes", [text(" \n\t\u2028 ")], (), ["[CLS]:0 [SEP]"], []),
    ("control characters alone", "classes", [text("\x07\u200b")], (), ["[CLS]:0 [SEP]"], []),
    ("nothing that the tokenizer knows", "classes", [text("字 😀 שלום")], (), ["[CLS]:0 [UNK] [UNK] [UNK] [SEP]"], []),
    ("a combining mark goes with its letter's accent", "classes", [text("a\u0301 á")], (), ["[CLS]:0 a a [SEP]"], []),
    ("special tokens in a text", "classes", [text("a [SEP] b")], (), ["[CLS]:0 a [SEP] b [SEP]"], []),
    ("a word of 101 characters", "classes", [text("a" * 101)], (), ["[CLS]:0 [UNK] [SEP]"], []),
    ("a text of 200,000 words", "classes", [text("a " * 200_000)], CUT, ["[CLS]:0 a a a [SEP]"], ["training: 1 text cut at max_length"]),
    ("a number as label", "classes", [text("a", 1), text("b", "1")], (), ["[CLS]:1 a [SEP]", "[CLS]:1 b [SEP]"], []),
    ("numbers as labels are sorted by value", "found", [text("a", 10), text("b", 9)], (), ["[CLS]:1 a [SEP]", "[CLS]:0 b [SEP]"], []),
    ("truth as label", "classes", [text("a", TRUE)], (), f'data.jsonl:1: column "label": {LABEL} the truth value true'),
    ("truth as text is a label", "found", [text("a", "true"), text("b", "false")], (), ["[CLS]:1 a [SEP]", "[CLS]:0 b [SEP]"], []),
    ("a fraction as label", "classes", [text("a", 1.0)], (), f'data.jsonl:1: column "label": {LABEL} the number 1.0'),
    ("no label", "classes", [text("a"), text("a", None)], (), f'data.jsonl:2: column "label": {LABEL} null'),
    ("an empty label", "classes", [text("a", "")], (), f'data.jsonl:1: column "label": {LABEL} an empty text'),
    ("a list as label", "classes", [text("a", ["no"])], (), f'data.jsonl:1: column "label": {LABEL} the list ["no"]'),
    ("an object as label", "classes", [text("a", {"x": 1})], (), f'data.jsonl:1: column "label": {LABEL} the object {{"x": 1}}'),
    ("a label with a space", "classes", [text("a", " 1")], (), 'data.jsonl:1: column "label": unknown label " 1"; the labels are "no", "1", "7"'),
    ("a label in other case", "classes", [text("a", "NO")], (), 'data.jsonl:1: column "label": unknown label "NO"; the labels are "no", "1", "7"'),
    ("one label alone", "found", [text("a"), text("b")], (), 'task: column "label" of the training data has only the label "no"; at least two are needed'),
    ("a number as text", "classes", [text(5)], (), 'data.jsonl:1: column "text": expected text, got the number 5'),
    ("null as text", "classes", [text(None)], (), 'data.jsonl:1: column "text": expected text, got null'),
    ("a list as text", "classes", [text(["a"])], (), 'data.jsonl:1: column "text": expected text, got the list ["a"]'),
    ("a column that some records lack", "classes", [text("a"), {"txt": "a", "label": "no"}], (), 'data.jsonl:2: no column "text"; the columns are "txt", "label"'),
    ("a record without columns", "classes", [text("a"), {}], (), 'data.jsonl:2: no column "label"; there are none'),
    ("no room for text", "classes", [text("a")], ("task.max_length=2",), "task.max_length: 2 tokens leave no room for text beside 2 special tokens; write at least 3"),
    # --- words and tags -------------------------------------------------------------------------------------------
    ("first sub-words alone (case 27)", "tags", [words(["a", "b", "unbelievably"], ["P", "O", "P"])], (), ["[CLS] a:1 b:0 un:1 ##believ ##ably [SEP]"], []),
    ("words that are cut are counted (case 27)", "tags", [words(["a", "unbelievably", "b", "c"], ["O", "P", "O", "O"])], CUT, ["[CLS] a:0 un:1 ##believ [SEP]"], ["training: 2 words cut off by max_length, without a target"]),
    ("a word without sub-words", "tags", [words(["a", "\x07", "b"], ["O", "P", "P"])], (), ["[CLS] a:0 b:1 [SEP]"], ["training: 1 words have no token and no target"]),
    ("an empty word", "tags", [words(["", "b"], ["O", "P"])], (), ["[CLS] b:1 [SEP]"], ["training: 1 words have no token and no target"]),
    ("nothing but such words", "tags", [words(["\x07", ""], ["O", "P"])], (), ["[CLS] [SEP]"], ["training: 2 words have no token and no target"]),
    ("no words", "tags", [words([], []), words(["a"], ["O"])], (), ["[CLS] [SEP]", "[CLS] a:0 [SEP]"], []),
    ("a word of several words", "tags", [words(["a b", "c"], ["P", "O"])], (), ["[CLS] a:1 b c:0 [SEP]"], []),
    ("an unknown word", "tags", [words(["字", "😀"], ["P", "O"])], (), ["[CLS] [UNK]:1 [UNK]:0 [SEP]"], []),
    ("a tag too few", "tags", [words(["a", "b"], ["O"])], (), 'data.jsonl:1: column "words" holds 2 words, but column "tags" 1 tags'),
    ("a tag too many", "tags", [words(["a"], ["O"]), words(["a"], ["O", "O"])], (), 'data.jsonl:2: column "words" holds 1 words, but column "tags" 2 tags'),
    ("words as one text", "tags", [words("a b", ["O", "O"])], (), 'data.jsonl:1: column "words": expected a list of words, got the text "a b"'),
    ("null among the words", "tags", [words(["a", None], ["O", "O"])], (), 'data.jsonl:1: column "words": expected text, got null'),
    ("an unknown tag", "tags", [words(["a"], ["X"])], (), 'data.jsonl:1: column "tags": unknown label "X"; the labels are "O", "P"'),
    ("no tag", "tags", [words(["a"], [None])], (), f'data.jsonl:1: column "tags": {LABEL} null'),
    # --- language -------------------------------------------------------------------------------------------------
    ("lm: an empty text", "lm", [{"text": ""}], (), ["[CLS] [SEP]"], []),
    ("lm: a long text is several sequences", "lm", [{"text": "a b c a b"}], CUT, ["[CLS] a b c [SEP]", "[CLS] a b [SEP]"], []),
    ("lm: a number", "lm", [{"text": 5}], (), 'data.jsonl:1: column "text": expected text, got the number 5'),
]  # fmt: skip
# ruff: noqa: E501 - a table has a row a line


def shown(sample):
    """A sample as the table has it."""
    targets = dict(zip(sample.target_positions.tolist(), sample.targets.tolist(), strict=True))
    tokens = [TOKENS[number] for number in sample.input_ids.tolist()]
    return " ".join(f"{token}:{targets[at]}" if at in targets else token for at, token in enumerate(tokens))


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_awkward_records(tmp_path, row):
    """Each becomes the samples of its row, with what was lost said, or is refused with one line that names the place."""
    _, task, records, sets, expected, *notes = row
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "a.toml").write_text(PIPELINE.format(task=TASKS[task]))
    pipeline = config.load(tmp_path / "a.toml", sets=sets, registry=Registry.discover())
    said = io.StringIO()
    with Console(said) as console:
        if isinstance(expected, str):
            with pytest.raises(InputError) as caught:
                prepare(pipeline, console=console, cache=False)
            assert str(caught.value).replace(f"{tmp_path}/", "") == expected
            return
        prepared = prepare(pipeline, console=console, cache=False)
    assert [shown(prepared.train[number]) for number in range(len(prepared.train))] == expected
    lost = [line for line in said.getvalue().splitlines() if not line.startswith(("warning: ", "note: "))]
    assert lost == notes[0]
