"""``micro_batch_size = "auto"``: measured before the first step, kept, and without a trace in the run."""

import attrs
import psutil
import pytest
import tomli
import torch

from rtx_core import Callback, InputError, hookimpl, micro_batch

TEXTS = [{"text": " ".join("abcdef"[: i % 6 + 1]), "label": str(i % 2)} for i in range(40)]
LONGEST = 8
AUTO = ("training.micro_batch_size=auto", "training.batch_size=16", "training.duration=3 steps")


class SmallMemoryPart:
    """Fails as a GPU does where more samples come at once than it is told."""

    def __init__(self, most):
        self.most, self.sizes, self.before = most, [], None

    def on_run_start(self, run):
        self.before = {name: p.detach().clone() for name, p in run.model.parameters_by_name().items()}
        self.generator = torch.random.get_rng_state()

    @hookimpl(wrapper=True)
    def compute_loss(self, run, batch):
        if run.step == 0:
            self.sizes.append(len(batch.lengths))
            self.lengths = batch.lengths
        loss = yield
        if len(batch.lengths) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss


@attrs.frozen(kw_only=True)
class SmallMemory(Callback):
    """The newest run's part is in ``SmallMemory.latest``."""

    most: int

    def build(self):
        SmallMemory.latest = SmallMemoryPart(self.most)
        return SmallMemory.latest


@pytest.fixture
def plugins(plugins):
    """The fixtures of the loop's tests and the callback above."""
    callbacks = plugins.callback()

    @hookimpl
    def callback():
        return {**callbacks, "small_memory": SmallMemory}

    plugins.callback = callback
    return plugins


def memory(most):
    return f"[callbacks.small_memory]\nmost = {most}\n"


def resolved(outcome):
    return tomli.loads((outcome.folder / "resolved.toml").read_text())["training"]


def results(outcome):
    """What a run leaves: its losses, and the bytes of its tensors."""
    last = outcome.folder / "checkpoints" / f"step-{len(outcome.rows):08d}"
    return [row["train/loss"] for row in outcome.rows], {f.name: f.read_bytes() for f in last.glob("*.safetensors")}


@pytest.mark.parametrize(("most", "size", "tried"), [(1, 1, [1, 2]), (5, 4, [1, 2, 4, 8]), (8, 8, [1, 2, 4, 8, 16])])
def test_the_largest_power_of_two_that_fits_is_taken(train, monkeypatch, most, size, tried):
    """Doubled from 1 until it fails, with the longest samples; said, and kept in resolved.toml."""
    monkeypatch.setattr("rtx_core.micro_batch._MOST_ON_THE_HOST", 64)
    outcome = train(TEXTS, sets=AUTO, extra=memory(most))
    assert SmallMemory.latest.sizes[: len(tried)] == tried
    assert f"micro_batch_size: {size}, measured" in outcome.said
    assert resolved(outcome)["micro_batch_size"] == size
    assert max(map(len, outcome.watch.ids[len(tried) :])) == size


def test_a_run_with_a_measured_size_is_that_of_the_number(train):
    """Weights, optimizer and losses are to the bit those of a run in which the number was written: nothing remains."""
    settings = [*AUTO, "architecture.hidden_dropout_prob=0.1"]
    measured = train(TEXTS, sets=settings, extra=memory(5))
    assert resolved(measured)["micro_batch_size"] == 4
    written = train(TEXTS, sets=[*settings, "training.micro_batch_size=4"], extra=memory(5))
    assert results(measured) == results(written)
    assert measured.rows[0]["tokens"] == written.rows[0]["tokens"]


def test_measuring_changes_nothing(train, monkeypatch):
    """Parameters, gradients, buffers and the generator are as before, also after a pass that failed."""
    states = []

    def watched(training):
        training.module.register_buffer("counter", torch.zeros(1))
        training.parameters[0].grad = gradient = torch.ones_like(training.parameters[0])
        torch.manual_seed(5)
        before = torch.random.get_rng_state()
        with micro_batch._unchanged(training):
            size = micro_batch._largest(training)
            training.module.counter += 1
        states.append((size, training.parameters[0].grad is gradient, float(training.module.counter)))
        assert torch.equal(torch.random.get_rng_state(), before)
        assert all(parameter.grad is None for parameter in training.parameters[1:])
        for name, parameter in training.model.parameters_by_name().items():
            assert torch.equal(parameter, SmallMemory.latest.before[name])
        training.run.stop("seen")

    monkeypatch.setattr(micro_batch, "decide", watched)
    train(TEXTS, sets=AUTO, extra=memory(5))
    assert states == [(4, True, 0.0)]


