"""The share of targets whose class is among the two largest logits: ``--plugin top2_accuracy.py``."""

from rtx_core import Metric, MetricPart, hookimpl


class Top2Part(MetricPart):
    def update(self, predictions, targets, weights):
        self.add(hits=weights[(predictions.topk(2).indices == targets[:, None]).any(-1)].sum(), rows=weights.sum())

    def compute(self):
        return {"top2_accuracy": float(self.sums["hits"] / self.sums["rows"])}


class Top2Accuracy(Metric):
    def names(self):
        return {"top2_accuracy": "max"}

    def build(self, outputs):
        return Top2Part()


@hookimpl
def metric():
    return {"top2_accuracy": Top2Accuracy}
