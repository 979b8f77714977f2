"""A second start takes what the first has made of the data; a start that was killed leaves nothing half."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from rtx_core import config
from rtx_core.cache import default_folder, size_of
from rtx_core.console import Console
from rtx_core.errors import DataError
from rtx_core.prepare import prepare
from rtx_core.registry import Registry

PIPELINE = """\
[run]
name = "cached"
[task]
type = "masked_lm"
max_length = 16
[data]
type = "text"
[data.train]
files = ["train.txt"]
[data.eval]
files = ["eval.txt"]
[data.test]
files = ["eval.txt"]
[tokenizer]
type = "wordpiece"
vocab_size = 60
[architecture]
type = "bert"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
max_position_embeddings = 16
[optimizer]
lr = 1e-2
[training]
duration = "3 steps"
batch_size = 10
threads = 1
"""


REGISTRY = Registry.discover()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a pipeline, its data of an hour ago, and a cache of its own."""
    monkeypatch.setenv("RTX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cached.toml").write_text(PIPELINE)
    lines = [f"{word} {other} number {i}\n" for i in range(20) for word in ("red", "blue") for other in ("one", "two")]
    write(tmp_path / "train.txt", "".join(lines))
    write(tmp_path / "eval.txt", "".join(lines[:12]))
    return tmp_path


def write(path, text):
    path.write_text(text)
    os.utime(path, (time.time() - 3600,) * 2)


def model(folder, run="cached"):
    return (folder / "runs" / run / "model" / "model.safetensors").read_bytes()


WATCHED = """
import json, sys
opened = []
sys.addaudithook(lambda event, arguments: event == "open" and opened.append(str(arguments[0])))
from rtx_core.cli import main
for command in json.loads(sys.argv[1]):
    opened.clear()
    print(json.dumps([main(command), opened]))
"""


def watched(*commands):
    """Of each command, in a fresh process: its exit status, and the data files that it opened or tried to."""
    script = [sys.executable, "-c", WATCHED, json.dumps([[*command, "--quiet"] for command in commands])]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    found = map(json.loads, done.stdout.splitlines())
    names = ("train.txt", "eval.txt")
    return [(status, {name for name in names if any(file.endswith(name) for file in files)}) for status, files in found]


@pytest.mark.parametrize("split", [False, True])
def test_a_second_start_reads_no_text(split, folder):
    """No data file is even opened, and the model is the same to the bit; with a split as well."""
    sets = ["data.eval=unset", "data.test=unset", "data.split={ eval = 0.1, test = 0.1 }"] if split else []
    sets = [part for one in sets for part in ("--set", one)]
    first, second = watched(
        *(["run", "cached.toml", *sets, "--output", name] for name in ("runs/first", "runs/second"))
    )
    assert first == (0, {"train.txt"} if split else {"train.txt", "eval.txt"})
    assert second == (0, set())
    assert model(folder, "first") == model(folder, "second")


def test_a_resumed_run_reads_no_text(folder):
    """The fingerprints are known too, and the checkpoint's plan is that of the data as they are."""
    command = ["run", "cached.toml", "--output", "run"]
    assert watched([*command, "--steps", "1"], [*command, "--resume"])[1] == (0, set())


def test_changed_data_are_read(folder, rtx):
    """And a resume refuses them, cache or not."""
    assert rtx("run", "cached.toml", "--quiet", "--output", "run", "--steps", "1").status == 0
    write(folder / "train.txt", "other words\n" * 30)
    done = rtx("run", "cached.toml", "--quiet", "--output", "run", "--resume")
    assert done.status == 2
    assert "train" in done.err


def test_without_the_cache_the_model_is_the_same(folder, rtx):
    """``--no-cache`` neither makes the folder nor takes from it."""
    assert rtx("run", "cached.toml", "--quiet", "--no-cache").status == 0
    assert not (folder / "cache").exists()
    first = model(folder)
    assert rtx("run", "cached.toml", "--quiet", "--overwrite").status == 0
    assert model(folder) == first
    for entry in (folder / "cache").iterdir():
        entry.write_bytes(b"no entry")
    done = rtx("run", "cached.toml", "--overwrite", "--no-cache")
    assert (done.status, "damaged" in done.err) == (0, False)
    assert model(folder) == first


