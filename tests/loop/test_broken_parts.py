"""Parts of a plugin that break what their kind promises are refused by their kind, before they can do harm."""

import math

import attrs
import pytest
import torch

from rtx_core import Loss, Metric, MetricPart, Optimizer, PluginError, Scheduler, hookimpl

TWO = [{"text": "a b", "label": "0"}, {"text": "c", "label": "1"}]


@attrs.frozen(kw_only=True)
class Rearranged(Optimizer):
    """SGD over other groups than it was given."""

    how: str = "reversed"

    def build(self, groups):
        options = [group.options() for group in groups]
        if self.how == "none of torch's":
            return object()
        if self.how == "one for all":
            options = [{"params": [parameter for each in options for parameter in each["params"]]}]
        return torch.optim.SGD(options[::-1], lr=self.lr)


@pytest.mark.parametrize("how", ["reversed", "one for all", "none of torch's"])
def test_an_optimizer_keeps_the_groups_in_their_order(train, plugins, tmp_path, how):
    """Each group's rate is written into the group of its place: in another order it would be another's."""

    @hookimpl
    def optimizer():
        return {"rearranged": Rearranged}

    plugins.optimizer = optimizer
    sets = ["optimizer.type=rearranged", "optimizer.lr=0.1", f"optimizer.how={how}", "optimizer.layer_lr_decay=0.5"]
    with pytest.raises(PluginError, match=r"^optimizer: the param_groups of \w+ are not the groups that build"):
        train(TWO, sets=sets, output=tmp_path / "none")
    assert not (tmp_path / "none").exists()


FACTORS = {"nan": math.nan, "negative": -1.0, "nothing": None, "text": "1", "tensor": torch.tensor(1.0)}
MOMENTA = {"above 1": 1.5, "nan": math.nan, "text": "a"}


@attrs.frozen
class Course:
    """What is written from the last step on, 1 or 0.5 before."""

    total: int
    factors: str
    momenta: str

    def factor(self, i):
        return FACTORS[self.factors] if self.factors and i >= self.total - 1 else 1.0

    def momentum(self, i):
        if self.momenta == "from the last on":
            return 0.5 if i >= self.total - 1 else None
        return MOMENTA[self.momenta] if self.momenta and i >= self.total - 1 else 0.5


@attrs.frozen(kw_only=True)
class Odd(Scheduler):
    """Gives odd factors or momenta."""

    factors: str = ""
    momenta: str = ""

    def build(self, horizon):
        return Course(horizon.total, self.factors, self.momenta)


@pytest.mark.parametrize(
    "odd",
    [f"factors={name}" for name in FACTORS] + [f"momenta={name}" for name in [*MOMENTA, "from the last on"]],
)
def test_factors_and_momenta_are_numbers(train, plugins, tmp_path, odd):
    """The last of 6 steps has none: said before the first, with the step and the value."""

    @hookimpl
    def scheduler():
        return {"odd": Odd}

    plugins.scheduler = scheduler
    what = "factor" if odd.startswith("factors") else "momentum"
    with pytest.raises(PluginError, match=rf"^scheduler: {what}\(5\) is .*; expected a"):
        train(
            TWO,
            sets=["training.duration=6 steps", "scheduler.type=odd", f"scheduler.{odd}"],
            output=tmp_path / "none",
        )
    assert not (tmp_path / "none").exists()


@attrs.frozen(kw_only=True)
class Misnamed(Metric):
    """Declares one name and gives others."""

    gives: tuple[str, ...]

    def names(self):
        return {"hits": "max"}

    def build(self, outputs):
        gives = self.gives

        class Part(MetricPart):
            def update(self, predictions, targets, weights):
                pass

            def compute(self):
                return dict.fromkeys(gives, 1.0)

        return Part()


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (["misses"], r'^metric\.misnamed: names\(\) declares "hits", which compute\(\) does not give'),
        (["hits", "misses"], r'^metrics: one gives "misses", which its names\(\) does not declare'),
    ],
)
def test_a_metric_gives_what_it_declares(train, plugins, gives, message):
    """The monitor was checked by the names that are declared: without its value nothing would ever be the best."""
    before = plugins.metric()

    @hookimpl
    def metric():
        return {**before, "misnamed": Misnamed}

    plugins.metric = metric
    with pytest.raises(PluginError, match=message):
        train(TWO, evaluation=TWO, extra=f"[metrics.misnamed]\ngives = {gives}\n", sets=["training.eval_at_start=true"])


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_loss_weighs_by_a_finite_number_from_0(train, plugins, weight):
    """A negative weight would train in reverse, an infinite one learn nothing, NaN spoil every parameter."""

    class Part:
        def weight(self, targets):
            return weight

        def of_logits(self, logits, targets):
            return logits.sum()

    @attrs.frozen(kw_only=True)
    class Odd(Loss):
        def build(self, outputs):
            return Part()

    @hookimpl
    def loss():
        return {"odd": Odd}

    plugins.loss = loss
    with pytest.raises(PluginError, match=rf"^loss: weight\(\) gave {weight}; expected a finite number from 0"):
        train(TWO, sets=["loss.type=odd"])
