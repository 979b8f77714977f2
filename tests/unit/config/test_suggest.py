"""What a wrong key or name was probably meant to be."""

from __future__ import annotations

import sys

import attrs
import pytest

from rtx_core.config import load
from rtx_core.errors import PipelineError
from rtx_core.registry import Entry


@pytest.fixture
def suggested(problems, base):
    """What is said about one line that is added to a table, and the mended line."""

    def of(table, line):
        header = f"[{table}]\n"
        text = base.replace(header, f"{header}{line}\n") if header in base else f"{base}{header}{line}\n"
        if not table:
            text = f"{line}\n{base}"
        (problem,) = problems(text)
        return problem.message.partition(" (")[0], problem.mended

    return of


@pytest.mark.parametrize(
    ("table", "line", "message", "mended"),
    [
        # near names
        ("optimizer", "weight_decy = 0.1", 'unknown key; did you mean "weight_decay"?', "weight_decay = 0.1"),
        ("optimizer", "Betas = [0.9, 0.9]", 'unknown key; did you mean "betas"?', "betas = [0.9, 0.9]"),
        ("training", "eval-every = '1 epoch'", 'unknown key; did you mean "eval_every"?', "eval_every = '1 epoch'"),
        ("architecture", "num_hidden = 1", None, None),
        ("run", "sede = 1", 'unknown key; did you mean "seed"?', "seed = 1"),
        ("data", "valid = {}", 'unknown key; did you mean "eval"?', "eval = {}"),
        (
            "callbacks.early_stopping",
            "patience = 1\npatince = 3",
            'unknown key; did you mean "patience"?',
            "patience = 3",
        ),
        # keys of another table
        ("training", "warmup = '6%'", 'unknown key; "warmup" belongs in [scheduler]', None),
        ("training", "patience = 3", 'unknown key; "patience" belongs in [callbacks.early_stopping]', None),
        ("training", "seed = 3", 'unknown key; "seed" belongs in [run]', None),
        ("optimizer", "batch_size = 3", 'unknown key; "batch_size" belongs in [training]', None),
        ("optimizer", "warmpu = '6%'", 'unknown key; "warmup" belongs in [scheduler]', None),
        ("run", "max_norm = 1.0", 'unknown key; "max_norm" belongs in [callbacks.clip_grad_norm]', None),
        ("callbacks.amp", "patience = 1", 'unknown key; "patience" belongs in [callbacks.early_stopping]', None),
        ("", "seed = 3", 'unknown key; "seed" belongs in [run]', None),
        # one letter is near every other: nothing to suggest
        ("data.train", "p = 3", "unknown key; keys are files, limit, rename", None),
        ("", "lr = 3", 'unknown key; "lr" belongs in [optimizer]', None),
        # top-level tables
        ("", "[trian]", 'unknown table; did you mean "training"?', "[training]"),
        ("", "[modle]", 'unknown table; did you mean "architecture"?', "[architecture]"),
        ("", "[optimiser]", 'unknown table; did you mean "optimizer"?', "[optimizer]"),
        ("", "[sched]", 'unknown table; did you mean "scheduler"?', "[scheduler]"),
        ("", "[eval]", "unknown table; write [data.eval]", None),
        ("", "[serach]", 'unknown table; did you mean "search"?', "[search]"),
        ("", "[zebra]", None, None),
        # other tools
        ("optimizer", "learning_rate = 1e-4", 'unknown key; did you mean "lr"?', "lr = 1e-4"),
        ("training", "learning_rate = 1e-4", "unknown key; write lr in [optimizer]", None),
        ("training", "num_train_epochs = 3", 'unknown key; write duration = "3 epochs"', None),
        ("training", "per_device_train_batch_size = 4", 'unknown key; did you mean "micro_batch_size"?', None),
        (
            "training",
            "gradient_accumulation_steps = 4",
            "unknown key; accumulation follows from batch_size and micro_batch_size in [training]",
            None,
        ),
        ("training", "warmup_ratio = 0.1", 'unknown key; write warmup = "6%" in [scheduler]', None),
        ("scheduler", "warmup_steps = 100", 'unknown key; write warmup = "500 steps"', None),
        ("training", "max_seq_length = 128", "unknown key; write max_length in [task]", None),
        ("training", "max_grad_norm = 1.0", "unknown key; write max_norm in [callbacks.clip_grad_norm]", None),
        ("training", "fp16 = true", 'unknown key; write dtype = "bf16" in [callbacks.amp]', None),
        ("training", "save_total_limit = 3", "unknown key; write keep_last in [callbacks.checkpoint]", None),
        ("training", "accumulate_grad_batches = 4", None, None),
        ("architecture", "n_layer = 4", 'unknown key; did you mean "num_hidden_layers"?', "num_hidden_layers = 4"),
        ("data.train", "train_file = 'x'", 'unknown key; write files = ["train.jsonl"]', None),
        ("", "num_train_epochs = 3", 'unknown key; write duration = "3 epochs" in [training]', None),
    ],
)
def test_a_key_is_suggested(suggested, table, line, message, mended):
    """Near names, keys of other tables and other tools' names are recognised; a mended line is one that can stand."""
    found, line = suggested(table, line)
    assert message is None or found == message
    assert mended is None or line == mended


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"sequence_classification"', '"text-classification"', 'did you mean "sequence_classification"?'),
        ('"sequence_classification"', '"Sequence_Classification"', 'did you mean "sequence_classification"?'),
        ('type = "jsonl"', 'type = "json"', 'did you mean "jsonl"?'),
        ('"wordpiece"', '"WordPeice"', 'did you mean "wordpiece"?'),
        ('preset = "tiny"', 'preset = "tinny"', 'has no preset "tinny"; did you mean "tiny"?'),
        ('preset = "tiny"', 'preset = "huge"', 'has no preset "huge"; there are: tiny, mini, small'),
        ("[optimizer]", '[optimizer]\ntype = "adamw_torch"', 'did you mean "adamw"?'),
        (
            "[optimizer]",
            '[optimizer]\ntype = "zebra"',
            'no optimizer "zebra" is installed; there are: adafactor, adam, adamw, muon, sgd',
        ),
        (
            "[optimizer]",
            "[callbacks.progres]\n[optimizer]",
            'no callback "progres" is installed; did you mean "progress"?',
        ),
    ],
)
def test_a_name_is_suggested(lines, base, old, new, message):
    """A component's or preset's name is suggested from those that are there, and from other tools' names."""
    (line,) = lines(base.replace(old, new))
    assert message in line


