"""Evaluation: the same loss functions as in training, metrics that add exactly, the same values for any batch size."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from rtx_core.config.pipeline import eval_name
from rtx_core.dataset import evaluation_batches
from rtx_core.model import summed_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtx_core.build import Training
    from rtx_core.dataset import SampleStore


def evaluate_all(training: Training) -> dict[str, Any]:
    """Evaluate every set, tell the hooks, and return all values by full name (``eval/accuracy``)."""
    values: dict[str, Any] = {}
    for name, store in training.prepared.eval.items():
        values.update(evaluate(training, eval_name(name), store))
    return values


def evaluate(training: Training, prefix: str, store: SampleStore) -> dict[str, Any]:
    """Evaluate one set with the model as it is; values by full name."""
    run, hooks = training.run, training.hooks.call
    hooks.on_eval_start(run=run, name=prefix)
    with evaluating(training):
        values = {f"{prefix}/{name}": value for name, value in _values(training, store).items()}
    hooks.on_eval_end(run=run, name=prefix, values=values)
    return values


@contextmanager
def evaluating(training: Training) -> Iterator[None]:
    """Dropout and gradients are off, and an optimizer with two modes shows its averaged weights."""
    optimizer: Any = training.run.optimizer
    training.module.eval()
    if hasattr(optimizer, "eval"):
        optimizer.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if hasattr(optimizer, "train"):
            optimizer.train()
        training.module.train()


def _values(training: Training, store: SampleStore) -> dict[str, Any]:
    run, loss, prepared = training.run, training.loss, training.prepared
    size = run.pipeline.training.eval_batch_size or prepared.cutting.micro_batch_size
    parts = training.metrics.values()
    for part in parts:
        part.reset()
    measured = getattr(prepared.task, "measured", _as_they_are)
    total, weight = torch.zeros((), dtype=torch.float64), 0.0
    batches = evaluation_batches(store, prepared.task, size, seed=run.pipeline.run.seed)
    for number, host_batch in enumerate(batches):
        if number % run.world_size != run.rank or not len(host_batch.targets):
            continue
        weight += loss.weight(host_batch.targets)
        batch = host_batch.to(run.device)
        features = training.model.features(batch)
        total += summed_loss(training.model, loss, features, batch.targets).double().cpu()
        predictions = prepared.task.predictions(training.model.project(features))
        targets, counted = measured(batch.targets), _counted(batch.targets)
        for part in parts:
            part.update(predictions, targets, counted)
    _sum_over_processes(training)
    summed, weight = run.strategy.sum(float(total), weight)
    values: dict[str, Any] = {"loss": summed / weight if weight else float("nan")}
    for part in parts:
        values.update({name: _plain(value) for name, value in part.compute().items()})
    return values


def _as_they_are(targets: torch.Tensor) -> torch.Tensor:
    return targets


def _counted(targets: torch.Tensor) -> torch.Tensor:
    """1 for each target that counts, 0 for one that is ignored (a negative class), ``[N]``.

    Of a row of numbers each may be ignored alone (NaN), which metrics see themselves.
    """
    if targets.dtype.is_floating_point:
        return torch.ones(len(targets), device=targets.device)
    return (targets.reshape(len(targets), -1) >= 0).all(1).float()


def _sum_over_processes(training: Training) -> None:
    strategy = training.run.strategy
    for part in training.metrics.values():
        sums = {name: torch.as_tensor(value, device=strategy.device) for name, value in part.sums.items()}
        part.sums = strategy.sum_tensors(sums)
        part.rows = {name: [strategy.gather(torch.cat(rows))] for name, rows in part.rows.items()}


def _plain(value: Any) -> Any:
    """Tensors as floats or nested lists of floats."""
    return value.tolist() if isinstance(value, torch.Tensor) else value
