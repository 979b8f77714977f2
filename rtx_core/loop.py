"""The training loop: it knows hooks and a strategy, and no part by name.

One step: weigh the targets → for each piece compute_loss, backward → finish_gradients → on_gradients → apply_gradients
→ on_step_end → rewind, or log → evaluate → checkpoint → stop. Written for many processes; with one every sum is the
identity.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, cast

import torch

from rtx_core import chance, micro_batch, schedule, state
from rtx_core.errors import InputError, PluginError
from rtx_core.evaluation import evaluate_all, parts_with_modes
from rtx_core.model import FeatureCache, summed_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rtx_core.build import Training
    from rtx_core.samples import Batch
    from rtx_core.signals import Signals


def train(
    training: Training,
    *,
    save: Callable[[Training], None],
    rewind: Callable[[Training], None],
    signals: Signals,
    end: int,
    resumed: bool = False,
) -> None:
    """Run from ``run.step`` to the step ``end``, or until a part stops it; a run that is there already takes no step.

    :param save: commits a checkpoint of this moment.
    :param rewind: puts the run where its newest checkpoint was taken.
    :param end: the horizon's total, or less for a trial of an unchanged plan.
    :param resumed: go on from a checkpoint, be it that of step 0: what happens at the start has happened.
    :raises RunInterruptedError: a signal came; a checkpoint was committed.
    """
    run, clock = training.run, _Clock()
    try:
        _start(training)
        if not resumed:
            with clock.paused():
                if run.pipeline.training.eval_at_start:
                    _evaluate(training)
                if run.checkpoint_requested or run.stop_reason is not None:
                    run.checkpoint_requested = False
                    save(training)
        if run.stop_reason is not None:
            return
        while _take_steps(training, save, signals, clock, end=end):
            with clock.paused():
                rewind(training)
                _start(training)
    except BaseException as error:
        training.hooks.call.on_exception(run=run, error=error)
        raise


def _take_steps(
    training: Training, save: Callable[[Training], None], signals: Signals, clock: _Clock, *, end: int
) -> bool:
    """Go on to the end, or to a stop; or until a part asks to go back: whether one does."""
    run, hooks = training.run, training.hooks.call
    for pieces in training.steps.iterate(run.step, end, run.pipeline.training.workers):
        values = take_step(training, pieces)
        hooks.on_step_end(run=run)
        if run.rewind_requested:
            # What else was asked for belongs to what is gone back from.
            run.rewind_requested = run.checkpoint_requested = False
            return True
        _log(training, values, clock)
        last = run.step == end or run.stop_reason is not None
        evaluates = last or run.eval_requested or run.horizon.due(training.eval_every, run.step)
        if not (evaluates or run.checkpoint_requested or signals.received is not None):
            continue
        with clock.paused():
            if evaluates:
                _evaluate(training)
            # Both are looked at once, before saving: what comes later is answered after the next step, and saved.
            last = last or run.stop_reason is not None
            interrupted = signals.received is not None
            if run.checkpoint_requested or last or interrupted:
                run.checkpoint_requested = False
                save(training)
        if last:
            break
        if interrupted:
            signals.interrupt(run.step)
    return False


def _start(training: Training) -> None:
    """What comes before the first step, or the first after a resume."""
    training.module.train()
    training.hooks.call.on_run_start(run=training.run)
    for part in parts_with_modes(training):
        part.train()
    refuse_unsaveable_state(training)
    if training.run.pipeline.training.micro_batch_size == "auto":
        micro_batch.decide(training)


def take_step(training: Training, pieces: list[Batch]) -> dict[str, Any]:
    """One step: the update that a batch leads to, however it is cut. Returns the step's values, still on the device."""
    run, hooks, device = training.run, training.hooks.call, training.run.device
    run.begin_step()
    weight, tokens = _weigh(training, pieces)
    rate = training.schedule.factor(run.updates) * run.lr_scale
    for group, peak in zip(run.optimizer.param_groups, training.peak_rates, strict=True):
        group["lr"] = peak * rate
    schedule.set_momentum(training.schedule, run.updates, run.optimizer)
    if weight:
        total: torch.Tensor | None = None
        for parameter in training.parameters:  # what optimizer.zero_grad does, without its profiling
            parameter.grad = None
        pieces = [piece.to(device) for piece in pieces]
        if run.pipeline.loss.whole_step:
            total = _share_features(training, pieces, weight)
        for index, piece in enumerate(pieces):
            _seed_forward(training, index)
            summed = hooks.compute_loss(run=run, batch=piece)
            hooks.backward(run=run, loss=summed / weight)
            if piece.cache is None:
                piece.loss = summed.detach()
                total = piece.loss if total is None else total + piece.loss
        run.loss, run.pieces = cast("torch.Tensor", total) / weight, pieces
        if hooks.finish_gradients(run=run):
            hooks.on_gradients(run=run)
            updated = hooks.apply_gradients(run=run)
        else:
            updated = False
        if not updated:
            run.skip_reason = run.skip_reason or "overflow"
    else:
        run.skip_reason = "no_targets"
    run.step += 1
    run.updates += run.skip_reason is None
    run.tokens += int(tokens)
    values: dict[str, Any] = {"train/loss": None if run.skip_reason else run.loss}
    values["lr"] = run.pipeline.optimizer.lr * rate
    return values | ({"skipped": run.skip_reason} if run.skip_reason else {})


