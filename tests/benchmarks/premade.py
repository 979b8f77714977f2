"""A plugin for the benchmark: tasks over token ids and labels that are made already, and a clock."""

import time
from typing import ClassVar

import attrs
import numpy as np

from rtx_core import Callback, Outputs, Sample, Task, hookimpl


class PremadePart:
    """Samples straight from the records."""

    def samples(self, records, *, targets=True):
        for record in records:
            ids = np.array(record.values["input_ids"], np.int32)
            labels = np.atleast_1d(np.array(record.values["labels"], np.int64))
            positions = np.flatnonzero(labels >= 0) if len(labels) == len(ids) else np.zeros(1, np.int64)
            yield Sample(ids, np.zeros(len(ids), np.uint8), positions.astype(np.int32), labels[labels >= 0])

    def notes(self):
        return ()

    def predictions(self, logits):
        return logits


@attrs.frozen(kw_only=True)
class Premade(Task):
    """Takes the place of ``masked_lm`` and ``sequence_classification``."""

    default_loss: ClassVar[str] = "cross_entropy"
    default_head: ClassVar[str] = "linear"

    outputs_size: int
    """K."""

    def columns(self, *, targets):
        return ("input_ids", "labels")

    def texts(self, record):
        return iter(())

    def outputs(self, records, vocab_size):
        return Outputs(size=self.outputs_size)

    def build(self, tokenizer, outputs, *, max_length, special_tokens):
        return PremadePart()


class Clock:
    """When each step ended, and how many tokens had been seen by then."""

    def on_run_start(self, run):
        self.rows = []
        ClockSettings.latest = self

    def on_step_end(self, run):
        self.rows.append((time.perf_counter(), run.tokens))


@attrs.frozen(kw_only=True)
class ClockSettings(Callback):
    """The newest run's clock is in ``ClockSettings.latest``."""

    latest: ClassVar[Clock]

    def build(self):
        return Clock()


@hookimpl
def task():
    return {"masked_lm": Premade, "sequence_classification": Premade}


@hookimpl
def callback():
    return {"clock": ClockSettings}
