"""Which layer wins, where a value came from, and what a file that can't be read says."""

from __future__ import annotations

import pytest

from rtx_core.config import load
from rtx_core.config.layers import read_layers
from rtx_core.errors import PipelineError


@pytest.fixture
def tree(folder):
    """The merged tree of files given by name, the last being the pipeline."""

    def read(*sets, **files):
        for name, text in files.items():
            (folder / f"{name}.toml").write_bytes(text.encode())
        return read_layers(folder.__class__(f"{list(files)[-1]}.toml"), sets, folder).tree

    return read


def refusal(function, *arguments, **keywords):
    with pytest.raises(PipelineError) as caught:
        function(*arguments, **keywords)
    return str(caught.value)


# --- merging ----------------------------------------------------------------------------------------------------------


def test_later_layers_win_and_lists_replace(tree):
    """Tables merge key by key, the later file wins, and a list replaces a list."""
    found = tree(
        low="[t]\na = 1\nb = [1, 2]\n[t.u]\nc = 1\n",
        high='extends = ["low.toml"]\n[t]\nb = [3]\n[t.u]\nd = 2\n',
    ).plain()
    assert found["t"] == {"a": 1, "b": [3], "u": {"c": 1, "d": 2}}
    assert "extends" not in found


def test_extended_files_are_layers_in_their_order(tree):
    """Of several extended files the last wins, each over the files that it extends itself."""
    found = tree(
        deep="[t]\na = 1\nb = 1\nc = 1\nd = 1\n",
        first='extends = ["deep.toml"]\n[t]\nb = 2\n',
        second="[t]\nb = 3\nc = 3\n",
        high='extends = ["first.toml", "second.toml"]\n[t]\nd = 4\n',
    ).plain()
    assert found["t"] == {"a": 1, "b": 3, "c": 3, "d": 4}


def test_another_type_replaces_a_table_whole(tree):
    """Keys of the old type are gone when a later file writes another type, and stay when it writes the same."""
    low = '[loss]\ntype = "a"\nx = 1\n[nested.loss]\ntype = "a"\nx = 1\n'
    high = 'extends = ["low.toml"]\n[loss]\ntype = "{}"\ny = 2\n[nested.loss]\ntype = "{}"\ny = 2\n'
    other = tree(low=low, high=high.format("b", "b")).plain()
    same = tree(low=low, high=high.format("a", "a")).plain()
    assert other["loss"] == {"type": "b", "y": 2} == other["nested"]["loss"]
    assert same["loss"] == {"type": "a", "x": 1, "y": 2} == same["nested"]["loss"]


def test_a_type_that_is_not_written_counts(tree):
    """A callback's table name, and the type that defaults.toml gives, are the old type of a table without one."""
    found = tree(
        low="[callbacks.stop]\nx = 1\n[optimizer]\nlr = 1\n",
        high='extends = ["low.toml"]\n[callbacks.stop]\ntype = "other"\n[optimizer]\ntype = "adamw"\n',
    ).plain()
    assert found["callbacks"]["stop"] == {"type": "other"}
    assert found["optimizer"] == {"type": "adamw", "lr": 1}


def test_defaults_lie_below_everything(tree):
    """A table merges over its default, and replaces it whole as soon as a file writes a type, also the same type."""
    merged = tree(main='[scheduler]\nwarmup = "1 step"\n').plain()
    replaced = tree(main='[scheduler]\ntype = "linear"\n').plain()
    assert merged["scheduler"] == {"type": "linear", "warmup": "1 step"}
    assert replaced["scheduler"] == {"type": "linear"}
    assert tree(main="").plain()["scheduler"] == {"type": "linear", "warmup": "6%"}


def test_a_type_in_an_extended_file_replaces_the_default_too(tree):
    """Any file of the user counts, not only the last."""
    found = tree(low='[scheduler]\ntype = "linear"\n', high='extends = ["low.toml"]\n[scheduler]\nx = 1\n').plain()
    assert found["scheduler"] == {"type": "linear", "x": 1}


