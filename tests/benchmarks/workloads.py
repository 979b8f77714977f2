"""The data and models of the throughput benchmark: made from a seed, the same for both sides."""

import json
from pathlib import Path

import attrs
import numpy as np

VOCABULARY = 30_522
CLS, SEP, MASK = 2, 3, 4
IGNORED = -100


@attrs.frozen
class Workload:
    """A model's sizes and the shape of its data."""

    task: str
    batch_size: int
    sizes: dict
    lengths: str

    def samples(self, count: int, seed: int = 0) -> list[dict]:
        """Token ids and labels: of each token for masked LM (hidden already), of the text for classification."""
        random = np.random.default_rng(seed)
        samples = []
        for _ in range(count):
            length = 128 if self.lengths == "full" else int(np.clip(random.lognormal(np.log(25), 0.75), 4, 128))
            ids = random.integers(5, VOCABULARY, size=length)
            ids[0], ids[-1] = CLS, SEP
            if self.task == "masked_lm":
                labels = np.full(length, IGNORED)
                chosen = np.flatnonzero(random.random(length - 2) < 0.15) + 1
                labels[chosen] = ids[chosen]
                ids[chosen] = MASK
                samples.append({"input_ids": ids.tolist(), "labels": labels.tolist()})
            else:
                samples.append({"input_ids": ids.tolist(), "labels": int(random.integers(2))})
        return samples


WORKLOADS = {
    "masked_lm": Workload(
        "masked_lm",
        16,
        {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024},
        "full",
    ),
    "classification": Workload(
        "sequence_classification",
        32,
        {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
        "log-normal",
    ),
}


def write_weights(workload: Workload, folder: Path, *, dropout: float) -> None:
    """The start of both sides: transformers' own class, saved with a vocabulary of as many words."""
    import torch
    import transformers

    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **workload.sizes
    )
    torch.manual_seed(0)
    kind = {
        "masked_lm": transformers.BertForMaskedLM,
        "sequence_classification": transformers.BertForSequenceClassification,
    }[workload.task]
    kind(config).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(5, VOCABULARY))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")


def write_samples(samples: list[dict], file: Path) -> None:
    """One JSON object a line."""
    file.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