def test_a_step_that_fits_is_not_cut(train):
    """Enough memory for a batch of 12, which is no power of two: it is one piece."""
    outcome = train(TEXTS, sets=[*AUTO, "training.batch_size=12"], extra=memory(100))
    assert resolved(outcome)["micro_batch_size"] == 12
    # More than 8 samples are not tried on a CPU: what they need follows from what 8 took.
    assert SmallMemory.latest.sizes == [1, 2, 4, 8, 12]
    assert len(outcome.watch.ids) == 4 + 3


def test_by_tokens_a_step_that_fits_is_not_cut(train):
    """There is no number then: a step is one piece, however many samples it has."""
    settings = [*AUTO, "training.batch_size=unset", "training.batch_tokens=50"]
    outcome = train(TEXTS, sets=settings, extra=memory(100))
    assert "micro_batch_size: a whole step, measured" in outcome.said
    assert "micro_batch_size" not in resolved(outcome)
    # 7 of the longest make up 50 tokens.
    assert SmallMemory.latest.sizes[:4] == [1, 2, 4, 7]
    assert len(outcome.watch.ids) == 4 + 3


def test_the_longest_samples_are_tried(train, monkeypatch):
    """Of texts of 3 to 8 tokens the pieces that are tried hold those of 8."""
    outcome = train(TEXTS, sets=[*AUTO, "training.batch_size=4"], extra=memory(100))
    assert outcome.watch.batches[2].lengths == (LONGEST,) * 4


def test_not_even_one_sample_fits(train):
    """One line, before the first step."""
    with pytest.raises(
        InputError, match=r"not even one sample of 8 tokens fits into the memory of cpu; lower task\.max"
    ):
        train(TEXTS, sets=AUTO, extra=memory(0))


def test_a_resume_never_measures(train, tmp_path):
    """The checkpoint has the number, also on a machine with more memory; a written one must be the same."""
    whole = train(TEXTS, sets=AUTO, extra=memory(5))
    begun = train(TEXTS, sets=AUTO, extra=memory(5), output=tmp_path / "begun", steps=1)
    resumed = train(
        TEXTS, sets=[*AUTO, "callbacks.small_memory.most=5"], extra=memory(5), output=begun.folder, resume=True
    )
    assert SmallMemory.latest.sizes == []
    assert results(resumed) == results(whole)
    begun = train(TEXTS, sets=AUTO, extra=memory(5), output=tmp_path / "again", steps=1)
    with pytest.raises(InputError, match=r"training\.micro_batch_size was 4, now it is 8"):
        train(TEXTS, sets=[*AUTO, "training.micro_batch_size=8"], extra=memory(5), output=begun.folder, resume=True)


def test_on_a_cpu_half_of_what_is_available_is_taken(train, monkeypatch):
    """Where a sample takes a megabyte and 20 are available, 8 are taken, and 16 are not tried."""
    megabyte = 2**20
    held = {"samples": 0}

    class Process:
        def memory_info(self):
            pass_ = SmallMemory.latest.sizes
            held["samples"] = pass_[-1] if pass_ else 0
            return attrs.make_class("Info", ["rss"])((100 + held["samples"]) * megabyte)

    monkeypatch.setattr(psutil, "Process", Process)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: attrs.make_class("Memory", ["available"])(20 * megabyte))
    outcome = train(TEXTS, sets=[*AUTO, "training.batch_size=32"], extra=memory(100))
    assert resolved(outcome)["micro_batch_size"] == 8


def test_on_a_gpu_a_tenth_stays_free(train, monkeypatch):
    """With room for 100 samples and what is taken as torch's allocator reports it, 64 fit and 95 would be too many."""

    def free_and_total(device):
        return 100 - SmallMemory.latest.sizes[-1], 100

    monkeypatch.setattr("rtx_core.micro_batch._HostMemory", micro_batch._GpuMemory)
    monkeypatch.setattr(torch.cuda, "mem_get_info", free_and_total)
    texts = [{"text": "a b", "label": str(i % 2)} for i in range(95)]
    outcome = train(texts, sets=[*AUTO, "training.batch_size=95", "training.duration=1 step"], extra=memory(1000))
    assert SmallMemory.latest.sizes[:8] == [1, 2, 4, 8, 16, 32, 64, 95]
    assert resolved(outcome)["micro_batch_size"] == 64
