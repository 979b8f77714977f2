"""Evaluation: the same loss functions as in training, metrics that add exactly, the same values for any batch size."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch

from rtx_core.config.pipeline import eval_name
from rtx_core.dataset import evaluation_batches
from rtx_core.epochs import evaluation_size
from rtx_core.errors import PluginError
from rtx_core.model import summed_loss

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from rtx_core.build import Training
    from rtx_core.components import LossPart, Metric, MetricPart, StrategyPart, TaskPart
    from rtx_core.model import Model
    from rtx_core.samples import Batch
    from rtx_core.store import SampleStore

_LOGITS_AT_ONCE = 1 << 24
"""Numbers in the largest matrix of logits that is built (64 MB): the rows of a large vocabulary are taken in pieces."""


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
        found = evaluator(training).values(store)
    _refuse_other_names(run.pipeline.metrics, found.keys() - {"loss"})
    values = {f"{prefix}/{name}": value for name, value in found.items()}
    hooks.on_eval_end(run=run, name=prefix, values=values)
    return values


def _refuse_other_names(metrics: Mapping[str, Metric], given: Collection[str]) -> None:
    """What the monitor and the best go by was checked with the names that metrics declare.

    :raises PluginError: their parts give others.
    """
    declared = {name: table for table, metric in metrics.items() for name in metric.names()}
    for name, table in declared.items():
        if name not in given:
            raise PluginError(f'metric.{table}: names() declares "{name}", which compute() does not give')
    for name in sorted(set(given) - declared.keys()):
        raise PluginError(f'metrics: one gives "{name}", which its names() does not declare')


@contextmanager
def evaluating(training: Training) -> Iterator[None]:
    """Dropout and gradients are off, and the model has the weights that are measured."""
    training.module.eval()
    try:
        with shown_weights(training), torch.inference_mode():
            yield
    finally:
        training.module.train()


@contextmanager
def shown_weights(training: Training) -> Iterator[None]:
    """Inside, parts with two modes show the weights that are measured and kept; then come those of training again.

    They come back to the bit: a part that averages goes there and back by arithmetic, and its rounding would make
    training depend on how often one evaluates or saves.
    """
    parts = parts_with_modes(training)
    if training.kept or not parts:
        yield
        return
    trained = {name: tensor.clone() for name, tensor in training.model.tensors().items()}
    with torch.no_grad():
        for part in parts:
            part.eval()
    try:
        yield
    finally:
        with torch.no_grad():
            for part in reversed(parts):
                part.train()
        training.model.load_tensors(trained)


def shown_tensors(training: Training) -> dict[str, torch.Tensor] | None:
    """A copy on the host of the weights that are measured; None where they are those of training."""
    if not parts_with_modes(training):
        return None
    with shown_weights(training):
        return {name: tensor.to("cpu", copy=True) for name, tensor in training.model.tensors().items()}


def parts_with_modes(training: Training) -> list[Any]:
    """The parts that train other weights than they show: those with ``train()`` and ``eval()``.

    Modules have these too; model and loss are told as one.
    """
    return [
        part
        for part in training.parts.values()
        if hasattr(part, "train") and hasattr(part, "eval") and not isinstance(part, torch.nn.Module)
    ]


def evaluator(training: Training) -> Evaluator:
    """What measures the run's model as it is now."""
    pipeline, prepared = training.run.pipeline, training.prepared
    return Evaluator(
        model=training.model,
        loss=training.loss,
        task=prepared.task,
        outputs=prepared.outputs.size,
        metrics=training.metrics,
        strategy=training.run.strategy,
        seed=pipeline.run.seed,
        batch_size=evaluation_size(pipeline, prepared.cutting, prepared.max_length),
        whole_step=pipeline.training.batch_size if pipeline.loss.whole_step else None,
    )


