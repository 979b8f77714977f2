"""``plan``: its numbers are those of torch and of arithmetic."""

from __future__ import annotations

import json

import pytest

from rtx_core import Horizon, Length, build
from rtx_plugins.commands.plan import times


@pytest.fixture
def report(rtx, folder):
    """Plan the small pipeline with further settings, as data."""

    def plan(*settings):
        done = rtx("plan", "colours.toml", "--json", *(word for setting in settings for word in ("--set", setting)))
        assert (done.status, done.err) == (0, "")
        return json.loads(done.out)

    return plan


def test_parameters_are_those_of_bert(report):
    """Encoder, pooler and head of a BERT of these sizes, by the formula of its layers."""
    model = report()["model"]
    hidden, inner, positions, labels, vocabulary = 16, 16, 16, 2, model["vocab_size"]
    embeddings = (vocabulary + positions + 2) * hidden + 2 * hidden
    layer = 4 * (hidden * hidden + hidden) + 2 * hidden * inner + inner + hidden + 4 * hidden
    assert model["encoder"] == embeddings + layer
    assert model["pooler"] == hidden * hidden + hidden
    assert model["head"] == hidden * labels + labels
    assert model["total"] == model["encoder"] + model["pooler"] + model["head"]


PUBLISHED = {
    "bert, base": ("bert", "base", 30_522, 109_482_240, 108_891_648),
    "bert, large": ("bert", "large", 30_522, 335_141_888, 334_092_288),
    "roberta, base": ("roberta", "base", 50_265, 124_645_632, 124_055_040),
    "distilbert, base": ("distilbert", "base", 30_522, 66_362_880, 66_362_880),
}
"""Family, preset, published vocabulary, parameters of transformers' encoder with its pooler, and without it."""
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings")


@pytest.fixture
def published(report, monkeypatch):
    """Plan a preset with its published vocabulary for a task; what was built for it has to be on the meta device."""
    built = []

    def build_model(*args, **kwargs):
        built.append(original(*args, **kwargs))
        return built[-1]

    original = build.build_model
    monkeypatch.setattr(build, "build_model", build_model)

    def model(family, preset, rows, *settings):
        padding = ("architecture.pad_token_id=0",)  # the trained tokenizer's
        own = ("architecture.type=" + family, f"architecture.preset={preset}", f"architecture.vocab_size={rows}")
        counts = report(*(f"architecture.{name}=unset" for name in SIZES), *own, *padding, *settings)["model"]
        ((planned, _),) = built
        built.clear()
        assert all(parameter.is_meta for parameter in planned.parameters())
        return counts

    return model


@pytest.mark.parametrize("case", PUBLISHED)
def test_published_sizes_are_counted_by_part(published, case):
    """Encoder, pooler and head of a classifier apart, without the memory of any.

    Our RoBERTa has no pooler: neither have transformers' classes for these tasks, only ``RobertaModel`` alone, of which
    the published number is. As many parameters has the dense layer of the classifier, which is the head's.
    """
    family, preset, rows, with_pooler, encoder = PUBLISHED[case]
    width = 1024 if preset == "large" else 768
    dense, labels = width * width + width, 2 * width + 2
    counts = published(family, preset, rows)
    assert counts["encoder"] == encoder
    if family == "bert":
        assert (counts["pooler"], counts["head"]) == (dense, labels)
        assert counts["encoder"] + counts["pooler"] == with_pooler
    else:
        assert (counts["pooler"], counts["head"]) == (0, dense + labels)
        assert with_pooler == encoder + (dense if family == "roberta" else 0)
    assert counts["total"] == encoder + dense + labels
    assert counts["vocab_size"] == rows


def test_a_tied_decoder_is_counted_once(published):
    """BertForMaskedLM of BERT-base has 109,514,298 parameters: a dense layer, a norm and a bias above the encoder."""
    settings = ("task.type=masked_lm", "task.label=unset", "training.monitor=eval/loss")
    counts = published("bert", "base", 30_522, *settings)
    assert counts["head"] == 768 * 768 + 768 + 2 * 768 + 30_522
    assert (counts["pooler"], counts["total"]) == (0, 109_514_298)
    untied = published("bert", "base", 30_522, *settings, "architecture.tie_word_embeddings=false")
    # A decoder of its own, and beside its bias the second one that transformers' files have.
    assert untied["total"] == counts["total"] + 30_522 * 768 + 30_522


def test_groups_hold_every_parameter_once(report):
    """The groups' parameters add up to the model's; biases and norms are not decayed."""
    plan = report("optimizer.weight_decay=0.1")
    assert sum(group["parameters"] for group in plan["groups"]) == plan["model"]["total"]
    decays = {group["role"]: group["weight_decay"] for group in plan["groups"]}
    assert decays == {"embedding": 0.1, "matrix": 0.1, "head": 0.1, "norm": 0.0, "bias": 0.0}
    assert {group["lr"] for group in plan["groups"]} == {1e-2}


