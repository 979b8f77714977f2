"""The model that a run keeps, opened by ``transformers``: the same tokens, logits and names of labels."""

from __future__ import annotations

import csv
import json
import logging
import math
from contextlib import contextmanager
from pathlib import Path

import attrs
import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open

from rtx_core import Batch, Record, inference
from rtx_core.cli import main
from rtx_core.registry import Registry

NOUNS = Path(__file__).parents[2] / "pipelines" / "data" / "nouns"
TOLERANCE = 1e-5
"""Of a logit: the two add float32 numbers in another order."""

PIPELINE = """\
[task]
{task}
max_length = 24
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[tokenizer]
type = "wordpiece"
vocab_size = 800
[architecture]
type = "bert"
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 64
max_position_embeddings = 32
[optimizer]
lr = 1e-2
[training]
duration = "12 steps"
batch_size = 25
threads = 1
"""


@attrs.frozen
class Kept:
    """A run's kept model, as rtx reads it and as transformers does, and 200 rows that it was not trained on."""

    folder: Path
    rows: list[dict]
    ours: inference.Trained
    tokenizer: transformers.PreTrainedTokenizerBase
    theirs: transformers.PreTrainedModel
    warnings: list[str]
    """What transformers logged while it loaded."""

    @property
    def records(self):
        return [Record(row, "rows", number) for number, row in enumerate(self.rows, start=1)]

    def encoded(self, *texts, **options):
        """The rows as transformers' tokenizer gives them, padded."""
        return self.tokenizer(*texts, padding=True, truncation=True, return_tensors="pt", **options)

    def their_logits(self, encoded):
        with torch.no_grad():
            return self.theirs(**encoded).logits


def definitions(name, count):
    """The first rows of a file of the nouns: text and label."""
    with (NOUNS / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(next(lines)) for _ in range(count)]


def pairs(rows):
    """Two definitions, and whether they are of one kind."""
    return [
        {"premise": a["text"], "hypothesis": b["text"], "label": "same" if a["label"] == b["label"] else "other"}
        for a, b in zip(rows, rows[1:] + rows[:1], strict=True)
    ]


def tagged(rows):
    """The words of a definition, each with a tag that its length decides."""
    split = [row["text"].split() for row in rows]
    return [{"words": words, "tags": ["long" if len(word) > 5 else "short" for word in words]} for words in split]


WIDER = ("architecture.initializer_range=0.2", "optimizer.lr=2e-3")
"""With smaller weights, or at a higher rate, a model this narrow gives all texts almost the same logits."""


def sorted_into(rows):
    """Each definition with what can be said of it: its kind, and whether it is long; of a short animal nothing."""
    return [
        {
            "text": row["text"],
            "label": [name for name in (row["label"], _length(row)) if name not in ("animal", "short")],
        }
        for row in rows
    ]


def _length(row):
    return "long" if len(row["text"]) > 60 else "short"


def counted(rows):
    """Each definition with how many words and characters it has, far from 0 and 1."""
    return [{**row, "words": 1000 + 50 * len(row["text"].split()), "characters": len(row["text"])} for row in rows]


def asked(rows):
    """Each definition with a question that its third word answers, or, every fifth, with one that nothing answers."""
    split = [row["text"].split(" ") for row in rows]
    starts = [len(" ".join(words[:2])) + (len(words) > 2) for words in split]
    third = [" ".join(words[2:3]) for words in split]
    return [
        {
            "question": f"what is third {row['label']}",
            "context": row["text"],
            "answers": [] if number % 5 == 0 or not word else [{"text": word, "start": start}],
        }
        for number, (row, word, start) in enumerate(zip(rows, third, starts, strict=True))
    ]


