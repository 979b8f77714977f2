"""A step does not depend on how it is cut into micro-batches: one loss, one gradient, one update (case 5 and issue 3)."""

import random

import attrs
import numpy as np
import pytest
import torch

from rtx_core import Callback, Loss, Outputs, Sample, Task, hookimpl

BATCH = 16
CUTS = [1, 2, 4, 8, BATCH]
STEPS = 5


@attrs.frozen(kw_only=True)
class Double(Callback):
    """Computes in float64, so that what is left of a difference is not rounding."""

    def on_run_start(self, run):
        run.model.double()


@attrs.frozen(kw_only=True)
class Pairs(Task):
    """Two texts that belong together: a sample of two sequences, with a target at the start of each."""

    default_loss = "info_nce"
    default_head = "linear"

    def columns(self, *, targets):
        return ("anchor", "positive")

    def texts(self, record):
        yield from record.values.values()

    def outputs(self, records, vocab_size):
        return Outputs(size=2)

    def build(self, tokenizer, outputs, *, max_length, special_tokens):
        return PairsPart(tokenizer)


class PairsPart:
    """The task with its tokenizer."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def samples(self, records, *, targets=True):
        for record in records:
            sides = [self.tokenizer.encode(record.values[side]).ids for side in ("anchor", "positive")]
            ids = np.array([*sides[0], *sides[1]], np.int32)
            yield Sample(
                input_ids=ids,
                token_types=np.zeros(len(ids), np.uint8),
                target_positions=np.array([0, len(sides[0])], np.int32),
                targets=np.zeros(2, np.int64),
                lengths=tuple(map(len, sides)),
            )

    def notes(self):
        return ()


class InfoNcePart:
    """−log softmax of each anchor's similarity to its own positive among all positives of the batch (van den Oord 2018)."""

    def weight(self, targets):
        return len(targets) / 2

    def of_features(self, features, project, targets):
        anchors, positives = torch.nn.functional.normalize(features, dim=-1).unflatten(0, (-1, 2)).unbind(1)
        scores = anchors @ positives.T / 0.1
        return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)), reduction="sum")


@attrs.frozen(kw_only=True)
class InfoNce(Loss):
    """In-batch negatives over the whole step, as a loss over pairs must be."""

    whole_step = True

    def build(self, outputs):
        return InfoNcePart()


@attrs.frozen(kw_only=True)
class NaiveInfoNce(InfoNce):
    """The same, but each piece sees its own negatives alone."""

    whole_step = False


@pytest.fixture
def plugins(plugins):
    """The fixtures of the loop's tests and the parts above."""
    callbacks = plugins.callback()

    @hookimpl
    def callback():
        return {**callbacks, "double": Double}

    @hookimpl
    def task():
        return {"pairs": Pairs}

    @hookimpl
    def loss():
        return {"info_nce": InfoNce, "naive_info_nce": NaiveInfoNce}

    plugins.callback, plugins.task, plugins.loss = callback, task, loss
    return plugins


def words(generator, most):
    return [generator.choice("abcdef") for _ in range(generator.randint(1, most))]


def classified():
    """37 texts of 1 to 12 tokens: the third step of an epoch holds 5."""
    generator = random.Random(0)
    return [{"text": " ".join(words(generator, 12)), "label": str(generator.randint(0, 1))} for _ in range(37)]


def tagged():
    """The same with a label for each word, some texts without any."""
    generator = random.Random(1)
    texts = [[] if i % 9 == 0 else words(generator, 12) for i in range(37)]
    return [{"words": text, "tags": [str(generator.randint(0, 1)) for _ in text]} for text in texts]


def paired(count):
    generator = random.Random(2)
    return [{side: " ".join(words(generator, 8)) for side in ("anchor", "positive")} for _ in range(count)]


CASES = {
    "class weights": (
        classified,
        "sequence_classification",
        '[loss]\ntype = "cross_entropy"\nclass_weights = [1.0, 3.0]\n',
    ),
    "ragged tokens": (tagged, "token_classification", ""),
    "masked lm": (classified, "masked_lm", ""),
    "pairs": (lambda: paired(37), "pairs", "[head]\ntype = \"linear\"\ndropout = 0.0\n"),
}


@pytest.fixture
def cut(train):
    """What five steps of a pipeline lead to with a micro-batch of this size."""

    def run(case, micro, extra=""):
        records, task, loss = CASES[case]
        sets = [f"training.batch_size={BATCH}", f"training.micro_batch_size={micro}", f"training.duration={STEPS} steps"]
        if task == "masked_lm":
            sets.append("task.mask_probability=0.3")
        outcome = train(records(), task=task, sets=[*sets, "optimizer.lr=1e-3"], extra=loss + extra)
        losses = [row["train/loss"] for row in outcome.rows]
        weights = {n: p.detach().clone() for n, p in outcome.watch.run.model.parameters_by_name().items()}
        return losses, outcome.watch.gradients, weights

    return run


@pytest.mark.parametrize("case", CASES)
def test_x(cut, case):
    extra="[callbacks.double]\n"
    whole=cut(case,BATCH,extra)
    for micro in (1,2,4,8):
        l,g,w=cut(case,micro,extra)
        print(case,micro,"loss",max(abs(a-b)/abs(a) for a,b in zip(whole[0],l)))
        tg,tw=(max(float(x.norm()) for x in whole[i].values()) for i in (1,2))
        print("  grad",sorted([(round(1e7*float((g[n]-x).norm()/x.norm()),2),float((g[n]-x).norm())/tg,n[-30:],float(x.norm()/tg)) for n,x in whole[1].items()])[-3:])
        print("  weight",sorted([(round(1e7*float((w[n]-x).norm()/x.norm()),2),float((w[n]-x).norm())/tw,n[-30:]) for n,x in whole[2].items()])[-3:])