def test_a_misspelt_required_key_is_one_problem(lines, base):
    """What a wrong key is meant to be is not reported missing too: a key, a type or a whole table."""
    assert len(lines(base.replace("lr = ", "learning_rate = "))) == 1
    assert len(lines(base.replace("[training]", "[trainer]"))) == 1
    (line,) = lines(base.replace('type = "bert"', 'tpye = "bert"'))
    assert line == 'pipeline.toml:18:1: architecture.tpye: unknown key; did you mean "type"?'
    (line,) = lines(base.replace('type = "wordpiece"', 'kind = "wordpiece"'))
    assert line.startswith("pipeline.toml:13:1: tokenizer.type: missing; it names the tokenizer: bpe, pretrained, ")


def test_a_misspelt_source_is_one_problem(lines, base):
    """Neither a type nor a tokenizer is asked for where another tool's name for ``from_pretrained`` is written."""
    text = base.replace('type = "bert"\npreset = "tiny"', 'model_name_or_path = "models/x"')
    text = text.replace('[tokenizer]\ntype = "wordpiece"\nvocab_size = 100\n', "")
    assert lines(text) == [
        'pipeline.toml:15:1: architecture.model_name_or_path: unknown key; did you mean "from_pretrained"?'
    ]


def test_case_29(lines, base):
    """Misspelt keys, a misspelt table, a key of another table: each is refused with a suggestion."""
    text = base.replace("lr = 5e-4", "lr = 5e-4\nweight_decy = 0.1").replace(
        "batch_size = 8", "batch_size = 8\nwarmup = '6%'"
    )
    text += '[trian]\n[callbacks]\nstop = { type = "early_stopping", patience = 1, patince = 3 }\n'
    found = lines(text)
    assert [line.split(": ", 2)[1] for line in found] == [
        "optimizer.weight_decy",
        "training.warmup",
        "trian",
        "callbacks.stop.patince",
    ]
    assert all(
        text in line for text, line in zip(("weight_decay", "[scheduler]", "training", "patience"), found, strict=True)
    )


def test_a_third_party_is_never_loaded_for_a_suggestion(folder, registry, base, tmp_path, monkeypatch):
    """Looking for a key among other components imports ours alone."""
    (tmp_path / "acme_spy.py").write_text("raise SystemExit('this module must not be imported')\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    offers = [
        Entry(kind=kind, name=name, module="acme_spy", distribution="acme", version="1")
        for kind, name in (("callback", "spy"), ("callback", "early_stopping"), ("scheduler", "spy"))
    ]
    watched = attrs.evolve(registry, entries=(*registry.entries, *offers))
    (folder / "pipeline.toml").write_text(base + "patience = 3\nzebra = 3\n", "utf-8")
    with pytest.raises(PipelineError, match="patience"):
        load("pipeline.toml", registry=watched, working_directory=folder)
    assert "acme_spy" not in sys.modules