@pytest.fixture(scope="module")
def keep(tmp_path_factory):
    """A function that trains a task on 300 rows of the nouns for a few steps, and opens what is kept twice."""

    def make(task, auto, change=lambda rows: rows, *sets):
        folder = tmp_path_factory.mktemp("kept")
        train = change(definitions("train", 300))
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in train), encoding="utf-8")
        (folder / "kept.toml").write_text(PIPELINE.format(task=task), encoding="utf-8")
        run = folder / "run"
        options = [option for text in sets for option in ("--set", text)]
        assert main(["run", str(folder / "kept.toml"), "--output", str(run), "--quiet", *options]) == 0
        with warnings_of_transformers() as warnings:
            tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
            theirs = auto.from_pretrained(run / "model").eval()
        ours = inference.load(run, Registry.discover())
        return Kept(run, change(definitions("eval", 200)), ours, tokenizer, theirs, warnings)

    return make


@contextmanager
def warnings_of_transformers():
    """What transformers logs as a warning or worse, in a list."""
    messages = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    transformers.utils.logging.add_handler(handler)
    try:
        yield messages
    finally:
        transformers.utils.logging.remove_handler(handler)


# --- one text ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classifier(keep):
    """Four kinds of nouns."""
    task = 'type = "sequence_classification"\ntext = "text"\nlabel = "label"'
    return keep(task, transformers.AutoModelForSequenceClassification)


def test_a_classifiers_logits_are_transformers(classifier):
    """On 200 definitions, of which some are cut at ``max_length``, logits agree, and nothing is warned of."""
    encoded = classifier.encoded([row["text"] for row in classifier.rows])
    expected = classifier.their_logits(encoded)
    assert classifier.warnings == []
    assert sum(mask.all() for mask in encoded["attention_mask"].bool()) >= 2  # these fill the 24 tokens
    ours = torch.cat(classifier.ours.logits(classifier.records))
    assert expected.std() > 1000 * TOLERANCE
    torch.testing.assert_close(ours, expected, rtol=0, atol=TOLERANCE)


def test_a_classifiers_labels_have_names_in_transformers(classifier):
    """The labels of the training data, sorted, both ways."""
    names = sorted({row["label"] for row in definitions("train", 300)})
    assert classifier.theirs.config.id2label == dict(enumerate(names))
    assert classifier.theirs.config.label2id == {name: number for number, name in enumerate(names)}


def test_predict_answers_as_transformers_does(classifier, tmp_path):
    """A CSV comes back with its columns and order as they were, with transformers' label for each row, and no error."""
    written = [{"id": f"{i:03}", "text": row["text"], "note": "NA"} for i, row in enumerate(classifier.rows)][::-1]
    with (tmp_path / "in.csv").open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, ["id", "text", "note"])
        table.writeheader()
        table.writerows(written)
    assert (
        main(["predict", str(classifier.folder), str(tmp_path / "in.csv"), "--output", str(tmp_path / "out.csv")]) == 0
    )
    best = classifier.their_logits(classifier.encoded([row["text"] for row in written])).argmax(-1)
    expected = [
        {**row, "prediction": classifier.theirs.config.id2label[int(number)], "error": ""}
        for row, number in zip(written, best, strict=True)
    ]
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as stream:
        assert list(csv.DictReader(stream)) == expected


# --- two texts --------------------------------------------------------------------------------------------------------


def test_a_pair_has_the_same_token_types_in_transformers(keep):
    """Logits of 200 pairs agree, many of them cut; with token types left out they would not."""
    task = 'type = "sequence_classification"\ntext = ["premise", "hypothesis"]\nlabel = "label"'
    kept = keep(task, transformers.AutoModelForSequenceClassification, pairs)
    encoded = kept.encoded([row["premise"] for row in kept.rows], [row["hypothesis"] for row in kept.rows])
    ours = torch.cat(kept.ours.logits(kept.records))
    assert kept.warnings == []
    torch.testing.assert_close(ours, kept.their_logits(encoded), rtol=0, atol=TOLERANCE)
    without = kept.their_logits({**encoded, "token_type_ids": torch.zeros_like(encoded["input_ids"])})
    assert (ours - without).abs().max() > 100 * TOLERANCE


# --- labels and numbers -----------------------------------------------------------------------------------------------


