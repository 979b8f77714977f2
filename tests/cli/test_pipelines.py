"""The ready pipelines on fetched data: each passes ``check`` and trains, here with a few made rows instead."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from rtx_core import config
from rtx_core.registry import Registry

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
ROWS = {
    "classify_nouns": [{"text": "a small feline", "label": "animal"}, {"text": "baked dough", "label": "food"}],
    "classify_sms": [{"text": "see you soon", "label": "ham"}, {"text": "a free prize", "label": "spam"}],
    "classify_topics": [{"text": "A river in Asia.", "topic": "Geography"}, {"text": "A painter.", "topic": "Arts"}],
    "regress_tweets": [{"text": "what a day", "rating": 2.5}, {"text": "not again", "rating": -1.25}],
    "tag_packages": [{"text": "zeta: maps", "tags": ["use::viewing", "x11"]}, {"text": "alpha: data", "tags": []}],
    "label_addresses": [{"words": ["12", "Elm"], "tags": ["AddressNumber", "StreetName"]}],
    "answer_addresses": [
        {
            "question": "What is the house number?",
            "context": "12 Elm",
            "answers": {"text": ["12"], "answer_start": [0]},
        },
        {"question": "What is the state?", "context": "12 Elm", "answers": {"text": [], "answer_start": []}},
    ],
}
"""Two records as ``scripts/fetch_data.py`` writes them (``tests/unit/scripts`` shows that it does)."""
MONITORS = {
    "classify_nouns": "eval/accuracy",
    "classify_sms": "eval/f1_macro",
    "classify_topics": "eval/accuracy",
    "regress_tweets": "eval/pearson",
    "tag_packages": "eval/f1_micro",
    "label_addresses": "eval/accuracy",
    "answer_addresses": "eval/answer_f1",
}


@pytest.fixture
def encoder(trained, tmp_path):
    """The kept model of a small run without its classifier: weights as those of a sentence encoder."""
    folder = tmp_path / "encoder"
    shutil.copytree(trained / "runs" / "colours" / "model", folder)
    file = folder / "model.safetensors"
    weights = {name: tensor for name, tensor in load_file(file).items() if not name.startswith("classifier.")}
    save_file(weights, file, metadata={"format": "pt"})
    return folder


@pytest.fixture
def sets(encoder, tmp_path):
    """The arguments with which a pipeline takes made rows and a small model."""

    def arguments(name):
        rows = tmp_path / "rows.jsonl"
        rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS[name] * 8), encoding="utf-8")
        changes = [f'data.{part}.files=["{rows}"]' for part in ("train", "eval", "test")]
        changes += [f"architecture.from_pretrained={encoder}", "task.max_length=16"]
        changes += ["task.stride=2"] if name == "answer_addresses" else []
        return [word for change in changes for word in ("--set", change)]

    return arguments


@pytest.mark.parametrize("name", ROWS)
def test_it_passes_check(rtx, sets, name):
    """Every key is one that there is, and what is monitored is measured."""
    done = rtx("check", PIPELINES / f"{name}.toml", *sets(name))
    assert (done.status, done.err) == (0, "")


@pytest.mark.parametrize("name", ROWS)
def test_it_trains(rtx, sets, tmp_path, name):
    """Two steps, an evaluation with the monitored value, and a kept model."""
    output = tmp_path / "run"
    done = rtx("run", PIPELINES / f"{name}.toml", *sets(name), "--steps", "2", "--output", output, "--quiet")
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert any(MONITORS[name] in row for row in rows)
    assert (output / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("name", ROWS)
def test_its_header_says_how_to_get_the_data(name):
    """The first lines hold the commands that fetch the weights and the data, and the one that runs the file."""
    text = (PIPELINES / f"{name}.toml").read_text(encoding="utf-8")
    data = text.split('files = ["../data/')[1].split("/")[0]
    assert f"#     python scripts/fetch_data.py {data} data/{data}\n" in text
    assert "#     python scripts/fetch_minilm.py models/all-MiniLM-L6-v2\n" in text
    assert f"#     python -m rtx_core run pipelines/{name}.toml\n" in text


def test_the_search_trains(rtx, encoder, tmp_path):
    """``search_nouns.toml`` passes check, and two steps on made pairs end with the monitored value."""
    pairs = [{"word": f"word {i}", "definition": f"thing number {i}"} for i in range(8)]
    files = {
        "train.jsonl": pairs,
        "queries.jsonl": [{"_id": f"q{i}", "text": pair["word"]} for i, pair in enumerate(pairs)],
        "corpus.jsonl": [{"_id": f"d{i}", "text": pair["definition"]} for i, pair in enumerate(pairs)],
    }
    for name, rows in files.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    qrels = "".join(f"q{i}\td{i}\t1\n" for i in range(len(pairs)))
    (tmp_path / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{qrels}")
    keys = {"queries": "queries.jsonl", "corpus": "corpus.jsonl", "relevant": "qrels.tsv"}
    changes = [f"data.{part}.{key}={tmp_path / file}" for part in ("eval", "test") for key, file in keys.items()]
    changes += [f'data.train.files=["{tmp_path}/train.jsonl"]', "task.max_length={ anchor = 8, positive = 8 }"]
    sets = [word for change in (*changes, f"architecture.from_pretrained={encoder}") for word in ("--set", change)]
    pipeline, output = PIPELINES / "search_nouns.toml", tmp_path / "run"
    assert rtx("check", pipeline, *sets).status == 0
    done = rtx("run", pipeline, *sets, "--steps", "2", "--output", output, "--quiet")
    assert done.status == 0, done.err
    assert "eval/ndcg@10" in (output / "metrics.jsonl").read_text()


def test_what_was_pretrained_is_fine_tuned(rtx, tmp_path, monkeypatch):
    """``finetune_pretrained.toml`` starts from the model that ``pretrain_mlm.toml`` kept, both but for their size."""
    monkeypatch.chdir(tmp_path)
    sizes = ("architecture.hidden_size=16", "architecture.intermediate_size=32", "architecture.num_hidden_layers=1")
    small = (*sizes, "architecture.num_attention_heads=2", "tokenizer.vocab_size=600", "training.duration=2 steps")
    few = ("data.eval.book.limit=20", "data.eval.nouns.limit=20", "training.threads=1")
    sets = [word for change in (*small, *few) for word in ("--set", change)]
    done = rtx("run", PIPELINES / "pretrain_mlm.toml", *sets, "--quiet")
    assert done.status == 0, done.err
    assert rtx("check", PIPELINES / "finetune_pretrained.toml").status == 0
    done = rtx("run", PIPELINES / "finetune_pretrained.toml", "--set", "training.threads=1", "--steps", "2", "--quiet")
    assert done.status == 0, done.err
    log = (tmp_path / "runs" / "finetune_pretrained-smoke" / "log.txt").read_text(encoding="utf-8")
    (weights,) = [line for line in log.splitlines() if line.startswith("weights ")]
    encoder = 5 + 16  # tables and a norm, and a layer's six matrices and two norms with their biases
    assert re.match(rf"weights +{encoder} tensors from run:pretrain_mlm, ", weights)
    assert "500 training, 1,000 eval, 1,000 test" in log


def test_the_start_from_scratch_differs_in_its_weights_alone(rtx, trained, tmp_path, monkeypatch):
    """With the settings that docs/results.md gives, ``finetune_pretrained.toml`` is the same model from the seed."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "runs" / "colours" / "model", tmp_path / "runs" / "pretrain_mlm" / "model")
    results = (PIPELINES.parent / "docs" / "results.md").read_text(encoding="utf-8")
    _, _, scratch = results.partition("pipelines/finetune_pretrained.toml --set architecture.from_pretrained=unset")
    settings = ["--set", "architecture.from_pretrained=unset", *shlex.split(scratch.partition("--seeds")[0])]
    plan = rtx("plan", PIPELINES / "finetune_pretrained.toml", *settings, "--json")
    assert plan.status == 0, plan.err
    values = {row["key"]: row["value"] for row in json.loads(plan.out)["settings"]}
    pretraining = config.load(PIPELINES / "pretrain_mlm.toml", sets=(), registry=Registry.discover()).architecture
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "initializer_range"):
        assert values[f"architecture.{name}"] == getattr(pretraining, name)
    assert values["tokenizer.path"] == "run:pretrain_mlm"


def test_the_next_word_piece_is_learnt(rtx, tmp_path):
    """``pretrain_clm.toml`` as it is, but for its size: four epochs on a part of the book, of a loss that falls."""
    pipeline, output = PIPELINES / "pretrain_clm.toml", tmp_path / "run"
    assert rtx("check", pipeline).status == 0
    small = ("architecture.hidden_size=16", "architecture.intermediate_size=32", "tokenizer.vocab_size=600")
    small += ("architecture.num_hidden_layers=1", "architecture.num_attention_heads=2", "training.threads=1")
    sets = [word for change in (*small, "data.train.limit=60", "data.eval.limit=10") for word in ("--set", change)]
    done = rtx("run", pipeline, *sets, "--output", output, "--quiet")
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    losses = [row["eval/loss"] for row in rows if "eval/loss" in row]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
