"""Schedules in a run: what reaches the optimizer at each update, also after a resume."""

import attrs
import pytest
import torch

from rtx_core import InputError, Optimizer, PipelineError, config, hookimpl
from rtx_core.registry import Registry

TWO = [{"text": "a", "label": "0"}, {"text": "b", "label": "1"}]
SIX = "training.duration=6 steps"
PARTS = (
    'scheduler.parts=[{scheduler="linear", length="2 steps"}, '
    '{scheduler={type="one_cycle", pct_start=0.5, warmup="1 step"}, peak_ratio=0.5}]'
)


def one_cycle(optimizer, total):
    """Rates and beta1s or momenta of OneCycleLR with its defaults, for a peak of 0.1."""
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=total)
    (group,) = optimizer.param_groups
    rates, momenta = [], []
    for i in range(total):
        if i:
            optimizer.step()
            scheduler.step()
        rates.append(group["lr"])
        momenta.append(group["betas"][0] if "betas" in group else group["momentum"])
    return rates, momenta


@attrs.frozen(kw_only=True)
class Gradient(Optimizer):
    """Plain SGD, or Adagrad, which has no momentum."""

    adaptive: bool = False

    def build(self, groups):
        kind = torch.optim.Adagrad if self.adaptive else torch.optim.SGD
        return kind([group.options() for group in groups], lr=self.lr)


@pytest.fixture
def gradient(plugins):
    """Offer the optimizer above."""

    @hookimpl
    def optimizer():
        return {"gradient": Gradient}

    plugins.optimizer = optimizer


def test_one_cycle_moves_rate_and_beta1(train):
    """Case 10 in a run of ten updates: every rate and every beta1 of AdamW are OneCycleLR's; the second beta stays."""
    outcome = train(TWO, sets=["training.duration=10 steps", "scheduler.type=one_cycle"])
    rates, momenta = one_cycle(torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]), 10)
    assert outcome.watch.rates == pytest.approx(rates, rel=0, abs=1e-13)
    assert outcome.watch.momenta == pytest.approx(momenta, rel=0, abs=1e-13)
    assert {group["betas"][1] for group in outcome.watch.run.optimizer.param_groups} == {0.999}


@pytest.mark.usefixtures("gradient")
def test_one_cycle_moves_the_momentum_of_sgd(train):
    """An optimizer with a momentum in place of betas gets it there."""
    outcome = train(TWO, sets=[SIX, "optimizer.type=gradient", "optimizer.lr=0.1", "scheduler.type=one_cycle"])
    rates, momenta = one_cycle(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]), 6)
    assert outcome.watch.rates == pytest.approx(rates, rel=0, abs=1e-13)
    assert outcome.watch.momenta == pytest.approx(momenta, rel=0, abs=1e-13)


def test_a_momentum_that_nothing_moves_is_the_optimizers(train):
    """With ``cycle_momentum = false`` beta1 stays what ``[optimizer]`` says."""
    sets = [SIX, "scheduler.type=one_cycle", "scheduler.cycle_momentum=false", "optimizer.betas=[0.7, 0.8]"]
    assert train(TWO, sets=sets).watch.momenta == [0.7] * 6


@pytest.mark.usefixtures("gradient")
def test_a_momentum_that_would_be_lost_is_refused(train):
    """An optimizer without betas and momentum: before the first step, with the way on, which works."""
    sets = [SIX, "optimizer.type=gradient", "optimizer.lr=0.1", "optimizer.adaptive=true", "scheduler.type=one_cycle"]
    with pytest.raises(
        InputError, match="Adagrad has neither betas nor momentum; set scheduler.cycle_momentum = false"
    ):
        train(TWO, sets=sets)
    assert train(TWO, sets=[*sets, "scheduler.cycle_momentum=false"]).watch.momenta == [None] * 6