def test_logits_of_many_labels_are_transformers(keep):
    """On 200 definitions; the model knows that its labels don't exclude each other, and what they are called."""
    kept = keep(
        'type = "multi_label_classification"\nthreshold = 0.3',
        transformers.AutoModelForSequenceClassification,
        sorted_into,
        *WIDER,
    )
    expected = kept.their_logits(kept.encoded([row["text"] for row in kept.rows]))
    assert kept.warnings == []
    assert kept.theirs.config.problem_type == "multi_label_classification"
    assert kept.theirs.config.id2label == dict(enumerate(["food", "long", "person", "plant"]))
    torch.testing.assert_close(torch.cat(kept.ours.logits(kept.records)), expected, rtol=0, atol=TOLERANCE)
    names = [
        [kept.theirs.config.id2label[k] for k in row.nonzero().flatten().tolist()] for row in expected > math.log(3 / 7)
    ]
    assert [answer["prediction"] for answer in kept.ours.answers(kept.records)] == names
    assert expected.std(0).min() > 1000 * TOLERANCE
    assert len({tuple(labels) for labels in names}) > 1


@pytest.mark.parametrize("target", ['"words"', '["words", "characters"]'])
def test_logits_of_numbers_are_transformers(keep, target):
    """On 200 definitions, with one number and with two; times deviation plus mean they are rtx's predictions."""
    task = f'type = "regression"\ntarget = {target}'
    kept = keep(task, transformers.AutoModelForSequenceClassification, counted, *WIDER)
    expected = kept.their_logits(kept.encoded([row["text"] for row in kept.rows]))
    assert kept.warnings == []
    assert kept.theirs.config.problem_type == "regression"
    torch.testing.assert_close(torch.cat(kept.ours.logits(kept.records)), expected, rtol=0, atol=TOLERANCE)
    assert expected.std(0).min() > 1000 * TOLERANCE
    outputs = kept.ours.outputs
    numbers = expected.double() * torch.tensor(outputs.scale).double() + torch.tensor(outputs.center).double()
    given = [answer["prediction"] for answer in kept.ours.answers(kept.records)]
    ours = torch.tensor([[*answer.values()] if isinstance(answer, dict) else [answer] for answer in given]).double()
    assert (ours - numbers).abs().max() <= TOLERANCE * max(outputs.scale) + 2**-23 * max(outputs.center)


# --- words ------------------------------------------------------------------------------------------------------------


def test_a_taggers_logits_are_transformers(keep):
    """At the first sub-word of each word of 200 lists of words; words beyond ``max_length`` have none in either."""
    task = 'type = "token_classification"\nwords = "words"\ntags = "tags"'
    kept = keep(task, transformers.AutoModelForTokenClassification, tagged)
    encoded = kept.encoded([row["words"] for row in kept.rows], is_split_into_words=True)
    logits = kept.their_logits(encoded)
    ours = kept.ours.logits(kept.records)
    assert kept.warnings == []
    assert kept.theirs.config.id2label == {0: "long", 1: "short"}
    for number, rows in enumerate(ours):
        words = encoded.word_ids(number)
        first = [words.index(word) for word in sorted({word for word in words if word is not None})]
        torch.testing.assert_close(rows, logits[number, first], rtol=0, atol=TOLERANCE)
    assert sum(map(len, ours)) < sum(len(row["words"]) for row in kept.rows)


# --- language ---------------------------------------------------------------------------------------------------------


