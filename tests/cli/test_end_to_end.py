"""Whole runs from the command line: what they learn, and what stops them before they have begun."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from rtx_core import config
from rtx_core.cli import main
from rtx_core.console import Console
from rtx_core.dataset import evaluation_batches
from rtx_core.prepare import prepare
from rtx_core.registry import Registry

PIPELINES = Path(__file__).parents[2] / "pipelines"

REPEATED = """\
[task]
type = "masked_lm"
max_length = 16
[data]
type = "text"
[data.train]
files = ["train.txt"]
[data.eval]
files = ["eval.txt"]
[tokenizer]
type = "wordpiece"
vocab_size = 200
[architecture]
type = "bert"
hidden_size = 32
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 32
max_position_embeddings = 16
hidden_dropout_prob = 0.0
attention_probs_dropout_prob = 0.0
[optimizer]
lr = 1e-2
[training]
duration = "150 steps"
eval_every = "50 steps"
batch_size = 20
threads = 1
eval_at_start = true
"""


def rows(folder):
    """The rows of metrics.jsonl."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def record(folder):
    """What run.json says."""
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


# --- what is learnt ---------------------------------------------------------------------------------------------------


def unigram_loss(pipeline, name=""):
    """Mean nats of the best unigram model of the training text, at the positions that an evaluation predicts.

    Counts plus a constant, since a token that never occurs would cost infinitely much; the constant is the one that
    suits the held-out text best, so no other would make it harder to beat.
    """
    settings = config.load(pipeline, sets=(), registry=Registry.discover())
    prepared = prepare(settings, console=Console(quiet=True))
    ids = np.concatenate([prepared.train[i].input_ids for i in range(len(prepared.train))])
    counts = np.bincount(ids, minlength=prepared.vocab_size).astype(float)
    special = {token.content for token in prepared.tokenizer.get_added_tokens_decoder().values() if token.special}
    counts = np.delete(counts, sorted(prepared.tokenizer.token_to_id(token) for token in special))
    batches = evaluation_batches(prepared.eval[name], prepared.task, 64, seed=settings.run.seed)
    targets = np.concatenate([batch.targets.numpy() for batch in batches]) - len(special)
    assert targets.min() >= 0  # special tokens come first and are never predicted
    return min(_mean_nats(counts + added, targets) for added in np.logspace(-4, 2, 61))


def _mean_nats(counts, targets):
    return float(-np.log(counts / counts.sum())[targets].mean())


