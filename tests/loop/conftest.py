"""Runs of a tiny BERT whose logits are known: fixtures Z, S and I of the cases."""

import io
import json
import types

import attrs
import pytest
from safetensors.torch import load_file

from rtx_core import Callback, Metric, MetricPart, config, hookimpl
from rtx_core.console import Console
from rtx_core.registry import Registry

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e", "f"]

BASE = """
[run]
name = "z"
[task]
type = "{task}"
{columns}
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
{evaluation}
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
hidden_dropout_prob = 0.0
attention_probs_dropout_prob = 0.0
[optimizer]
lr = 0.1
weight_decay = 0.0
[scheduler]
type = "constant"
[training]
duration = "1 step"
batch_size = 2
[callbacks.progress]
enabled = false
[callbacks.clip_grad_norm]
enabled = false
"""

COLUMNS = {
    "sequence_classification": 'text = "text"\nlabel = "label"\nlabels = ["0", "1"]',
    "token_classification": 'words = "words"\ntags = "tags"\nlabels = ["0", "1"]',
    "masked_lm": 'text = "text"',
}


@attrs.frozen(kw_only=True)
class ZeroHead(Callback):
    """Fixture Z: the classifier's weight is 0 and its bias is what is written."""

    bias: tuple[float, ...] = (0.0, 0.0)

    def on_run_start(self, run):
        import torch

        if run.step == 0:
            parameters = run.model.parameters_by_name()
            with torch.no_grad():
                parameters["classifier.weight"].zero_()
                parameters["classifier.bias"].copy_(torch.tensor(self.bias))


class Script(MetricPart):
    """Fixture S: one value of a list per evaluation; which one is next is its state."""

    def __init__(self, values):
        super().__init__()
        self.values, self.next = values, 0

    def update(self, predictions, targets, weights):
        pass

    def compute(self):
        self.next += 1
        return {"script": self.values[self.next - 1]}

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


@attrs.frozen(kw_only=True)
class Scripted(Metric):
    """Fixture S."""

    values: tuple[str, ...] = ()
    better: str = "min"

    def names(self):
        return {"script": self.better}

    def build(self, outputs):
        return Script([float(value) for value in self.values])


@attrs.frozen(kw_only=True)
class Refuse(Callback):
    """Answers finish_gradients with False at the given steps."""

    steps: tuple[int, ...] = ()
    none_at: int | None = None
    """A step at which it does not answer at all."""

    def finish_gradients(self, run):
        if run.step == self.none_at:
            return None
        return run.step not in self.steps


@attrs.frozen(kw_only=True)
class Inject(Callback):
    """Fixture I: makes the loss or the gradient of the given steps NaN or infinite.

    Of a loss it may be the one alone that a sample counts in.
    """

    steps: tuple[int, ...]
    value: str = "nan"
    gradient: bool = False
    sample: int | None = None

    @hookimpl(wrapper=True)
    def compute_loss(self, run, batch):
        loss = yield
        counted = batch.target_samples[batch.targets >= 0].tolist()
        hit = run.step in self.steps and (self.sample is None or self.sample in counted)
        return loss * float(self.value) if hit and not self.gradient else loss

    @hookimpl(wrapper=True)
    def backward(self, run):
        answer = yield
        if self.gradient and run.step in self.steps:
            run.model.parameters_by_name()["classifier.bias"].grad[0] = float(self.value)
        return answer


@attrs.frozen(kw_only=True)
class LeaveOut(Callback):
    """Ignores the targets of some samples from a step on, up to another."""

    samples: tuple[int, ...]
    since: int
    until: int = 1000

    def on_step_end(self, run):
        run.left_out = frozenset(self.samples if self.since <= run.step < self.until else ())


class Watch:
    """Keeps what a run went through, for the test to look at."""

    def __init__(self):
        self.ids, self.weights, self.losses, self.gradients, self.run = [], [], [], {}, None
        self.batches = []
        self.rates, self.momenta = [], []

    def on_run_start(self, run):
        self.run = run

    @hookimpl(wrapper=True)
    def compute_loss(self, run, batch):
        self.ids.append(batch.sample_ids.tolist())
        self.weights.append(batch.weight)
        self.batches.append(batch)
        loss = yield
        self.losses.append(float(loss.detach()))
        return loss

    def on_gradients(self, run):
        self.gradients = {n: p.grad.clone() for n, p in run.model.parameters_by_name().items() if p.grad is not None}

    def on_step_end(self, run):
        group = run.optimizer.param_groups[0]
        self.rates.append(group["lr"])
        self.momenta.append(group["betas"][0] if "betas" in group else group.get("momentum"))


@attrs.frozen(kw_only=True)
class Watching(Callback):
    """The newest run's watch is in ``Watching.latest``."""

    def build(self):
        Watching.latest = Watch()
        return Watching.latest


@pytest.fixture
def plugins():
    """The fixtures as a module, as ``plugins=[module]`` takes it."""
    module = types.ModuleType("loop_fixtures")
    module.__file__ = __file__

    @hookimpl
    def callback():
        return {"zero_head": ZeroHead, "refuse": Refuse, "watch": Watching, "inject": Inject, "leave_out": LeaveOut}

    @hookimpl
    def metric():
        return {"script": Scripted}

    module.callback, module.metric = callback, metric
    return module


class Outcome:
    """A finished run's folder, and its watch."""

    def __init__(self, folder, watch, said):
        self.folder, self.watch, self.said = folder, watch, said

    @property
    def rows(self):
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    @property
    def record(self):
        return json.loads((self.folder / "run.json").read_text())

    @property
    def checkpoints(self):
        return sorted(int(p.name.removeprefix("step-")) for p in (self.folder / "checkpoints").glob("step-*"))

    def saved(self, step, file="model"):
        """The tensors of a file of a checkpoint."""
        return load_file(self.folder / "checkpoints" / f"step-{step:08d}" / f"{file}.safetensors")

    def parameter(self, name):
        return self.watch.run.model.parameters_by_name()[name].detach()


@pytest.fixture
def train(tmp_path, plugins):
    """Run a pipeline on records in this process: ``train(records, task=…, sets=[…], extra="[…]")``."""
    count = 0

    def run(records, *, task="sequence_classification", sets=(), extra="", evaluation=None, output=None, **options):
        nonlocal count
        from rtx_core.runner import RunOptions, run_pipeline

        count += 1
        folder = tmp_path / f"pipeline-{count}"
        (folder / "tokenizer").mkdir(parents=True)
        (folder / "tokenizer" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        _write(folder / "train.jsonl", records)
        table = ""
        if evaluation is not None:
            _write(folder / "eval.jsonl", evaluation)
            table = '[data.eval]\nfiles = ["eval.jsonl"]'
        text = BASE.format(task=task, columns=COLUMNS.get(task, ""), evaluation=table) + "[callbacks.watch]\n" + extra
        (folder / "pipeline.toml").write_text(text)
        registry = Registry.discover([plugins])
        pipeline = config.load(folder / "pipeline.toml", sets=sets, registry=registry)
        stream = io.StringIO()
        target = output or tmp_path / f"run-{count}"
        with Console(stream) as console:
            run_pipeline(pipeline, registry, RunOptions(output=target, **options), console)
        return Outcome(target, Watching.latest, stream.getvalue())

    return run


def _write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