def test_a_horizon_that_is_too_short_is_refused_before_the_first_step(train):
    """When steps are only known from the data, the run is refused with both numbers."""
    sets = ["training.duration=3 epochs", "scheduler.type=step", "scheduler.step_size=20 steps"]
    with pytest.raises(InputError, match=r"scheduler.step_size: 20 steps, but there are only 3 for it"):
        train(TWO, sets=sets)


@pytest.mark.parametrize("scheduler", [["scheduler.type=one_cycle"], ["scheduler.type=sequence", PARTS]])
def test_a_schedule_goes_on_after_every_step(train, tmp_path, scheduler):
    """Stopped and resumed after each step, rates and momenta are those of the straight run (case 19)."""
    sets = [SIX, *scheduler]
    straight = train(TWO, sets=sets).watch
    pieces = [train(TWO, sets=sets, output=tmp_path / "run", steps=1).watch]
    pieces += [train(TWO, sets=sets, output=tmp_path / "run", steps=end, resume=True).watch for end in range(2, 7)]
    assert [len(piece.rates) for piece in pieces] == [1] * 6
    assert [rate for piece in pieces for rate in piece.rates] == straight.rates
    assert [value for piece in pieces for value in piece.momenta] == straight.momenta
    assert len(set(straight.rates)) > 3
    assert len(set(straight.momenta)) > 1


def test_a_skipped_step_moves_neither_rate_nor_momentum(train):
    """Case 11: step 1 is refused, so the next one uses the same rate and beta1, and the last update is never made."""
    outcome = train(TWO, sets=[SIX, "scheduler.type=one_cycle"], extra="[callbacks.refuse]\nsteps = [1]\n")
    rates, momenta = one_cycle(torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]), 6)
    used = [0, 1, 1, 2, 3, 4]
    assert outcome.watch.rates == pytest.approx([rates[i] for i in used], rel=0, abs=1e-13)
    assert outcome.watch.momenta == pytest.approx([momenta[i] for i in used], rel=0, abs=1e-13)


# --- nested schedulers in a file --------------------------------------------------------------------------------------


def test_a_sequence_is_written_in_tables_and_resolved(train, plugins):
    """Nested tables and names are components of their own; resolved.toml has every value and gives the same again."""
    outcome = train(TWO, sets=[SIX, "scheduler.type=sequence", PARTS])
    pipeline = outcome.watch.run.pipeline
    assert outcome.watch.rates[:4] == pytest.approx([0.1, 0.05, 0.0, 0.1 * 0.5 / 25], rel=1e-12)
    again = config.load(outcome.folder / "resolved.toml", registry=Registry.discover([plugins]))
    assert again.scheduler == pipeline.scheduler
    assert "pct_start = 0.5" in (outcome.folder / "resolved.toml").read_text()


@pytest.mark.parametrize(
    ("setting", "path", "message"),
    [
        ('scheduler.parts=[{scheduler="linaer"}]', "scheduler.parts[0].scheduler", 'did you mean "linear"?'),
        ('scheduler.parts=[{length="1 step"}]', "scheduler.parts[0].scheduler", "missing"),
        (
            'scheduler.parts=[{scheduler="linear"}, {scheduler="linear"}]',
            "scheduler.parts[0]",
            "has no length; only the last part can take what remains of the run",
        ),
        (
            'scheduler.parts=[{scheduler={type="one_cycle", max_momentum=0.1}}]',
            "scheduler.parts[0].scheduler.base_momentum",
            "must be at most max_momentum, 0.1, got 0.85",
        ),
        ('scheduler.parts=[{scheduler="linear", length="0 steps"}]', "scheduler.parts[0].length", "must be longer"),
    ],
)
def test_a_mistake_in_a_part_is_named_at_its_place(train, setting, path, message):
    """The error has the path of the nested key."""
    with pytest.raises(PipelineError) as caught:
        train(TWO, sets=[SIX, "scheduler.type=sequence", setting])
    (problem,) = caught.value.problems
    assert problem.path == path
    assert message in problem.message
