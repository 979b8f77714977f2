"""Job 2, named entities from column files, as it is written, on a small sample of its kind of data; and texts with
spans.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from seqeval import metrics as seqeval_metrics

JOB = Path(__file__).parents[1] / "jobs" / "2-entities.toml"
PLACES, PEOPLE, OTHERS = ("Rome", "Lima", "Oslo"), ("Ada", "Bo", "Cy"), ("lives", "in", "near", "and", ".")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PLACES, *PEOPLE, *OTHERS]
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
QUICK = ("training.duration=40 steps", "training.eval_every=20 steps", "optimizer.lr=5e-3")


def sentence(draw, length):
    """Words and tags: places and people of one or two words among others."""
    words, tags = [], []
    while len(words) < length:
        names, label = ((PLACES, "LOC"), (PEOPLE, "PER"), (OTHERS, None))[draw.integers(3)]
        count = int(draw.integers(1, 3))
        words += draw.choice(names, count).tolist()
        tags += ["O"] * count if label is None else [f"B-{label}", *[f"I-{label}"] * (count - 1)]
    return words, tags


def sentences(seed, count):
    """Some of them are longer than the 128 tokens of a window."""
    draw = np.random.default_rng(seed)
    return [sentence(draw, 300 if number % 8 == 0 else int(draw.integers(1, 20))) for number in range(count)]


def write_columns(path, rows):
    lines = ["-DOCSTART- -X- -X- O", ""]
    for words, tags in rows:
        lines += [*(f"{word} NN B-NP {tag}" for word, tag in zip(words, tags, strict=True)), ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A working directory with the job, a small BERT in place of the large one, and a sample of each file."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    monkeypatch.chdir(tmp_path)
    shutil.copy(JOB, tmp_path)
    for name, seed, count in (("train", 1, 48), ("valid", 2, 24), ("test", 3, 8)):
        write_columns(tmp_path / f"{name}.txt", sentences(seed, count))
    folder = tmp_path / "models" / "bert-base-cased"
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(vocab_size=len(VOCABULARY), **SIZES)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    return tmp_path


def test_the_job_is_checked_and_run(rtx, job):
    """``check`` passes; the best by entity F1 is kept, and it is seqeval's F1 of what ``predict`` says of all words."""
    assert rtx("check", "2-entities.toml").status == 0
    done = rtx("run", "2-entities.toml", *(part for text in QUICK for part in ("--set", text)))
    assert (done.status, "Traceback" in done.err) == (0, False), done.err
    best = json.loads((job / "runs/2-entities/run.json").read_text())["best"]
    assert best["monitor"] == "eval/entity_f1"
    rows = [json.loads(line) for line in (job / "runs/2-entities/metrics.jsonl").read_text().splitlines()]
    assert all(
        {"eval/entity_precision", "eval/entity_recall", "eval/accuracy"} <= r.keys() for r in rows if "eval/loss" in r
    )

    expected = sentences(2, 24)
    write_lines(job / "valid.jsonl", [{"word": words} for words, _ in expected])
    assert rtx("predict", "run:2-entities", "valid.jsonl", "--output", "out.jsonl").status == 0
    answers = [json.loads(line) for line in (job / "out.jsonl").read_text().splitlines()]
    assert [len(answer["prediction"]) for answer in answers] == [len(words) for words, _ in expected]
    predicted = [answer["prediction"] for answer in answers]
    f1 = seqeval_metrics.f1_score([tags for _, tags in expected], predicted)
    assert best["value"] == pytest.approx(f1, abs=1e-12)
    assert f1 > 0.3
    assert sum(len(answer["entities"]) for answer in answers) == len(
        seqeval_metrics.sequence_labeling.get_entities(predicted)
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("task.stride=128", "task.stride: windows of 128 tokens (max_length) can't share 128"),
        ("task.stride=126", "task.stride: windows hold 126 tokens of a text and can't share 126"),
        ("task.long_text=truncate", "task.stride: only windows share tokens"),
        ("task.long_text=head_tail", 'task.long_text: expected "truncate" or "windows", got "head_tail"'),
        (
            "task.scheme=plain",
            'training.monitor: no evaluation produces "eval/entity_f1"; there are eval/loss, eval/acc',
        ),
        ("task.scheme=IOBS", 'task.scheme: expected "IOB2" or "IOBES" or "plain", got "IOBS"; did you mean "IOB2"?'),
        ("task.scheme=IOBES", ""),
        ("metrics.entities.mode=lax", 'metrics.entities.mode: expected "lenient" or "strict", got "lax"'),
    ],
)
def test_what_does_not_fit_is_refused(rtx, job, setting, message):
    """One line, exit status 2, before the first step; IOBES also takes tags of IOB2."""
    done = rtx("run", "2-entities.toml", "--steps", "1", "--set", setting)
    assert done.status == (2 if message else 0)
    assert message in done.err