def test_steps_follow_from_records_and_batch(report):
    """50 records in batches of 15 are 4 steps an epoch; 10 epochs are 40; an evaluation each 3 epochs, and the last."""
    steps = report("training.batch_size=15", "training.eval_every=3 epochs", "callbacks.checkpoint.every=7 steps")[
        "steps"
    ]
    assert (steps["per_epoch"], steps["total"], steps["epochs"]) == (4, 40, 10)
    assert steps["evaluations"] == 4  # after 12, 24, 36 and 40
    assert steps["checkpoints"] == 6  # after 7, 14, 21, 28, 35 and 40


def test_steps_by_tokens_follow_from_the_tokens(report):
    """50 records of 4 tokens are 200: at 30 a step 7 steps an epoch; a micro-batch still to be measured says so."""
    steps = report(
        *("task.max_length=4", "training.batch_size=unset", "training.batch_tokens=30"),
        *("training.micro_batch_size=auto", "training.duration=600 tokens"),
    )["steps"]
    assert (steps["per_epoch"], steps["total"], steps["samples_per_epoch"]) == (7, 21, 50)
    assert (steps["batch_size"], steps["batch_tokens"], steps["micro_batch_size"]) == (None, 30, "auto")
    assert (steps["tokens"], steps["fill"]) == (600, None)


def test_lengths_say_what_is_cut_off(report):
    """Each text is [CLS], 3 words and [SEP]; the numbers are further pieces. With 4 tokens kept, every text is cut."""
    data = report("task.max_length=4")["data"]
    assert list(data) == ["training", "eval", "test"]
    assert data["training"] == {
        "records": 50,
        "samples": 50,
        "tokens": 200,
        "median": 4,
        "p95": 4,
        "longest": 4,
        "cut": 1.0,
    }
    assert report("task.max_length=16")["data"]["training"]["cut"] == 0.0


def test_rates_are_the_schedules(report):
    """50 steps of linear with 10 steps of warm-up: 0, then the peak at update 10, then (50 − i) / 40 of it."""
    rates = report("scheduler.warmup=10 steps")["rates"]
    assert rates["warmup"] == 10
    by_update = {row["update"]: row["lr"] for row in rates["updates"]}
    assert by_update[0] == 0.0
    assert by_update[10] == pytest.approx(1e-2)
    assert by_update[36] == pytest.approx(1e-2 * 14 / 40)
    assert by_update[49] == pytest.approx(1e-2 * 1 / 40)


def test_settings_have_their_origin(report, folder):
    """A value's line in the file, the command line, a preset, or a default."""
    settings = {row["key"]: (row["value"], row["origin"]) for row in report("run.seed=3")["settings"]}
    line = (folder / "colours.toml").read_text().splitlines().index("lr = 1e-2") + 1
    assert settings["optimizer.lr"] == (0.01, f"colours.toml:{line}")
    assert settings["run.seed"] == (3, "--set")
    assert settings["scheduler.warmup"] == ("6%", "defaults.toml")
    assert settings["optimizer.eps"] == (1e-8, "default of optimizer.adamw")
    (folder / "base.toml").write_text("\n[task]\nmax_length = 12\n")
    path = folder / "colours.toml"
    path.write_text('extends = ["base.toml"]\n' + path.read_text().replace("max_length = 16\n", ""))
    settings = {row["key"]: (row["value"], row["origin"]) for row in report()["settings"]}
    assert settings["task.max_length"] == (12, "base.toml:3")


def test_parts_name_their_package(rtx, folder, mine):
    """Each part with the distribution that supplies it, and what it replaces."""
    done = rtx("plan", "colours.toml", "--json", "--plugin", mine)
    parts = {part["table"]: part for part in json.loads(done.out)["parts"]}
    assert parts["optimizer"]["from"].startswith("extra.py ")
    assert parts["optimizer"]["replaces"] == "rtx-transformers"
    assert parts["architecture"]["part"] == "architecture.bert"
    assert parts["architecture"]["replaces"] is None


def test_the_text_has_every_table(rtx, folder):
    """For a person: aligned tables on stdout; no run folder is made."""
    done = rtx("plan", "colours.toml")
    assert (done.status, done.err) == (0, "")
    titles = ("parts", "data", "model", "steps", "parameter groups", "rate, with 3 steps of warm-up", "settings")
    assert [line for line in done.out.splitlines() if line in titles] == list(titles)
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("every", "count"),
    [
        ("1 epoch", 4),
        ("0.5 epochs", 7),
        ("3 steps", 4),
        ("0.1 steps", 10),
        ("100 steps", 1),
        ("50%", 2),
        ("0 steps", 1),
    ],
)
def test_how_often_something_happens(every, count):
    """10 steps of 3 an epoch: as often as ``Horizon.due`` says, and after the last step in any case."""
    horizon = Horizon(total=10, run_total=10, steps_per_epoch=3, samples_per_epoch=9, tokens_per_epoch=90)
    length = Length.parse(every)
    assert times(horizon, length) == count
    assert count == sum(horizon.due(length, step) or step == 10 for step in range(1, 11))