def test_records_of_another_type_replace_those_of_the_type_of_data(tree):
    """A set without a type has that of ``[data]``, so one that gets another loses its keys; the others keep theirs."""
    low = '[data]\ntype = "a"\n[data.train]\nx = 1\n[data.eval]\nx = 1\n[data.test]\nx = 1\n'
    high = 'extends = ["low.toml"]\n[data.eval]\ntype = "b"\ny = 2\n[data.test]\ntype = "a"\ny = 2\n'
    found = tree(low=low, high=high).plain()["data"]
    assert found["eval"] == {"type": "b", "y": 2}
    assert found["test"] == {"type": "a", "x": 1, "y": 2}
    assert found["train"] == {"x": 1}
    named = tree(low=low.replace("[data.eval]", "[data.eval.clean]"), high=high.replace("eval]", "eval.clean]"))
    assert named.plain()["data"]["eval"] == {"clean": {"type": "b", "y": 2}}


def test_named_tables_keep_the_place_of_their_first_appearance(tree):
    """Defaults that no file mentions come first; then the files' tables, each where it appeared first."""
    found = tree(
        low="[callbacks.b]\n[callbacks.checkpoint]\n",
        high='extends = ["low.toml"]\n[callbacks.a]\n[callbacks.amp]\n[callbacks.b]\nx = 1\n',
    ).plain()
    assert list(found["callbacks"]) == ["metrics", "progress", "clip_grad_norm", "b", "checkpoint", "a", "amp"]


# --- --set ------------------------------------------------------------------------------------------------------------


def test_set_lies_above_the_file(loaded, base):
    """A value on the command line wins, in the type that its field has."""
    pipeline = loaded(base, "optimizer.lr=1", "run.name=5", "scheduler.warmup=6%", "data.train.files=['other.jsonl']")
    assert (pipeline.optimizer.lr, pipeline.run.name, str(pipeline.scheduler.warmup)) == (1.0, "5", "6%")
    assert [path.name for path in pipeline.data.train.files] == ["other.jsonl"]


def test_the_last_set_of_a_key_counts(loaded, base):
    """Of two options for one key the later wins, also when it takes the key away."""
    assert loaded(base, "run.seed=1", "run.seed=2").run.seed == 2
    assert loaded(base, "run.seed=1", "run.seed=2", "optimizer.lr=unset", "optimizer.lr=1e-3").optimizer.lr == 1e-3
    assert loaded(base, "run.seed=1", "run.seed=unset").run.seed == 0


def test_a_later_set_changes_a_table_of_an_earlier_one(loaded, base):
    """``--set data.split={…}`` and a key of it after that; the other keys stay."""
    sets = ["data.eval=unset", "data.split={eval = 0.25, stratify = true}", "data.split.seed=3"]
    split = loaded(base, *sets).data.split
    assert (split.eval, split.stratify, split.seed) == (0.25, True, 3)


def test_unset_takes_a_key_away(loaded, base):
    """``unset`` removes what a file or defaults.toml wrote, tables too."""
    pipeline = loaded(base, "callbacks.amp=unset", "architecture.preset=unset", "architecture.hidden_size=12")
    assert "amp" not in pipeline.callbacks
    assert (pipeline.architecture.preset, pipeline.architecture.hidden_size) == (None, 12)


