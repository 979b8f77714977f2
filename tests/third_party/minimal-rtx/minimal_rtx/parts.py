"""The smallest part of each kind: a classifier of texts by the mean of their words' vectors."""

from __future__ import annotations

import json
from typing import ClassVar

import attrs

from rtx_core import (
    Architecture,
    Callback,
    Command,
    Data,
    Head,
    InputPath,
    Loss,
    Metric,
    MetricPart,
    Optimizer,
    Outputs,
    Record,
    Sample,
    Scheduler,
    SpecialTokens,
    Strategy,
    Task,
    Tokenizer,
    hookimpl,
)

WORKED: set[str] = set()
"""The kinds whose parts have done their work; a real plugin has nothing like it."""


# --- data, tokenizer, task --------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Lines(Data):
    """Files with a JSON object a line."""

    files: tuple[InputPath, ...]
    """The files, in order."""

    def records(self):
        WORKED.add("data")
        for file in self.files:
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
                yield Record(json.loads(line), str(file), number)

    def fingerprint(self):
        import hashlib

        return hashlib.sha256(b"".join(file.read_bytes() for file in self.files)).hexdigest()


@attrs.frozen(kw_only=True)
class Words(Tokenizer):
    """A token for each word."""

    def build(self, texts, special_tokens):
        import tokenizers

        WORKED.add("tokenizer")
        words = sorted({word for text in texts for word in text.split()})
        vocabulary = {token: number for number, token in enumerate([*special_tokens.names, *words])}
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=special_tokens.unk))
        made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        return made


class Encoder:
    """The task with a tokenizer and the labels."""

    def __init__(self, tokenizer, labels):
        self.tokenizer, self.labels = tokenizer, labels

    def samples(self, records, *, targets=True):
        import numpy as np

        WORKED.add("task")
        for record in records:
            ids = np.array(self.tokenizer.encode(record.values["text"]).ids, dtype=np.int32)
            target = self.labels.index(record.values["label"]) if targets else -100
            yield Sample(ids, np.zeros(len(ids), np.uint8), np.array([0], np.int32), np.array([target], np.int64))

    def notes(self):
        return ()

    def predictions(self, logits):
        return logits

    def answers(self, records, logits, *, scores):
        return [{"prediction": self.labels[int(row.argmax())]} for row in logits]


@attrs.frozen(kw_only=True)
class Classification(Task):
    """Texts with a label: the columns ``text`` and ``label``."""

    default_loss: ClassVar[str] = "cross_entropy"
    default_head: ClassVar[str] = "linear"
    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    target_kind: ClassVar = "class"

    def columns(self, *, targets):
        return ("text", "label") if targets else ("text",)

    def texts(self, record):
        yield record.values["text"]

    def outputs(self, records, vocab_size):
        labels = tuple(sorted({record.values["label"] for record in records}))
        return Outputs(size=len(labels), labels=labels)

    def build(self, tokenizer, outputs, *, max_length, special_tokens):
        return Encoder(tokenizer, outputs.labels)


# --- model and loss ---------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class MeanOfWords(Architecture):
    """The hidden state of each token is the mean of its text's words."""

    special_tokens: ClassVar[SpecialTokens] = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    hidden_size: int = 8
    """Numbers in a word's vector."""

    def build(self, vocab_size):
        import torch

        class Mean(torch.nn.Module):
            def __init__(self, size):
                super().__init__()
                self.words = torch.nn.Embedding(vocab_size, size)

            @property
            def input_embeddings(self):
                return self.words.weight

            def forward(self, batch):
                WORKED.add("architecture")
                vectors = self.words(batch.input_ids)  # [T, H]
                lengths = batch.cu_seqlens.diff().unsqueeze(1)  # [B, 1]
                sums = vectors.new_zeros(len(lengths), vectors.shape[1]).index_add(0, batch.sequence_ids, vectors)
                return (sums / lengths)[batch.sequence_ids]

        return Mean(self.hidden_size)

    def hf_config(self, task, outputs):
        return {"model_type": "mean_of_words", "hidden_size": self.hidden_size}