def evaluations(folder):
    """The rows of metrics.jsonl that evaluations wrote."""
    return [row for row in rows(folder) if "eval/loss" in row]


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """The folder of a run on lines that repeat one of 30 words."""
    folder = tmp_path_factory.mktemp("repeated")
    chance = np.random.default_rng(0)
    words = ["".join(letters) for letters in chance.choice(list("abcdefgh"), (30, 5))]
    lines = [f"{word} " * 8 + "\n" for word in words]
    (folder / "train.txt").write_text("".join(chance.choice(lines, 600)))
    (folder / "eval.txt").write_text("".join(chance.choice(lines, 100)))
    (folder / "repeated.toml").write_text(REPEATED)
    assert main(["run", str(folder / "repeated.toml"), "--output", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


def test_a_language_model_learns_more_than_how_often_words_occur(repeated):
    """The loss starts at ln V and falls far below that of the best unigram model."""
    losses = [row["eval/loss"] for row in evaluations(repeated)]
    unigram = unigram_loss(repeated.parent / "repeated.toml")
    print(f"held-out loss {losses[0]:.3f} → {losses[-1]:.3f}; best unigram model {unigram:.3f}")
    assert unigram == pytest.approx(math.log(30), abs=0.1)  # 600 and 100 lines are not quite even
    # The first logits have a standard deviation of 0.02 √32; for the mean over 30 words, three of it is 0.06.
    assert losses[0] == pytest.approx(math.log(record(repeated)["vocab_size"]), abs=0.06)
    assert losses[-1] < unigram - 1.0


def test_perplexity_is_the_exponential_of_the_loss(repeated):
    """In every evaluation, within the rounding of float32 sums."""
    for row in evaluations(repeated):
        assert row["eval/perplexity"] == pytest.approx(math.exp(row["eval/loss"]), rel=1e-5)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A working directory with a run of ``pretrain_mlm.toml`` as it is."""
    folder = tmp_path_factory.mktemp("pretrained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run = ("run", str(PIPELINES / "pretrain_mlm.toml"), "--quiet", "--set", "training.eval_at_start=true")
        assert main(run) == 0
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "below"), [("book", 1.5), ("nouns", 2.5)])
def test_pretrain_mlm_leaves_the_unigram_model_behind(pretrained, name, below):
    """On held-out chapters and definitions the loss falls from that of chance far below the best unigram model's."""
    found = rows(pretrained / "runs" / "pretrain_mlm")
    losses = [row[f"eval/{name}/loss"] for row in found if f"eval/{name}/loss" in row]
    unigram = unigram_loss(PIPELINES / "pretrain_mlm.toml", name)
    print(f"held-out loss {', '.join(f'{loss:.3f}' for loss in losses)}; best unigram model {unigram:.3f}")
    # The first logits have the variance 128 · 0.05², half of which is added to ln V. Those of targets have the mean 0
    # but for 0.57 times the root of the sum of the words' squared shares, which is about 0.1.
    assert losses[0] == pytest.approx(math.log(8000) + 128 * 0.05**2 / 2, abs=3 * 0.057)
    assert losses[-1] < unigram - below


@pytest.mark.nightly
def test_pretraining_is_worth_a_lot(rtx, pretrained, monkeypatch):
    """With 500 labelled rows the pretrained model is right far more often than the same from the seed."""
    monkeypatch.chdir(pretrained)
    settings = ("architecture.from_pretrained=unset", "architecture.type=bert", "architecture.preset=tiny")
    settings += ("architecture.initializer_range=0.05", "tokenizer.type=pretrained", "tokenizer.path=run:pretrain_mlm")
    settings += ("optimizer.lr=1e-3", "run.name=scratch")
    kept = []
    for sets in ((), settings):
        words = [word for change in sets for word in ("--set", change)]
        assert rtx("run", PIPELINES / "finetune_pretrained.toml", *words, "--quiet").status == 0
        kept.append(record(pretrained / "runs" / ("scratch" if sets else "finetune_pretrained")))
    ours, scratch = ((found["best"]["value"], found["test"]["test/accuracy"]) for found in kept)
    print(f"eval and test accuracy {ours} pretrained, {scratch} from the seed")
    assert ours[0] > scratch[0] + 0.05
    assert ours[1] > scratch[1] + 0.05  # three standard errors of a difference on 1,000 rows


@pytest.mark.nightly
def test_the_quickstart_tells_nouns_apart(rtx, tmp_path):
    """``eval/accuracy`` of the kept model is at least 0.93, and the test set's stands beside it in run.json."""
    assert rtx("run", PIPELINES / "quickstart.toml", "--output", tmp_path / "run", "--quiet").status == 0
    kept = record(tmp_path / "run")
    print(f"best {kept['best']}; test {kept['test']}")
    assert kept["best"]["monitor"] == "eval/accuracy"
    assert kept["best"]["value"] >= 0.93
    assert kept["test"]["test/accuracy"] == pytest.approx(kept["best"]["value"], abs=0.04)  # 1,000 rows each


# --- what can't work --------------------------------------------------------------------------------------------------

TWO_THAT_REPLACE_BACKWARD = """
@attrs.frozen(kw_only=True)
class First(Callback):
    def backward(self, run, loss):
        loss.backward()
        return True

@attrs.frozen(kw_only=True)
class Second(First):
    pass
"""

BACKWARD_WITHOUT_AN_ANSWER = """
@attrs.frozen(kw_only=True)
class First(Callback):
    def backward(self, run, loss):
        loss.backward()

@attrs.frozen(kw_only=True)
class Second(Callback):
    pass
"""

A_MISSPELT_HOOK = """
@attrs.frozen(kw_only=True)
class First(Callback):
    def on_step_edn(self, run):
        pass

@attrs.frozen(kw_only=True)
class Second(Callback):
    pass
"""

A_LAMBDA_IN_A_STATE = """
class Part:
    def state_dict(self):
        return {"count": 0, "later": [lambda: 0]}

    def load_state_dict(self, state):
        pass

@attrs.frozen(kw_only=True)
class First(Callback):
    def build(self):
        return Part()

@attrs.frozen(kw_only=True)
class Second(Callback):
    pass
"""


@pytest.fixture
def with_callbacks(plugin, folder):
    """A function that writes a plugin file with the callbacks ``first`` and ``second``, and a pipeline with both."""

    def write(code):
        pipeline = (folder / "colours.toml").read_text() + "[callbacks.first]\n[callbacks.second]\n"
        (folder / "bad.toml").write_text(pipeline)
        offer = '@hookimpl\ndef callback():\n    return {"first": First, "second": Second}\n'
        return plugin(f"import attrs\nfrom rtx_core import Callback, hookimpl\n{code}\n{offer}")

    return write


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        (TWO_THAT_REPLACE_BACKWARD, ("callback.first", "callback.second", "both replace backward")),
        (BACKWARD_WITHOUT_AN_ANSWER, ("callback.first: backward returned None", "must answer")),
        (A_MISSPELT_HOOK, ("callback.first: method on_step_edn is no hook", 'did you mean "on_step_end"?')),
        (A_LAMBDA_IN_A_STATE, ("callback.first", "later", "function")),
    ],
    ids=["two_that_replace_backward", "backward_without_an_answer", "a_misspelt_hook", "a_lambda_in_a_state"],
)
def test_a_callback_that_cannot_work_is_one_line_before_the_first_step(rtx, folder, with_callbacks, code, parts):
    """Exit status 2, one line that names the part, no step made and nothing saved.

    What is found before the run begins leaves no folder; else run.json has the same line.
    """
    done = rtx("run", "bad.toml", "--plugin", with_callbacks(code), "--quiet")
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert all(part in line for part in parts), line
    run = folder / "runs" / "colours"
    if not run.exists():
        return
    assert (record(run)["status"], record(run)["why"]) == ("failed", line)
    assert [row for file in run.glob("metrics.jsonl") for row in file.read_text().splitlines()] == []
    assert list((run / "checkpoints").glob("*")) == []