def test_set_makes_tables_and_quoted_keys(loaded, base):
    """A table that isn't there is made, inline too; a key with a dot in it is quoted."""
    pipeline = loaded(
        base,
        "callbacks.early_stopping.patience=4",
        "callbacks.typed={ count = 2 }",
        "search.trials=3",
        'search.parameters."optimizer.lr"=[1, 2]',
    )
    assert pipeline.callbacks["early_stopping"].patience == 4
    assert pipeline.callbacks["typed"].count == 2
    assert pipeline.commands["search"].parameters == {"optimizer.lr": (1, 2)}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("optimizer.lr", '--set: "optimizer.lr" is not of the form key=value, as in --set optimizer.lr=1e-4'),
        ("=3", '--set: "=3" is not of the form key=value'),
        ("a[0]=3", '--set: "a[0]=3" is not of the form key=value'),
        ("extends=[]", "--set: extends: extends is written in a file, not on the command line"),
        ("optimizer.eps=unset", "--set: optimizer.eps: there is no optimizer.eps to unset"),
        ("optimizer.lr=fast", '--set: optimizer.lr: expected a number, got "fast"'),
        ("optimizer.lr='1'", '--set: optimizer.lr: expected a number, got "1"'),
        ("training.eval_at_start=True", '--set: training.eval_at_start: expected true or false, got "True"'),
        ("data.train.files=x.jsonl", '--set: data.train.files: expected a list of paths, got "x.jsonl"'),
        ("training.duration=3", '--set: training.duration: a length needs a unit: "3 epochs" or "3 steps"?'),
        ("optimizer.lr=1\ny=2", '--set: optimizer.lr: expected a number, got "1\\ny=2"'),
        ("callbacks.amp=false", "--set: callbacks.amp: expected a table, got false"),
        ("optimizer.lrr=1", '--set: optimizer.lrr: unknown key; did you mean "lr"? (optimizer.adamw of'),
    ],
)
def test_a_bad_set_is_one_line(lines, base, option, message):
    """What is wrong with a ``--set`` is said like what is wrong with a file."""
    (line,) = lines(base, option)
    assert line.startswith(message)


# --- origins and paths ------------------------------------------------------------------------------------------------


def test_every_value_keeps_its_origin(folder, registry, base):
    """Each value names the file, option, preset or default that it came from, and its place there."""
    (folder / "low").mkdir()
    (folder / "low" / "base.toml").write_text(base.replace("[optimizer]\n", "[optimizer]\neps = 1e-7\n"), "utf-8")
    (folder / "high.toml").write_text('extends = ["low/base.toml"]\n[optimizer]\nlr = 1\n', "utf-8")
    for name in ("train.jsonl", "eval.jsonl"):
        (folder / "low" / name).write_bytes((folder / name).read_bytes())
    pipeline = load("high.toml", sets=["run.seed=3"], registry=registry, working_directory=folder)
    origins = {key: str(pipeline.origins[key]) for key in pipeline.origins}
    assert origins["optimizer.eps"] == "low/base.toml"
    assert origins["optimizer.lr"] == "high.toml"
    assert origins["run.seed"] == "--set"
    assert origins["scheduler.warmup"] == "defaults.toml"
    assert origins["architecture.hidden_size"] == 'preset "tiny"'
    assert origins["optimizer.betas"] == "default of optimizer.adamw"
    origin = pipeline.origins["data.train.type"]
    assert (origin.file, origin.keys) == (folder / "low" / "base.toml", ("data", "type"))


def test_a_path_is_relative_to_the_file_it_is_written_in(folder, registry, base):
    """An extended file's paths stay in its folder, those of --set are of the working directory."""
    (folder / "low").mkdir()
    (folder / "low" / "base.toml").write_text(base, "utf-8")
    (folder / "low" / "eval.jsonl").write_bytes((folder / "eval.jsonl").read_bytes())
    (folder / "high.toml").write_text('extends = ["low/base.toml"]\n[data.train]\nfiles = ["train.jsonl"]\n', "utf-8")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "test.jsonl").write_bytes((folder / "eval.jsonl").read_bytes())
    pipeline = load(
        folder / "high.toml", sets=['data.test.files=["test.jsonl"]'], registry=registry, working_directory=elsewhere
    )
    assert pipeline.data.train.files == (folder / "train.jsonl",)
    assert pipeline.data.eval[""].files == (folder / "low" / "eval.jsonl",)
    assert pipeline.data.test.files == (elsewhere / "test.jsonl",)


# --- files that can't be read -----------------------------------------------------------------------------------------


def test_a_byte_order_mark_and_crlf_change_nothing(problems, base):
    """A file saved by a Windows editor means the same, and its problems have the same places."""
    text = base.replace("lr = 5e-4", "lrr = 5e-4")
    (plain,) = problems(text)
    (marked,) = problems("\ufeff" + text.replace("\n", "\r\n"))
    assert marked == plain
    (first,) = problems("\ufeff" + 'x = "y"\r\n' + base)
    assert (first.place.line, first.place.column) == (1, 1)