def test_a_damaged_cache_costs_nothing_but_time(folder, rtx):
    """Each damaged entry is one line, and the model is the same."""
    assert rtx("run", "cached.toml", "--quiet").status == 0
    first = model(folder)
    entries = list((folder / "cache").iterdir())
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:-10])
    done = rtx("run", "cached.toml", "--overwrite")
    assert done.status == 0
    assert done.err.count(": damaged") == len(entries)
    assert model(folder) == first


def test_a_cache_that_cannot_be_written_is_one_warning(folder, rtx, monkeypatch):
    """The run goes on and ends well."""
    (folder / "file").write_text("")
    monkeypatch.setenv("RTX_CACHE", str(folder / "file" / "cache"))
    done = rtx("run", "cached.toml")
    assert done.status == 0
    assert done.err.count("can't be written") == 1


KILLED = """
import os, signal, sys
from rtx_core import store
from rtx_core.cli import main
left = int(sys.argv.pop(1))
def deadly(name):
    original = getattr(store.StoreWriter, name)
    def method(*arguments):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)
    setattr(store.StoreWriter, name, method)
deadly("add")
deadly("finish")
deadly("close")
main(sys.argv[1:])
"""


@pytest.mark.parametrize("call", [1, 5])
def test_a_start_that_was_killed_leaves_nothing_half(call, folder, rtx):
    """Killed while it encodes: the next one removes what it left, and ends as one that had no forerunner."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(call), "run", "cached.toml", "--quiet"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list((folder / "cache").glob(".tmp-*"))) == 1
    assert rtx("run", "cached.toml", "--quiet").status == 0
    assert list((folder / "cache").glob(".tmp-*")) == []
    first = model(folder)
    assert rtx("run", "cached.toml", "--quiet", "--no-cache", "--overwrite").status == 0
    assert model(folder) == first


def prepared(path, *sets, cache=True):
    pipeline = config.load(path, sets=sets, registry=REGISTRY)
    return prepare(pipeline, console=Console(quiet=True), cache=cache)


def contents(made):
    """Everything that a run takes from its data."""
    stores = [made.train, *made.eval.values(), *([] if made.test is None else [made.test])]
    return (
        [[store[i].input_ids.tolist() for i in range(len(store))] for store in stores],
        made.tokenizer.to_str(),
        made.outputs,
        {name: survey.records for name, survey in made.surveys.items()},
        made.records.fingerprints,
    )


CHANGES = [
    (),
    ("task.max_length=8",),
    ("tokenizer.vocab_size=50",),
    ("tokenizer.lowercase=false",),
    ("data.train.limit=30",),
    ("data.eval.limit=3",),
    ("data.unit=document",),
    ("data.eval=unset", "data.split={ eval = 0.2 }"),
    ("data.eval=unset", "data.split={ eval = 0.3 }"),
    ("data.eval=unset", "data.split={ eval = 0.3 }", "run.seed=1"),
    ("data.eval=unset", "data.test=unset", "data.split={ eval = 0.3, test = 0.1 }"),
    ('data.train=[{ files = ["train.txt"] }, { files = ["eval.txt"] }]',),
    ('data.train=[{ files = ["eval.txt"] }, { files = ["train.txt"] }]',),
    ('data.train=[{ files = ["train.txt"], weight = 1 }, { files = ["eval.txt"], weight = 2 }]',),
    ('data.train={ files = ["train.txt"], type = "csv", rename = { "red one number 0" = "text" } }',),
]


def test_every_setting_that_changes_the_samples_makes_other_entries(folder):
    """In one cache, in turn and once more: always what is made without a cache."""
    for sets in CHANGES:
        without = contents(prepared("cached.toml", *sets, cache=False))
        assert [contents(prepared("cached.toml", *sets)) for _ in range(2)] == [without] * 2, sets


def test_settings_that_change_no_sample_share_entries(folder):
    """Another rate, batch, seed, name, or place of the same files."""
    prepared("cached.toml")
    before = {path.name for path in (folder / "cache").glob("samples-*")}
    (folder / "moved").mkdir()
    write(folder / "moved" / "train.txt", (folder / "train.txt").read_text())
    for setting in (
        "optimizer.lr=1",
        "training.batch_size=3",
        "run.seed=5",
        "run.name=b",
        'data.train.files=["moved/*"]',
    ):
        prepared("cached.toml", setting)
    assert {path.name for path in (folder / "cache").glob("samples-*")} == before


CLASSES = (
    PIPELINE[PIPELINE.index("[tokenizer]") :]
    + """