def test_a_language_models_logits_are_transformers(keep):
    """Over the whole vocabulary at every fourth token, masked; the decoder is the token table, which is stored once."""
    kept = keep('type = "masked_lm"\ntext = "text"', transformers.AutoModelForMaskedLM)
    samples = [next(kept.ours.task.samples([record])) for record in kept.records]
    encoded = kept.encoded([row["text"] for row in kept.rows])
    assert [s.input_ids.tolist() for s in samples] == [
        ids[mask.bool()].tolist() for ids, mask in zip(encoded["input_ids"], encoded["attention_mask"], strict=True)
    ]
    hidden = [np.arange(1, len(sample.input_ids) - 1, 4) for sample in samples]
    mask = kept.tokenizer.mask_token_id
    for number, positions in enumerate(hidden):
        encoded["input_ids"][number, positions] = mask
    logits = kept.their_logits(encoded)
    expected = torch.cat([rows[positions] for rows, positions in zip(logits, hidden, strict=True)])
    masked = [masked_at(sample, positions, mask) for sample, positions in zip(samples, hidden, strict=True)]
    with torch.inference_mode():
        ours = kept.ours.model(Batch.of(masked, range(len(masked))))
    assert kept.warnings == []
    assert ours.shape == (sum(map(len, hidden)), len(kept.tokenizer))
    torch.testing.assert_close(ours, expected, rtol=0, atol=TOLERANCE)
    assert kept.theirs.get_output_embeddings().weight is kept.theirs.get_input_embeddings().weight
    with safe_open(kept.folder / "model" / "model.safetensors", "pt") as file:
        by_token = [name for name in file.keys() if file.get_slice(name).get_shape()[0] == len(kept.tokenizer)]  # noqa: SIM118 - no dict
    assert sorted(by_token) == ["bert.embeddings.word_embeddings.weight", "cls.predictions.bias"]


def test_a_decoders_logits_are_transformers(keep):
    """At every token of 200 definitions; AutoModelForCausalLM finds the class."""
    kept = keep(
        'type = "causal_lm"', transformers.AutoModelForCausalLM, lambda rows: rows, "architecture.is_decoder=true"
    )
    samples = [next(kept.ours.task.samples([record])) for record in kept.records]
    prepared = [kept.ours.task.prepare(sample, 0) for sample in samples]
    batch = Batch.of(prepared, range(len(prepared)))
    ids, mask = batch.padded()
    logits = kept.their_logits({"input_ids": ids, "attention_mask": mask.long()})
    with torch.inference_mode():
        ours = kept.ours.model(batch)
    assert kept.warnings == []
    assert type(kept.theirs) is transformers.BertLMHeadModel
    torch.testing.assert_close(ours, logits[mask][batch.target_positions], rtol=0, atol=TOLERANCE)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_an_answerers_logits_are_transformers(keep):
    """On 200 definitions, some of them in several windows: the same windows, the same logits at every token."""
    task = 'type = "question_answering"\nmax_question_length = 10\nstride = 4'
    kept = keep(task, transformers.AutoModelForQuestionAnswering, asked, *WIDER)
    options = {"truncation": "only_second", "max_length": 24, "stride": 4, "return_overflowing_tokens": True}
    columns = [[row[name] for row in kept.rows] for name in ("question", "context")]
    encoded = kept.tokenizer(*columns, padding=True, return_tensors="pt", **options)
    owners = encoded.pop("overflow_to_sample_mapping")
    with torch.no_grad():
        output = kept.theirs(**encoded)
    mask = encoded["attention_mask"].bool()
    expected = torch.stack([output.start_logits[mask], output.end_logits[mask]], dim=1)
    ours = kept.ours.logits(kept.records)
    assert kept.warnings == []
    answered = sum(bool(row["answers"]) for row in asked(definitions("train", 300)))
    assert kept.ours.outputs.counts == (answered, 300 - answered)
    assert len(owners) > len(kept.rows)
    assert [len(rows) for rows in ours] == torch.bincount(owners, weights=mask.sum(1)).tolist()
    torch.testing.assert_close(torch.cat(ours), expected, rtol=0, atol=TOLERANCE)
    assert expected.std() > 100 * TOLERANCE
    for row, answer in zip(kept.rows, kept.ours.answers(kept.records), strict=True):
        start, end = answer["start"] or 0, answer["end"] or 0
        assert row["context"][start:end] == (answer["answer"] or "")


def masked_at(sample, positions, mask):
    """The sample with the mask at these positions, which are what is predicted."""
    ids = sample.input_ids.copy()
    ids[positions] = mask
    return attrs.evolve(sample, input_ids=ids, target_positions=positions, targets=sample.input_ids[positions])
