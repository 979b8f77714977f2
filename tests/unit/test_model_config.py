"""Reading ``config.json``: each way in which one can be broken is one line that names the file and a way on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rtx_core.errors import InputError
from rtx_core.model_config import read_object, stored_labels

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 570\n"
BROKEN = {
    "empty": (b"", " is empty; fetch it again, or save the model once more"),
    "nothing but spaces": (b" \n\t", " is empty; "),
    "cut": (
        b'{"model_type": "be',
        " is not JSON: Unterminated string starting at: line 1 column 16 (char 15); fetch it",
    ),
    "a page of the web": (
        b"<!DOCTYPE html>",
        " is not JSON: Expecting value: line 1 column 1 (char 0); fetch it again",
    ),
    "Latin-1": (b'{"a": "\xe9"}', " is not UTF-8: invalid continuation byte at byte 7; fetch it again, or save it as "),
    "Git LFS": (POINTER, " is only Git LFS's pointer to it; fetch the file itself, as by git lfs pull"),
    "a list": (b'["bert"]', " holds no JSON object"),
    "a text": (b'"bert"', " holds no JSON object"),
    "nested without end": (b'{"a":' * 100_000, " is nested too deeply to be a model's"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_json_object_is_told_by_what_it_is(tmp_path, case):
    """One line with the file, what is wrong and where, and what to do."""
    text, message = BROKEN[case]
    file = tmp_path / "config.json"
    file.write_bytes(text)
    with pytest.raises(InputError, match=f"^{re.escape(f'{file}{message}')}") as refused:
        read_object(file)
    assert "\n" not in str(refused.value)


def test_a_file_that_the_system_does_not_give_is_named_with_the_reason(tmp_path, monkeypatch):
    """Missing, a folder of that name, and one that may not be read."""
    file = tmp_path / "config.json"
    with pytest.raises(InputError, match=f"^there is no {file}$"):
        read_object(file)
    file.mkdir()
    with pytest.raises(InputError, match=f"^{file} can't be read: Is a directory$"):
        read_object(file)

    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", forbidden)  # whoever tests as root may read everything
    with pytest.raises(InputError, match=f"^{file} can't be read: Permission denied$"):
        read_object(file)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_an_object_is_read_in_every_encoding_that_json_may_have(tmp_path, encoding):
    """With a byte order mark too, as some editors write."""
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "bert", "id2label": {"0": "né"}}', encoding=encoding)
    assert read_object(file) == {"model_type": "bert", "id2label": {"0": "né"}}


# --- labels -----------------------------------------------------------------------------------------------------------


def test_labels_are_in_the_order_of_their_numbers():
    """Not in that of the file: "10" stands behind "1" there."""
    names = [f"label {index}" for index in range(11)]
    numbers = sorted(map(str, range(11)))
    assert numbers[:3] == ["0", "1", "10"]
    config = {"id2label": {number: names[int(number)] for number in numbers}}
    assert stored_labels(config) == tuple(names)


@pytest.mark.parametrize("config", [{}, {"id2label": None}, {"num_labels": 3}])
def test_a_config_without_names_has_no_labels(config):
    """A number of labels says nothing of their names."""
    assert stored_labels(config) is None


def test_label2id_may_be_what_transformers_writes_by_itself():
    """Where only id2label was set, label2id still has the placeholders; no label of ours has another number there."""
    config = {"id2label": {"0": "ham", "1": "spam"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "num_labels": 2}
    assert stored_labels(config) == ("ham", "spam")


CONTRADICTIONS = {
    "a gap": ({"id2label": {"0": "a", "2": "b"}}, 'id2label names 2 labels by "0", "2", but none by "1"; number them '),
    "from 1 on": ({"id2label": {"1": "a", "2": "b"}}, 'id2label names 2 labels by "1", "2", but none by "0"; number'),
    "no numbers": ({"id2label": {"a": "0", "b": "1"}}, 'id2label names 2 labels by "a", "b", but none by "0"; number'),
    "leading zeros": ({"id2label": {"00": "a", "01": "b"}}, 'id2label names 2 labels by "00", "01", but none by "0"'),
    "a list": ({"id2label": ["a", "b"]}, 'id2label must give each number a name, got ["a", "b"]'),
    "names that are none": ({"id2label": {"0": 0, "1": 1}}, 'id2label must give each number a name, got {"0": 0, "1"'),
    "one name twice": ({"id2label": {"0": "a", "1": "a"}}, 'id2label has "a" twice'),
    "another count": ({"id2label": {"0": "a", "1": "b"}, "num_labels": 5}, "num_labels is 5, but id2label names 2 lab"),
    "a count as text": ({"id2label": {"0": "a"}, "num_labels": "1"}, 'num_labels is "1", but id2label names 1 labels'),
    "turned round": (
        {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1, "b": 0}},
        'label "a" has number 0 in id2label, but 1 in label2id',
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_labels_that_contradict_each_other_are_refused(case):
    """The message has what each of the keys says."""
    config, message = CONTRADICTIONS[case]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        stored_labels(config)
