"""Runs that learn from several sources, and from records that Python hands over."""

import io
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rtx_core import InputError, Pipeline

FIRST, SECOND = 4, 20
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e", "f"]

PIPELINE = """
[run]
name = "from-python"
[task]
type = "sequence_classification"
labels = ["0", "1"]
[tokenizer]
type = "pretrained"
path = "tokenizer"
[architecture]
type = "bert"
hidden_size = 8
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
max_position_embeddings = 32
[optimizer]
lr = 0.1
[training]
duration = "2 epochs"
batch_size = 4
"""


def records(count, label):
    """Records of one to six words."""
    return [{"text": " ".join("abcdef"[: i % 6 + 1]), "label": label} for i in range(count)]


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- several sources --------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(train, tmp_path):
    """Train on 4 and 20 records, with what stands beside the files of each source."""
    names = ("first.jsonl", "second.jsonl")
    written(tmp_path / names[0], records(FIRST, "0"))
    written(tmp_path / names[1], records(SECOND, "1"))

    def run(weights, *sets, folder=tmp_path, **options):
        sources = [f'{{ files = ["{folder}/{name}"]{beside} }}' for name, beside in zip(names, weights, strict=True)]
        sets = (f"data.train=[{', '.join(sources)}]", "training.batch_size=4", *sets)
        return train(records(1, "0"), sets=sets, **options)

    return run


WEIGHTED = (", weight = 1", ", weight = 3")


def drawn(outcome):
    """How often each sample was learnt from; those of the second source come after those of the first."""
    return Counter(i for ids in outcome.watch.ids for i in ids)


def test_without_weights_an_epoch_holds_all_sources(mixed):
    """24 records are 6 steps an epoch, and each comes once."""
    outcome = mixed(("", ""), "training.duration=1 epoch")
    assert len(outcome.rows) == 6
    assert drawn(outcome) == dict.fromkeys(range(FIRST + SECOND), 1)


def test_with_weights_an_epoch_is_one_pass_over_the_source_that_ends_first(mixed):
    """1 : 3 of 4 and 20 records are 4 and 12: four steps an epoch, and in 5 epochs 5 and 3 passes over the sources."""
    outcome = mixed(WEIGHTED, "training.duration=5 epochs")
    assert [row["epoch"] for row in outcome.rows] == pytest.approx([step / 4 for step in range(1, 21)])
    first = dict.fromkeys(range(FIRST), 5)
    assert drawn(outcome) == {**first, **dict.fromkeys(range(FIRST, FIRST + SECOND), 3)}


def test_lengths_know_the_tokens_of_a_mixed_epoch(mixed):
    """Tokens of an epoch are those of the first source and 12/20 of the second's: 2 + (1 … 6) a text, as they come."""
    lengths = [i % 6 + 3 for i in range(max(FIRST, SECOND))]
    tokens = sum(lengths[:FIRST]) + sum(lengths) * 12 / SECOND
    horizon = mixed(WEIGHTED, "training.duration=1 epoch").watch.run.horizon
    assert (horizon.samples_per_epoch, horizon.tokens_per_epoch) == (16, round(tokens))


def test_a_mixed_run_goes_on_to_the_same_bits(mixed, tmp_path):
    """Stopped within an epoch and resumed, with the sources' files at another place: the same losses."""
    settings = (WEIGHTED, "training.duration=3 epochs")
    whole = mixed(*settings)
    begun = mixed(*settings, output=tmp_path / "begun", steps=5)
    before = begun.rows
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("first.jsonl", "second.jsonl"):
        (tmp_path / name).rename(moved / name)
    resumed = mixed(*settings, folder=moved, output=begun.folder, resume=True)
    losses = [row["train/loss"] for row in whole.rows]
    assert [row["train/loss"] for row in before] == losses[:5]
    assert [row["train/loss"] for row in resumed.rows] == losses


def test_another_weight_or_another_source_is_no_resume(mixed, tmp_path):
    """Weights are settings and contents have a fingerprint for each source: both are named."""
    settings = ("training.duration=3 epochs",)
    output = mixed(WEIGHTED, *settings, output=tmp_path / "run", steps=2).folder
    with pytest.raises(InputError, match=r"can't resume: data\.train\[1\]\.weight was 3\.0, now it is 2\.0"):
        mixed((", weight = 1", ", weight = 2"), *settings, output=output, resume=True)
    written(tmp_path / "second.jsonl", records(SECOND, "0"))
    with pytest.raises(InputError, match=r"can't resume: the contents of data\.train\[1\] changed"):
        mixed(WEIGHTED, *settings, output=output, resume=True)