@attrs.frozen(kw_only=True, eq=False)
class Evaluator:
    """A model with all that is needed to measure it. Its modules are in evaluation mode, and gradients are off."""

    model: Model
    loss: LossPart
    task: TaskPart
    outputs: int
    """K, or 0 where the features are what is predicted."""
    metrics: Mapping[str, MetricPart]
    strategy: StrategyPart
    seed: int
    batch_size: int
    """Samples per forward pass; changes no value."""
    whole_step: int | None = None
    """Samples that a loss over pairs in the batch sees at once, as in training; None: each piece stands alone."""

    def values(self, store: SampleStore) -> dict[str, Any]:
        """The loss and every metric's values, by their short names."""
        for part in self.metrics.values():
            part.reset()
        total, weight = torch.zeros((), dtype=torch.float64), 0.0
        for group in self._groups(store):
            summed, weighed = self._loss_and_counts(group)
            total += summed
            weight += weighed
        self._sum_over_processes()
        summed_up, weight = self.strategy.sum(float(total), weight)
        values: dict[str, Any] = {}
        if weight or self.whole_step is None:  # judged queries and documents make no pairs, so there is no loss to tell
            values["loss"] = summed_up / weight if weight else float("nan")
        for name, part in self.metrics.items():
            with _blamed(f"metric.{name}", "compute"):
                values.update({name: _plain(value) for name, value in part.compute().items()})
        return values

    def logits(self, store: SampleStore) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits ``[N, K]`` and targets ``[N, …]`` of all samples, merged, on the host of every process."""
        rows: list[tuple[torch.Tensor, torch.Tensor]] = []
        for group in self._groups(store):
            for batch in group:
                logits, targets, _ = self._merged(self.model(batch), batch.targets, batch.target_samples)
                rows.append((logits, targets))
        if not rows:
            return torch.zeros(0, self.outputs), torch.zeros(0)
        logits, targets = (torch.cat(column) for column in zip(*rows, strict=True))
        return self.strategy.gather(logits).cpu(), self.strategy.gather(targets).cpu()

    def _groups(self, store: SampleStore) -> Iterator[list[Batch]]:
        """This process's batches on its device, those together that the loss sees at once."""
        if self.whole_step is None:
            batches = evaluation_batches(store, self.task, self.batch_size, seed=self.seed)
            groups: Iterator[list[Batch]] = ([batch] for batch in batches)
        else:
            starts = range(0, len(store), self.whole_step)
            spans = (np.arange(start, min(start + self.whole_step, len(store))) for start in starts)
            groups = (
                list(evaluation_batches(store, self.task, self.batch_size, seed=self.seed, among=span))
                for span in spans
            )
        for number, group in enumerate(groups):
            if number % self.strategy.world_size != self.strategy.rank:
                continue
            there = [self._weighed(batch) for batch in group if len(batch.targets)]
            if there:
                yield there

    def _weighed(self, batch: Batch) -> Batch:
        """The batch on the device; its weight is computed on the host."""
        batch.weight = self.loss.weight(batch.targets)
        return batch.to(self.strategy.device)

    def _loss_and_counts(self, group: list[Batch]) -> tuple[torch.Tensor, float]:
        """Count the metrics of a group; its summed loss on the host, and its weight."""
        weight = sum(batch.weight for batch in group)
        kept: list[torch.Tensor] = []
        total = torch.zeros((), dtype=torch.float64)
        for batch in group:
            features = self.model.features(batch)
            for rows in self._row_slices(batch):
                part, targets = features[rows], batch.targets[rows]
                if self.whole_step is None:
                    total += summed_loss(self.model, self.loss, part, targets).double().cpu()
                self._count(self.model.project(part), targets, batch.target_samples[rows])
            if self.whole_step is not None:
                kept.append(features.float())
        if kept and weight:
            targets = torch.cat([batch.targets for batch in group])
            total += summed_loss(self.model, self.loss, torch.cat(kept), targets).double().cpu()
        return total, weight

    def _row_slices(self, batch: Batch) -> Iterator[slice]:
        """Rows of targets whose logits may exist at once, never cutting a sample."""
        size = max(1, _LOGITS_AT_ONCE // max(1, self.outputs))
        count = len(batch.targets)
        if count <= size:
            yield slice(0, count)
            return
        samples = batch.target_samples.cpu().numpy()
        ends = np.append(np.flatnonzero(np.diff(samples)) + 1, count)
        start = 0
        while start < count:
            within = ends[(ends > start) & (ends <= start + size)]
            stop = int(within[-1]) if len(within) else int(ends[ends > start][0])
            yield slice(start, stop)
            start = stop

    def _count(self, logits: torch.Tensor, targets: torch.Tensor, samples: torch.Tensor) -> None:
        logits, targets, samples = self._merged(logits, targets, samples)
        predictions, counted = self.task.predictions(logits), _counted(targets)
        measured = getattr(self.task, "measured", None)
        if measured is not None:
            targets = measured(targets)
        for name, part in self.metrics.items():
            with _blamed(f"metric.{name}", "update"):
                part.update_by_sample(predictions, targets, counted, samples)

    def _merged(
        self, logits: torch.Tensor, targets: torch.Tensor, samples: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        merged = getattr(self.task, "merged", None)
        return (logits, targets, samples) if merged is None else merged(logits, targets, samples)

    def _sum_over_processes(self) -> None:
        for part in self.metrics.values():
            sums = {name: torch.as_tensor(value, device=self.strategy.device) for name, value in part.sums.items()}
            part.sums = self.strategy.sum_tensors(sums)
            part.rows = {name: [self.strategy.gather(torch.cat(rows))] for name, rows in part.rows.items()}


@contextmanager
def _blamed(part: str, method: str) -> Iterator[None]:
    """What a part raises names it, so that a mistake of a plugin is not taken for one of rtx."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {method} of {part}")
        raise


def _counted(targets: torch.Tensor) -> torch.Tensor:
    """1 for each target that counts, 0 for one that is ignored (a negative class), ``[N]``.

    Of a row of numbers each may be ignored alone (NaN), which metrics see themselves.
    """
    if targets.dtype.is_floating_point:
        return torch.ones(len(targets), device=targets.device)
    return (targets.reshape(len(targets), -1) >= 0).all(1).float()


def _plain(value: Any) -> Any:
    """Tensors as floats or nested lists of floats."""
    return value.tolist() if isinstance(value, torch.Tensor) else value
