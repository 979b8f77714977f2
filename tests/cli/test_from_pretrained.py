"""``from_pretrained`` from the command line: what a run says of its weights, and what people do wrong with them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
FINE_TUNING = """\
[task]
type = "sequence_classification"
max_length = 16
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[architecture]
from_pretrained = "weights"
[optimizer]
lr = 1e-3
[training]
duration = "2 steps"
batch_size = 4
threads = 1
"""
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 90868376\n"


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A working directory with a pipeline that starts from ``weights``, the kept model of a small run."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "runs" / "colours" / "model", tmp_path / "weights")
    shutil.copy(trained / "train.jsonl", tmp_path)
    (tmp_path / "job.toml").write_text(FINE_TUNING)
    return tmp_path


@pytest.fixture
def refused(rtx, place):
    """Run a pipeline that must be refused; its one line on stderr, without the working directory in it."""

    def line(*sets):
        done = rtx("run", "job.toml", "--output", "out", *(word for text in sets for word in ("--set", text)))
        assert (done.status, done.out) == (2, "")
        return re.sub(r"^training: .* cut at max_length\n", "", done.err).removesuffix("\n").replace(f"{place}/", "")

    return line


def config_with(folder, **values):
    file = folder / "weights" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


# --- what works -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["weights", "run:colours"])
def test_the_header_says_what_came_from_where(rtx, place, trained, source):
    """The folder or the run, how many tensors, which are new and which were left over."""
    if source == "run:colours":
        shutil.copytree(trained / "runs" / "colours" / "model", place / "runs" / "colours" / "model")
    assert rtx("run", "job.toml", "--set", f"architecture.from_pretrained={source}").status == 0
    stored = len(load_file(place / "weights" / "model.safetensors"))
    line = f"weights  {stored} tensors from {source}, 0 new, 0 unused\n"
    assert line in (place / "runs" / "job" / "log.txt").read_text(encoding="utf-8")


def test_the_header_names_what_is_new_and_unused(rtx, place):
    """A classifier under another name is one that is left over, and ours is new."""
    file = place / "weights" / "model.safetensors"
    save_file({name.replace("classifier", "score"): tensor for name, tensor in load_file(file).items()}, file)
    assert rtx("run", "job.toml").status == 0
    log = (place / "runs" / "job" / "log.txt").read_text(encoding="utf-8")
    assert ", 2 new (classifier.weight, classifier.bias), 2 unused (score.bias, score.weight)\n" in log


def test_a_run_from_the_seed_has_no_such_line(trained):
    """There are no weights to speak of."""
    assert "\nweights" not in (trained / "runs" / "colours" / "log.txt").read_text(encoding="utf-8")


def test_the_fine_tuning_pipeline_fits_any_weights(rtx, place):
    """``pipelines/finetune_minilm.toml`` passes check, and trains two steps from a BERT of another size."""
    pipeline = ROOT / "pipelines" / "finetune_minilm.toml"
    sets = ("--set", f"architecture.from_pretrained={place}/weights", "--set", "task.max_length=16")
    assert rtx("check", pipeline, *sets).status == 0
    data = [f'data.{name}.files=["{place}/train.jsonl"]' for name in ("train", "eval", "test")]
    sets += tuple(word for text in data for word in ("--set", text))
    assert rtx("run", pipeline, *sets, "--steps", "2", "--output", place / "run").status == 0


# --- what people do wrong ---------------------------------------------------------------------------------------------


def no_config(place):
    (place / "weights" / "config.json").unlink()


def no_tokenizer(place):
    (place / "weights" / "tokenizer.json").unlink()


def no_weights(place):
    (place / "weights" / "model.safetensors").unlink()


def pickled(place):
    (place / "weights" / "model.safetensors").rename(place / "weights" / "pytorch_model.bin")


def pointer(place):
    (place / "weights" / "model.safetensors").write_text(POINTER)


def a_run(place):
    (place / "weights").rename(place / "model")
    (place / "weights").mkdir()
    (place / "model").rename(place / "weights/model")


def half_fetched(place):
    shard = "model-00001-of-00002.safetensors"
    (place / "weights" / "model.safetensors").rename(place / "weights" / shard)
    names = {"a": shard, "b": "model-00002-of-00002.safetensors"}
    (place / "weights" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def another_family(place):
    config_with(place, model_type="gpt2")


def another_family_that_is_said_to_be_bert(place):
    config_with(place, model_type="roberta")
    (place / "job.toml").write_text(FINE_TUNING.replace("[optimizer]", 'type = "bert"\n[optimizer]'))


def a_decoder(place):
    config_with(place, is_decoder=True)


def nothing(place):
    pass


AT = "job.toml:9:19: architecture.from_pretrained: "
MISTAKES = {
    "no config.json": (no_config, (), f"{AT}there is no weights/config.json"),
    "a run's folder": (
        a_run,
        ("tokenizer.type=wordpiece",),
        f'{AT}there is no weights/config.json; the model that a run has kept there is "weights/model"',
    ),
    "no tokenizer": (
        no_tokenizer,
        (),
        f'{AT}no tokenizer in "weights": expected tokenizer.json, vocab.txt, or vocab.json with merges.txt',
    ),
    "no weights": (no_weights, (), f"{AT}weights has no model.safetensors"),
    "half fetched": (half_fetched, (), f"{AT}weights lacks model-00002-of-00002.safetensors, which model.safetensors."),
    "pickled": (pickled, (), f"{AT}weights has only pytorch_model.bin, whose format can run code when it is read; "),
    "Git LFS": (pointer, (), f"{AT}weights has only Git LFS's pointer to model.safetensors; "),
    "another family": (another_family, (), f'{AT}config.json has model_type "gpt2", and no such architecture is '),
    "another family as BERT": (
        another_family_that_is_said_to_be_bert,
        (),
        f'{AT}config.json has model_type "roberta"; bert takes "bert" only',
    ),
    "a decoder": (
        a_decoder,
        (),
        "job.toml:8:2: architecture: lets a token see only those before it; this task needs to see the whole text",
    ),
    "hub without prefix": (
        nothing,
        ("architecture.from_pretrained=org/name",),
        '--set: architecture.from_pretrained: no folder "org/name"; for the hub write "hub:org/name"',
    ),
    "no such run": (
        nothing,
        ("architecture.from_pretrained=run:first",),
        '--set: architecture.from_pretrained: run "first" has kept no model here: there is no folder runs/first/model',
    ),
    "no room": (
        nothing,
        ("architecture.max_position_embeddings=1000000000000",),
        "the model is larger than this machine's memory; take smaller sizes in [architecture]",
    ),
    "too long": (
        nothing,
        ("task.max_length=17",),
        "--set: task.max_length: 17 tokens are more than the architecture's 16 positions",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(refused, place, mistake):
    """Status 2, one line with the place and what to do, and no run folder."""
    spoil, sets, expected = MISTAKES[mistake]
    spoil(place)
    line = refused(*sets)
    assert line.startswith(expected)
    assert "\n" not in line
    assert not (place / "out").exists()


UNFIT = {
    "other labels": (
        'task.labels=["warm", "cold", "mild"]',
        'weights/config.json: its head predicts ["cold", "warm"], in this order, this task ["warm", "cold", "mild"]',
    ),
    "fewer layers": (
        "architecture.num_hidden_layers=2",
        "weights (model_type \"bert\"): the weights are not this model's: 16 of the model's tensors are not in ",
    ),
    "another width": (
        "architecture.hidden_size=8",
        "weights/model.safetensors: bert.embeddings.word_embeddings.weight has shape ",
    ),
    "fewer positions": (
        "architecture.max_position_embeddings=32",
        "weights/model.safetensors: the position table has 16 rows in the file and 32 in the model ",
    ),
    "a small table": (
        "architecture.vocab_size=20",
        "the tokenizer has ",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_weights_that_do_not_fit_are_one_line(rtx, refused, place, case):
    """What only the file of weights can tell is refused before the first step, with both figures; ``plan`` says it."""
    setting, expected = UNFIT[case]
    line = refused(setting)
    assert line.startswith(expected)
    assert "\n" not in line
    planned = rtx("plan", "job.toml", "--set", setting)
    assert planned.status == 2
    assert planned.err.replace(f"{place}/", "").endswith(f"{line}\n")


def test_the_way_out_for_other_labels_works(rtx, place):
    """With the line that the refusal proposes, the classifier starts anew, and the header says so."""
    text = FINE_TUNING.replace("max_length = 16", 'labels = ["warm", "cold", "mild"]\nmax_length = 16')
    load = "[architecture.load]\nreinit_head = true\n[optimizer]"
    (place / "job.toml").write_text(text.replace("[optimizer]", load))
    assert rtx("run", "job.toml").status == 0
    log = (place / "runs" / "job" / "log.txt").read_text(encoding="utf-8")
    assert ", 2 new (classifier.weight, classifier.bias), 2 unused (classifier.weight, classifier.bias)\n" in log


def test_a_new_vocabulary_on_old_weights_is_refused(refused, place):
    """The rows of a token table mean nothing under other numbers: a tokenizer trained in the run is caught."""
    line = refused("tokenizer.type=wordpiece", "tokenizer.vocab_size=40")
    assert re.fullmatch(
        r'tokenizer: ".+" has number \d+, but \d+ in weights/tokenizer\.json, which the weights were trained with; '
        r"leave \[tokenizer\] out to take theirs",
        line.splitlines()[-1],
    )