[task]
type = "sequence_classification"
max_length = 8
[data.train]
type = "jsonl"
files = ["train.jsonl"]
"""
)


def test_a_second_start_says_the_same_notes(folder):
    """What was lost in encoding is kept beside the samples, with the number of records."""
    said = []

    class Heard(Console):
        def say(self, message="", **_style):
            said.append(str(message))

    rows = ({"text": "a b c d " * 9, "label": i % 2} for i in range(9))
    write(folder / "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    (folder / "classes.toml").write_text(CLASSES)
    pipeline = config.load("classes.toml", registry=REGISTRY)
    first, second = (prepare(pipeline, console=Heard(quiet=True)) for _ in range(2))
    assert said[: len(said) // 2] == said[len(said) // 2 :]
    assert "training: 9 texts cut at max_length" in said
    assert [one.surveys["training"].records for one in (first, second)] == [9, 9]
    assert first.outputs == second.outputs


def test_an_error_in_the_data_is_no_entry(folder):
    """It is said again at the next start, with its file and line."""
    (folder / "train.txt").write_bytes(b"good\nbad \xff\n")
    for _ in range(2):
        with pytest.raises(DataError, match=r"train\.txt:2: "):
            prepared("cached.toml")
    assert list((folder / "cache").glob("samples-*")) == []


def test_records_from_python_have_entries_too(folder):
    """Their fingerprint stands for them; other records are other entries."""
    from rtx_core.python_records import sources_of

    def made(rows):
        sources = sources_of({"train": rows})
        pipeline = config.load("cached.toml", registry=REGISTRY, data=sources)
        return prepare(pipeline, console=Console(quiet=True))

    rows = [{"text": "one two three"}, {"text": "two three four"}] * 5
    first, again, other = made(rows), made(rows), made(rows[:-1])
    assert first.train.lengths.tolist() == again.train.lengths.tolist()
    assert len(other.train) == 9
    assert len(list((folder / "cache").glob("samples-*"))) == 4  # evaluation and test share one; a tokenizer for each


def test_a_tokenizer_that_is_loaded_is_no_entry(folder):
    """Its files may change without any of the settings; a trained one is kept."""
    trained = prepared("cached.toml").tokenizer
    assert len(list((folder / "cache").glob("tokenizer-*"))) == 1
    (folder / "own").mkdir()
    trained.save(str(folder / "own" / "tokenizer.json"))
    (folder / "loaded.toml").write_text(PIPELINE.replace('"wordpiece"\nvocab_size = 60', '"pretrained"\npath = "own"'))
    before = prepared("loaded.toml").train.input_ids.values
    assert len(list((folder / "cache").glob("tokenizer-*"))) == 1
    trained.add_tokens(["umbe"])
    trained.save(str(folder / "own" / "tokenizer.json"))
    assert prepared("loaded.toml").train.input_ids.values.max() == trained.token_to_id("umbe") > before.max()


def test_doctor_says_where_the_cache_is(folder, rtx):
    """With its size, in words and for a program."""
    prepared("cached.toml")
    entries, size = size_of(default_folder())
    assert f"{folder / 'cache'}" in rtx("doctor").out
    found = json.loads(rtx("doctor", "--json").out)["disk"]["cache"]
    assert found == f"{folder / 'cache'}, {entries} entries, {size / 2**20:.1f} MiB"