@attrs.frozen(kw_only=True)
class Layer(Head):
    """One linear layer."""

    def build(self, hidden_size, outputs):
        import torch

        class Part(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(hidden_size, outputs)

            def features(self, hidden_states, batch):
                WORKED.add("head")
                return hidden_states[batch.target_positions]

            def project(self, features):
                return self.layer(features)

        return Part()


@attrs.frozen(kw_only=True)
class LogLoss(Loss):
    """The negative logarithm of the right class's probability."""

    target_kinds: ClassVar = ("class",)

    def build(self, outputs):
        return self

    def weight(self, targets):
        return float((targets >= 0).sum())

    def of_logits(self, logits, targets):
        WORKED.add("loss")
        counted = targets >= 0
        return -logits[counted].log_softmax(-1).gather(1, targets[counted, None]).sum()


@attrs.frozen(kw_only=True)
class ShareOfRight(Metric):
    """The share of targets whose largest logit is theirs."""

    target_kinds: ClassVar = ("class",)

    def names(self):
        return {"accuracy": "max"}

    def build(self, outputs):
        class Part(MetricPart):
            def update(self, predictions, targets, weights):
                WORKED.add("metric")
                self.add(right=((predictions.argmax(1) == targets) * weights).sum(), all=weights.sum())

            def compute(self):
                return {"accuracy": float(self.sums["right"] / self.sums["all"])}

        return Part()


# --- optimizer and schedule -------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Signs(Optimizer):
    """Moves every weight by the rate, against the sign of its gradient."""

    def build(self, groups):
        import torch

        class Part(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self):
                WORKED.add("optimizer")
                for group in self.param_groups:
                    for parameter in group["params"]:
                        if parameter.grad is not None:
                            parameter.sub_(group["lr"] * parameter.grad.sign())

        return Part([group.options() for group in groups], {})


@attrs.frozen
class Halves:
    """The rate halves at each quarter of the run."""

    total: int

    def factor(self, i):
        WORKED.add("scheduler")
        return 0.5 ** min(4 * i // self.total, 3)


@attrs.frozen(kw_only=True)
class Quarters(Scheduler):
    """The rate halves at each quarter of the run."""

    def build(self, horizon):
        return Halves(max(horizon.total, 1))


# --- the loop ---------------------------------------------------------------------------------------------------------


class OnCpu:
    """One process; each of its last four methods is the loop's default for the hook of that name."""

    rank, world_size = 0, 1

    def __init__(self):
        import torch

        self.device = torch.device("cpu")

    def wrap(self, module):
        self.module = module
        return module

    def sum(self, *values):
        return values

    def sum_tensors(self, tensors):
        return dict(tensors)

    def gather(self, rows):
        return rows

    def barrier(self):
        """One process waits for nobody."""

    @hookimpl(trylast=True)
    def compute_loss(self, batch):
        WORKED.add("strategy")
        return self.module(batch)

    @hookimpl(trylast=True)
    def backward(self, loss):
        loss.backward()
        return True

    @hookimpl(trylast=True)
    def finish_gradients(self):
        return True

    @hookimpl(trylast=True)
    def apply_gradients(self, run):
        run.optimizer.step()
        return True


@attrs.frozen(kw_only=True)
class Cpu(Strategy):
    """One process on the CPU."""

    def build(self, device):
        return OnCpu()


@attrs.frozen(kw_only=True)
class Roll(Callback):
    """Says at the end which kinds have worked."""

    def on_gradients(self):
        WORKED.add("callback")

    def on_run_end(self, run):
        run.console.say(f"worked: {' '.join(sorted(WORKED))}")


@attrs.frozen(kw_only=True)
class Greeting(Command):
    """Say hello."""

    @classmethod
    def main(cls, arguments, registry):
        print("hello from minimal-rtx")
        return 0


# --- what entry points ask for ----------------------------------------------------------------------------------------


@hookimpl
def architecture():
    return {"bert": MeanOfWords}


@hookimpl
def head():
    return {"linear": Layer}


@hookimpl
def optimizer():
    return {"adamw": Signs}


@hookimpl
def scheduler():
    return {"linear": Quarters}


@hookimpl
def loss():
    return {"cross_entropy": LogLoss}


@hookimpl
def metric():
    return {"accuracy": ShareOfRight}


@hookimpl
def callback():
    return {"clip_grad_norm": Roll}


@hookimpl
def task():
    return {"sequence_classification": Classification}


@hookimpl
def data():
    return {"jsonl": Lines}


@hookimpl
def tokenizer():
    return {"wordpiece": Words}


@hookimpl
def strategy():
    return {"single": Cpu}


@hookimpl
def command():
    return {"doctor": Greeting}