def test_the_text_is_kept_as_it_was_given(loaded, base):
    """The pipeline holds its file's text, line ends included."""
    assert loaded(base.replace("\n", "\r\n")).text == base.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = \n", "pipeline.toml:1:5: not TOML: Invalid value"),
        (b'a = 1\r\nb = "x\r\nc = 3\r\n', "pipeline.toml:2:7: not TOML: Illegal character"),
        (b"a = 1\na = 2\n", "pipeline.toml:2:6: not TOML: Cannot overwrite a value"),
        ("ü = 1\n".encode("latin-1"), "pipeline.toml:1:1: not UTF-8 text (byte 0xfc); save the file as UTF-8"),
        ('\ufeff# é\na = "éé'.encode() + b'\xff"', "pipeline.toml:2:8: not UTF-8 text (byte 0xff)"),
        (b"a = " + b"[" * 100_000, "pipeline.toml: not TOML that can be read: "),
        (b"a = " + b"1" * 10_000, "pipeline.toml: not TOML that can be read: "),
    ],
)
def test_a_file_that_is_not_toml_is_one_line(folder, registry, content, message):
    """Text that is not TOML or not UTF-8 reports its first error with line and column."""
    (folder / "pipeline.toml").write_bytes(content)
    text = refusal(load, "pipeline.toml", registry=registry, working_directory=folder)
    assert text.startswith(message)
    assert "\n" not in text


def test_a_file_that_is_none_is_one_line(folder, registry):
    """A missing file, a folder and a file without permission each say so."""

    def refused(name):
        return refusal(load, name, registry=registry, working_directory=folder)

    (folder / "sub").mkdir()
    assert refused("missing.toml") == "missing.toml: no such file"
    assert refused("sub") == "sub: is a folder, not a TOML file"
    assert refused("train.jsonl/x.toml") == "train.jsonl/x.toml: can't be read: Not a directory"


def test_what_extends_names_must_be_there(lines, folder, base):
    """A missing file, a circle and a value of the wrong type are placed where they are written."""
    (folder / "ring.toml").write_text('extends = ["pipeline.toml"]\n', "utf-8")
    (folder / "bad.toml").write_text('\nextends = "ring.toml"\n', "utf-8")
    text = 'extends = ["none.toml", "ring.toml", "bad.toml", 3, "pipeline.toml"]\n' + base
    found = lines(text)
    assert found == [
        f"pipeline.toml:1:12: extends[0]: no such file: {folder / 'none.toml'}",
        'pipeline.toml:1:50: extends[3]: expected a list of files, as extends = ["base.toml"]',
        "pipeline.toml:1:53: extends[4]: extends goes in a circle: pipeline.toml leads back here",
        "ring.toml:1:12: extends[0]: extends goes in a circle: pipeline.toml leads back here",
        'bad.toml:2:11: extends: expected a list of files, as extends = ["base.toml"]',
    ]


def test_a_file_may_be_extended_twice(tree):
    """Two files that extend the same third are no circle."""
    found = tree(
        root="[t]\na = 1\n",
        left='extends = ["root.toml"]\n',
        right='extends = ["root.toml"]\n[t]\nb = 2\n',
        main='extends = ["left.toml", "right.toml"]\n',
    ).plain()
    assert found["t"] == {"a": 1, "b": 2}


def test_problems_name_the_file_they_stand_in(lines, folder, base):
    """The pipeline's own problems come first, then those of extended files, each by the name a user would write."""
    (folder / "low").mkdir()
    (folder / "low" / "base.toml").write_text("[run]\nsead = 3\n[training]\nworkers = -1\n", "utf-8")
    assert lines('extends = ["low/base.toml"]\n' + base.replace("lr = 5e-4", "lr = 0"), "run.seed=-2") == [
        "pipeline.toml:23:6: optimizer.lr: must be > 0.0, got 0.0",
        'low/base.toml:2:1: run.sead: unknown key; did you mean "seed"?',
        "low/base.toml:4:11: training.workers: must be >= 0, got -1",
        "--set: run.seed: must be >= 0, got -2",
    ]