def test_a_source_of_which_a_split_leaves_nothing_is_refused(mixed, tmp_path):
    """Nothing can be drawn from it, and the error says which one it is."""
    written(tmp_path / "first.jsonl", [])
    with pytest.raises(InputError, match=r"first\.jsonl: no records in this file"):
        mixed(WEIGHTED)
    written(tmp_path / "first.jsonl", records(1, "0"))
    written(tmp_path / "second.jsonl", [{"text": f"a {i}", "label": "1"} for i in range(SECOND)])
    # 20 of 21 are held out, with this seed the one of the first source among them.
    with pytest.raises(InputError, match=r"data\.train\[0\]: gives no sample for training"):
        mixed(WEIGHTED, "data.split={ eval = 0.96 }", "run.seed=1")


# --- formats ----------------------------------------------------------------------------------------------------------


def as_conll(rows):
    return "".join("".join(f"{w} {t}\n" for w, t in zip(*row.values(), strict=True)) + "\n" for row in rows).encode()


def as_parquet(rows):
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def as_packed_jsonl(rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    return pa.compress(lines.encode(), codec="zstd", asbytes=True)


@pytest.mark.parametrize(
    ("name", "written_as", "sets"),
    [
        ("x.txt", as_conll, ["data.type=conll", 'data.columns=["words", "tags"]']),
        ("x.parquet", as_parquet, ["data.type=parquet"]),
        ("x.jsonl.zst", as_packed_jsonl, []),
    ],
)
def test_a_run_does_not_mind_the_format(train, tmp_path, name, written_as, sets):
    """The same sentences and tags in another format are the same run, to the bit."""
    rows = [{"words": list("abcdef"[: i % 6 + 1]), "tags": [str(j % 2) for j in range(i % 6 + 1)]} for i in range(10)]
    (tmp_path / name).write_bytes(written_as(rows))
    sets = ["training.duration=2 epochs", f"data.train.files=['{tmp_path / name}']", *sets]
    theirs = train(rows, task="token_classification", sets=sets[:1])
    ours = train(rows, task="token_classification", sets=sets)
    assert len(ours.rows) == 10
    assert [row["train/loss"] for row in ours.rows] == [row["train/loss"] for row in theirs.rows]


# --- from Python ------------------------------------------------------------------------------------------------------


@pytest.fixture
def from_python(tmp_path, monkeypatch):
    """Run the pipeline on records from Python in the test's folder; gives the run's folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")

    def run(data, extra="", **options):
        (tmp_path / "pipeline.toml").write_text(PIPELINE + extra)
        return Pipeline.load("pipeline.toml", data=data).run(quiet=True, **options)

    return run


def losses(folder):
    rows = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [row[name] for row in rows for name in ("train/loss", "eval/loss") if name in row]


ROWS = records(FIRST, "0") + records(SECOND, "1")


def test_records_from_python_train_as_those_of_a_file(from_python, tmp_path):
    """A list of dicts gives the losses of the same records in a file, and a model."""
    written(tmp_path / "rows.jsonl", ROWS)
    file = 'type = "jsonl"\nfiles = ["rows.jsonl"]\n'
    theirs = from_python(None, f"[data.train]\n{file}[data.eval]\n{file}", output=tmp_path / "file")
    ours = from_python({"train": ROWS, "eval": iter(ROWS), "test": ROWS[:2]}, output=tmp_path / "python")
    assert losses(ours) == losses(theirs)
    assert (ours.model / "config.json").is_file()
    assert ours.read_record()["test"].keys() >= {"test/loss"}


def test_a_run_from_python_goes_on_with_the_same_records(from_python, tmp_path):
    """The contents have a fingerprint: equal records are taken, from resolved.toml too, and others are refused."""
    whole = from_python({"train": ROWS}, output=tmp_path / "whole")
    begun = from_python({"train": ROWS}, output=tmp_path / "begun", steps=5)
    with pytest.raises(InputError, match=r"can't resume: the contents of data\.train changed"):
        from_python({"train": ROWS[1:]}, output=begun.path, resume=True)
    again = Pipeline.load(begun.resolved, data={"train": (dict(row) for row in ROWS)})
    assert losses(again.run(output=begun.path, resume=True, quiet=True)) == losses(whole)


def test_an_error_in_a_record_from_python_has_its_row(from_python, tmp_path):
    """The set's name stands for the file, the row for the line."""
    with pytest.raises(InputError, match=r'^train:2: column "text": expected text, got the number 5$'):
        from_python({"train": [ROWS[0], {"text": 5, "label": "0"}]}, output=tmp_path / "run")
    with pytest.raises(InputError, match=r"^eval: no records$"):
        from_python({"train": ROWS, "eval": []}, output=tmp_path / "run")