def _weigh(training: Training, pieces: list[Batch]) -> tuple[float, float]:
    """The weight and the tokens of the whole step over all processes. What is left out of the run weighs nothing."""
    run, loss = training.run, training.loss
    own_weight, own_tokens = 0.0, 0
    for piece in pieces:
        if run.left_out:
            piece.ignore_targets(run.left_out)
        piece.weight = loss.weight(piece.targets) if piece.targets.shape[0] else 0.0
        if not 0.0 <= piece.weight < math.inf:
            raise PluginError(f"loss: weight() gave {piece.weight!r}; expected a finite number from 0")
        own_weight += piece.weight
        own_tokens += sum(piece.lengths)
    weight, tokens = run.strategy.sum(own_weight, own_tokens)
    return weight, tokens


def _seed_forward(training: Training, index: int) -> None:
    """Set the device's generator for one forward pass: from (seed, step, index of the piece in the whole step)."""
    run, strategy = training.run, training.run.strategy
    place = index * strategy.world_size + strategy.rank
    seed = chance.derive(run.pipeline.run.seed, "forward", run.step, place)
    # torch.manual_seed would also seed every other device, at a hundred times the cost.
    if strategy.device.type == "cuda":
        torch.cuda.default_generators[strategy.device.index or 0].manual_seed(seed)
    elif strategy.device.type == "mps":
        torch.mps.manual_seed(seed)
    torch.default_generator.manual_seed(seed)


def _share_features(training: Training, pieces: list[Batch], weight: float) -> torch.Tensor:
    """First pass of a loss over the whole step: all features without a graph, then their gradients (Gao et al. 2021).

    The second pass runs with the same chance, so its features are the same. Returns the step's summed loss.
    """
    run, hooks = training.run, training.hooks.call
    with torch.no_grad():
        for index, piece in enumerate(pieces):
            piece.cache = FeatureCache()
            _seed_forward(training, index)
            hooks.compute_loss(run=run, batch=piece)
    if run.world_size > 1:
        raise InputError("a loss over the whole step needs a strategy of one process for now")
    kept = [piece.cache.features for piece in pieces if piece.cache is not None and piece.cache.features is not None]
    features = torch.cat(kept)
    features = features.to(torch.promote_types(features.dtype, torch.float32)).requires_grad_()
    total = summed_loss(training.model, training.loss, features, torch.cat([piece.targets for piece in pieces]))
    # The head's projection gets its gradient here, divided as backward divides; features get theirs undivided.
    (total / weight).backward()  # type: ignore[no-untyped-call]
    gradients = torch.split(cast("torch.Tensor", features.grad) * weight, [len(part) for part in kept])
    for piece, part in zip(pieces, gradients, strict=True):
        if piece.cache is not None:
            piece.cache.gradients = part
    return total.detach()