def test_an_optimizer_whose_state_is_no_data_is_one_line_before_the_first_step(rtx, folder, plugin):
    """A lambda among the settings of its groups is found at once, not at the first checkpoint."""
    odd = plugin(
        "import attrs\n"
        "from rtx_core import Optimizer, hookimpl\n"
        "@attrs.frozen(kw_only=True)\n"
        "class Odd(Optimizer):\n"
        "    def build(self, groups):\n"
        "        import torch\n"
        "        return torch.optim.SGD([{**group.options(), 'later': lambda: 0} for group in groups])\n"
        "@hookimpl\n"
        "def optimizer():\n"
        "    return {'odd': Odd}\n"
    )
    sets = ("--set", "optimizer.type=odd", "--set", "optimizer.lr=0.1")
    done = rtx("run", "colours.toml", *sets, "--plugin", odd, "--quiet")
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert all(part in line for part in ("optimizer", "later", "function")), line
    assert list((folder / "runs" / "colours" / "checkpoints").glob("*")) == []


def test_a_run_can_start_again_once_the_callback_is_gone(rtx, folder, with_callbacks):
    """What failed before its first checkpoint is in nobody's way."""
    assert rtx("run", "bad.toml", "--plugin", with_callbacks(A_LAMBDA_IN_A_STATE), "--quiet").status == 2
    assert rtx("run", "colours.toml", "--quiet").status == 0
    assert record(folder / "runs" / "colours")["status"] == "finished"


def test_a_trial_never_replaces_a_run_that_was_named(rtx, folder):
    """``run --steps 2 --output DIR`` on a finished run is refused; only ``runs/NAME-smoke`` is replaced each time."""
    assert rtx("run", "colours.toml", "--quiet", "--output", "kept").status == 0
    before = (folder / "kept" / "metrics.jsonl").read_bytes()
    done = rtx("run", "colours.toml", "--quiet", "--output", "kept", "--steps", "2")
    assert (done.status, done.out) == (2, "")
    assert "--overwrite" in done.err
    assert (folder / "kept" / "metrics.jsonl").read_bytes() == before
