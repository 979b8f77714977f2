"""The kept folder of each family with each head: transformers' class for the task opens it, whole and by its name."""

from __future__ import annotations

import functools
import json

import attrs
import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open

from rtx_core import Record, inference
from rtx_core.cli import main
from rtx_core.registry import Registry

PIPELINE = """\
[run]
device = "cpu"
[task]
{task}
max_length = 32
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[tokenizer]
type = "{tokenizer}"
vocab_size = 300
[architecture]
{architecture}
initializer_range = 0.2
[optimizer]
lr = 1e-3
[training]
duration = "1 step"
batch_size = 10
threads = 1
"""
SIZES = "hidden_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = 2\nintermediate_size = 24"
FAMILIES = {
    "Bert": ("wordpiece", f'type = "bert"\n{SIZES}'),
    "Roberta": ("bpe", f'type = "roberta"\n{SIZES}\npad_token_id = 0'),
    "DistilBert": ("wordpiece", 'type = "distilbert"\ndim = 16\nn_layers = 1\nn_heads = 2\nhidden_dim = 24'),
    "ModernBert": ("wordpiece", f'type = "modernbert"\n{SIZES}'),
}


@attrs.frozen
class Job:
    """A task's table, the end of transformers' class, its labels and problem_type, and its pipeline."""

    table: str
    end: str
    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    pipeline: str | None = None


KINDS = ("animal", "food: #1", 'pl"ant')
TASKS = {
    "masked_lm": Job('type = "masked_lm"', "MaskedLM", pipeline="fill-mask"),
    "sequence_classification": Job(
        'type = "sequence_classification"\nlabel = "kind"',
        "SequenceClassification",
        KINDS,
        "single_label_classification",
        "text-classification",
    ),
    "multi_label_classification": Job(
        'type = "multi_label_classification"\nlabel = "kinds"',
        "SequenceClassification",
        KINDS,
        "multi_label_classification",
        "text-classification",
    ),
    "regression": Job(
        'type = "regression"\ntarget = ["size", "size2"]', "SequenceClassification", ("size", "size2"), "regression"
    ),
    "token_classification": Job(
        'type = "token_classification"', "TokenClassification", ("long", "short"), pipeline="token-classification"
    ),
    "question_answering": Job('type = "question_answering"', "QuestionAnswering"),
}
CASES = [(family, task) for family in FAMILIES for task in TASKS]


@pytest.fixture(scope="module")
def rows():
    """Definitions with everything that any task asks for."""
    draw = np.random.default_rng(5)
    made = []
    for number in range(20):
        words = list(draw.choice(["a", "small", "tree", "with", "edible", "fruit", "fish", "bread"], 3 + number % 9))
        text = " ".join(words)
        made.append(
            {
                "text": text,
                "kind": KINDS[number % 3],
                "kinds": [KINDS[number % 3], KINDS[(number + 1) % 3]],
                "size": float(number),
                "size2": float(number % 7),
                "words": words,
                "tags": ["long" if len(word) > 4 else "short" for word in words],
                "question": "what is first",
                "context": text,
                "answers": [{"text": words[0], "start": 0}],
            }
        )
    return made


@pytest.fixture(scope="module")
def kept(tmp_path_factory, rows):
    """The folder of a run of one step of a family with a task's own head; read it, don't change it."""

    @functools.cache
    def make(family, task):
        folder = tmp_path_factory.mktemp("kept")
        tokenizer, architecture = FAMILIES[family]
        text = PIPELINE.format(task=TASKS[task].table, tokenizer=tokenizer, architecture=architecture)
        (folder / "job.toml").write_text(text)
        (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        assert main(["run", str(folder / "job.toml"), "--output", str(folder / "run"), "--quiet"]) == 0
        return folder / "run"

    return make


@pytest.mark.parametrize(("family", "task"), CASES)
def test_transformers_opens_it_whole(kept, family, task):
    """Its class is that of the task, no tensor is missing or left over, each once in the file, and config says what is
    what: classes by name, both ways, and which loss.
    """
    folder, job = kept(family, task) / "model", TASKS[task]
    auto = getattr(transformers, f"AutoModelFor{job.end}")
    model, info = auto.from_pretrained(folder, output_loading_info=True)
    assert {name: keys for name, keys in info.items() if keys} == {}
    assert type(model).__name__ == f"{family}For{job.end}"
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == [type(model).__name__]
    assert config.get("problem_type") == job.problem_type
    if job.labels:
        names = dict(enumerate(job.labels)) if job.problem_type != "regression" else {0: "LABEL_0", 1: "LABEL_1"}
        assert model.config.id2label == names
        assert model.config.label2id == {name: number for number, name in names.items()}
    with safe_open(folder / "model.safetensors", "pt") as file:
        stored = set(file.keys())
        assert file.metadata() == {"format": "pt"}
        named = dict(model.named_parameters())  # a tied one once
        assert all(torch.equal(file.get_tensor(name), named[name]) for name in stored)
    assert stored == named.keys()


@pytest.mark.parametrize(("family", "task"), [case for case in CASES if case[1] != "masked_lm"])
def test_logits_of_a_text_are_the_same(kept, rows, family, task):
    """From the text on: transformers' tokenizer and model, and rtx's, on each row alone.

    A language model has no answers of its own; ``test_kept_model.py`` compares its logits.
    """
    folder, job = kept(family, task), TASKS[task]
    model = getattr(transformers, f"AutoModelFor{job.end}").from_pretrained(folder / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    records = [Record(row, "rows", number) for number, row in enumerate(rows, start=1)]
    for row, ours in zip(rows, inference.load(folder, Registry.discover()).logits(records), strict=True):
        if task == "question_answering":
            encoded = tokenizer(row["question"], row["context"], return_tensors="pt")
        elif task == "token_classification":
            encoded = tokenizer(row["words"], is_split_into_words=True, return_tensors="pt")
        else:
            encoded = tokenizer(row["text"], return_tensors="pt")
        with torch.no_grad():
            output = model(**encoded)
        if task == "question_answering":
            theirs = torch.stack([output.start_logits[0], output.end_logits[0]], dim=1)
        elif task == "token_classification":
            words = encoded.word_ids(0)
            theirs = output.logits[0, [words.index(word) for word in range(len(row["words"]))]]
        else:
            theirs = output.logits
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("task", [task for task, job in TASKS.items() if job.pipeline])
def test_its_pipeline_answers(kept, rows, task):
    """``transformers.pipeline`` finds model and tokenizer, and answers with the labels."""
    folder, job = kept("Bert", task) / "model", TASKS[task]
    pipeline = transformers.pipeline(job.pipeline, str(folder), device="cpu")
    if task == "masked_lm":
        assert len(pipeline("a small [MASK] with fruit")) == 5
        return
    answers = pipeline([row["text"] for row in rows])
    flat = [answer for answer in answers for answer in (answer if isinstance(answer, list) else [answer])]
    assert {answer.get("label") or answer["entity"] for answer in flat} <= set(job.labels)


@pytest.mark.parametrize(("family", "task"), CASES)
def test_the_cards_sample_runs(kept, monkeypatch, capfd, family, task):
    """As it stands in README.md, in the folder."""
    folder = kept(family, task) / "model"
    code = (folder / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(folder)
    capfd.readouterr()
    exec(compile(code, "card", "exec"), {})  # noqa: S102 - the sample is what is tested
    assert "tensor([[" in capfd.readouterr().out