def _log(training: Training, values: Mapping[str, Any], clock: _Clock) -> None:
    """Where a row was asked for, bring the step's values to the host, all at once, and tell the hooks."""
    run = training.run
    if not run.log_requested:
        return
    run.log_requested = False
    everything = {**values, **_rates_of_groups(training), **run.take_logged()}
    if run.device.type != "cpu":
        _copy_to_host(everything)
    for name, value in everything.items():
        if isinstance(value, torch.Tensor):
            everything[name] = float(value.item())
    row = {"step": run.step, "epoch": round(run.epoch, 6), **everything, "tokens": run.tokens}
    row["tokens_per_second"] = clock.rate(run.tokens)
    run.last_values = row
    training.hooks.call.on_log(run=run, values=row)


def _copy_to_host(values: dict[str, Any]) -> None:
    """Put numbers in the place of scalar tensors: one copy, and so one wait for the device, instead of one for each."""
    tensors = {name: value.detach() for name, value in values.items() if isinstance(value, torch.Tensor)}
    if tensors:
        stacked = torch.stack([tensor.float().reshape(()) for tensor in tensors.values()]).tolist()
        values.update(zip(tensors, stacked, strict=True))


def _rates_of_groups(training: Training) -> dict[str, float]:
    """The step's rates that differ from ``lr``, by the name of what makes them differ."""
    options = training.run.optimizer.param_groups
    return {f"lr/{name}": options[number]["lr"] for number, name in training.rate_names}


def _evaluate(training: Training) -> None:
    run = training.run
    run.eval_requested = False
    values = evaluate_all(training)
    value = values.get(run.monitor) if run.monitor else None
    if run.improves(value):
        run.best_value, run.best_step = value, run.step
        run.request_checkpoint()


def refuse_unsaveable_state(training: Training) -> None:
    """Every part's state must be data and come back; said before step 1, not at the first checkpoint or after a kill.

    :raises PluginError: a state holds something else, with the part and the path, or the part can't take it back.
    """
    for name, part in training.parts.items():
        if name in NOT_SAVED_AS_PARTS:
            continue
        saves, loads = hasattr(part, "state_dict"), hasattr(part, "load_state_dict")
        if saves != loads:
            has, lacks = ("state_dict", "load_state_dict") if saves else ("load_state_dict", "state_dict")
            raise PluginError(f"{name}: it has {has}() but no {lacks}(), so a resumed run would lose its state")
        if saves:
            state.encode(name, part.state_dict())
    whole = training.run.optimizer.state_dict()
    # Its state goes by numbers of parameters, which are no keys of a tree; a checkpoint writes their names instead.
    state.encode("optimizer", {**whole, "state": list(whole["state"].values())})


NOT_SAVED_AS_PARTS = frozenset({"architecture", "head", "optimizer"})
"""Parts whose state a checkpoint keeps in files of its own."""


class _Clock:
    """Wall time of training alone: evaluation and saving are left out."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._tokens: int | None = None

    def rate(self, tokens: int) -> float | None:
        """Tokens per second since the last call; None for the first."""
        now = time.perf_counter()
        before, elapsed = self._tokens, now - self._since
        self._tokens, self._since = tokens, now
        return None if before is None or elapsed <= 0 else round((tokens - before) / elapsed, 1)

    def paused(self) -> _Pause:
        """What happens inside doesn't count."""
        return _Pause(self)

    def shift(self, seconds: float) -> None:
        """Leave out this much."""
        self._since += seconds


class _Pause:
    def __init__(self, clock: _Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._clock.shift(time.perf_counter() - self._start)