def test_entities_of_tags_that_make_none_are_refused_by_check(rtx, job):
    """The metric is named, and what the task lacks."""
    sets = ("--set", "task.scheme=plain", "--set", "training.monitor=unset", "--set", "metrics.entities.per_label=true")
    done = rtx("check", "2-entities.toml", *sets)
    assert done.status == 2
    assert "metrics.entities: counts the spans that tags make up, but this task has no scheme that says how" in done.err


def test_a_mistake_in_the_task_is_the_only_one_that_is_reported(rtx, job):
    """What the task is measured by isn't known then, so the monitor is not judged."""
    done = rtx("check", "2-entities.toml", "--set", "task.max_length=1")
    assert (done.status, done.err.count("monitor")) == (2, 0)


def test_a_tag_of_another_scheme_is_named_with_its_line(rtx, job):
    """Before the first step, in the training file."""
    text = (job / "train.txt").read_text()
    (job / "train.txt").write_text(text + "\nBo NN B-NP X-PER\n")
    done = rtx("run", "2-entities.toml")
    assert done.status == 2
    assert f'train.txt:{text.count(chr(10)) + 2}: column "tag": "X-PER" is no tag in IOB2' in done.err


SPANS = """\
[task]
type = "token_classification"
text = "text"
max_length = 24
long_text = "windows"
[data]
type = "spans"
[data.train]
files = ["train.jsonl"]
[data.eval]
files = ["train.jsonl"]
[architecture]
from_pretrained = "models/bert-base-cased"
[optimizer]
lr = 5e-3
[training]
duration = "40 steps"
batch_size = 16
monitor = "eval/entity_f1"
"""


def with_spans(words, tags):
    """A text of these words with its entities as Doccano writes them."""
    text, spans = "", []
    for word, tag in zip(words, tags, strict=True):
        if tag.startswith("B-"):
            spans.append([len(text), len(text) + len(word), tag[2:]])
        elif tag.startswith("I-"):
            spans[-1][1] = len(text) + len(word)
        text += word + " "
    return {"text": text, "label": spans}


def test_texts_with_spans_are_learnt_and_found(rtx, job):
    """Spans of long texts come back from ``predict`` with their text; what it is evaluated by is what it finds."""
    rows = [with_spans(words[:60], tags[:60]) for words, tags in sentences(5, 48)]
    write_lines(job / "train.jsonl", rows)
    (job / "spans.toml").write_text(SPANS)
    done = rtx("run", "spans.toml")
    assert done.status == 0, done.err
    value = json.loads((job / "runs/spans/run.json").read_text())["best"]["value"]
    assert rtx("predict", "run:spans", "train.jsonl", "--scores", "--output", "out.jsonl").status == 0
    right = found = 0
    for row, line in zip(rows, (job / "out.jsonl").read_text().splitlines(), strict=True):
        answer = json.loads(line)
        there = {tuple(span) for span in row["label"]}
        assert all(span["text"] == row["text"][span["start"] : span["end"]] for span in answer["spans"])
        assert all(0.0 < span["score"] <= 1.0 for span in answer["spans"])
        right += len(there & {(span["start"], span["end"], span["label"]) for span in answer["spans"]})
        found += len(answer["spans"])
    expected = sum(len(row["label"]) for row in rows)
    assert value == pytest.approx(2 * right / (found + expected), abs=1e-12)
    assert value > 0.3
    one = rtx("predict", "run:spans", "--text", "Ada lives in Rome")
    assert set(json.loads(one.out)) == {"text", "spans"}
