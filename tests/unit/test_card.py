"""The model card: valid whatever names and labels hold, and without a folder of the machine that made it."""

from __future__ import annotations

import attrs
import huggingface_hub
import pytest
from markdown_it import MarkdownIt

from rtx_core import Layout, Outputs
from rtx_core.card import Facts, model_card

HOSTILE = [
    "---",
    "a: b # c",
    "[x](y)",
    "`code`",
    "``",
    "<b>&amp;",
    "two\nlines",
    "# title",
    "  ",
    "ünï|code",
    '"',
    "{}",
]
RECORD = {
    "name": "colours",
    "command": ["run", "colours.toml"],
    "components": {
        "architecture": {"component": "architecture.bert"},
        "task": {"component": "task.sequence_classification"},
    },
    "packages": {"rtx-transformers": "0.1.0", "torch": "2.13.0"},
    "python": "3.11.7",
    "machine": "Linux x86_64",
    "device": "cpu",
    "data": {"training": {"records": 8000, "samples": 8000, "tokens": 99_999}},
    "fingerprints": {"train": "ab" * 32},
}
SETTINGS = {
    "run": {"seed": 17},
    "architecture": {"type": "bert"},
    "data": {"train": {"files": ["/home/somebody/secret/train.jsonl"]}},
    "optimizer": {"type": "adamw", "lr": 1e-4},
    "scheduler": {"type": "linear"},
    "loss": {"type": "cross_entropy"},
    "training": {"duration": "1 epoch", "batch_size": 32},
}
FACTS = Facts(
    record=RECORD,
    settings=SETTINGS,
    config={"architectures": ["BertForSequenceClassification"], "dtype": "float32"},
    layout=Layout(),
    pipeline_tag="text-classification",
    encoder_options={},
    outputs=Outputs(size=2, labels=("cold", "warm")),
    max_length=64,
    step=250,
    why="the last",
    values={"eval/accuracy": 0.9675, "eval/matrix": [[1.0]], "eval/loss": None},
    own_head=True,
)


def card(**changes):
    return model_card(attrs.evolve(FACTS, **changes))


def with_settings(table, **values):
    return {**SETTINGS, table: {**SETTINGS[table], **values}}


def tokens_of(text):
    """What CommonMark makes of the card without its header: each token's type, and the text of code."""
    body = text.partition("---\n")[2].partition("---\n")[2]
    inline = [child for token in MarkdownIt("commonmark").parse(body) for child in token.children or ()]
    return [(child.type, child.content) for child in inline]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_a_title_and_nothing_else(name):
    """Whatever the run is called, the header stays what it is, and the title has no markup in it."""
    text = card(record={**RECORD, "name": name})
    assert huggingface_hub.ModelCard(text).data.to_dict() == huggingface_hub.ModelCard(card()).data.to_dict()
    tokens = MarkdownIt("commonmark").parse(text.partition("---\n")[2].partition("---\n")[2])
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1", *["h2"] * 5]
    assert "".join(child.content for child in tokens[1].children) == " ".join(name.split())


@pytest.mark.parametrize("label", HOSTILE)
def test_a_label_is_code_and_nothing_else(label):
    """It stands there as it is, on one line, however many backticks it has."""
    if not label.strip():
        return
    text = card(outputs=Outputs(size=2, labels=(label, "warm"), thresholds=(0.25, 0.5)))
    code = [content for kind, content in tokens_of(text) if kind == "code_inline"]
    assert code.count(" ".join(label.split())) == 2
    assert "above a probability of 0.25; transformers doesn't know this threshold" in text


@pytest.mark.parametrize("source", [*HOSTILE, "org/name"])
def test_the_first_weights_stand_in_the_header(source):
    """Those of the hub, as YAML that comes back as it was, without the commit; a folder's name is no repository."""
    settings = with_settings("architecture", from_pretrained=f"hub:{source}@{'0' * 40}")
    assert huggingface_hub.ModelCard(card(settings=settings)).data.to_dict()["base_model"] == source
    folder = with_settings("architecture", from_pretrained="/home/somebody/models/bert")
    assert "base_model" not in huggingface_hub.ModelCard(card(settings=folder)).data.to_dict()
    assert "- started from `bert`\n" in card(settings=folder)


def test_no_folder_of_the_machine_is_in_it():
    """Neither from the data's files nor from the command, of which the rest stays."""
    command = ["run", "/home/somebody/jobs/c.toml", "--set", 'data.train.files=["/home/somebody/x.jsonl"]', "--output"]
    text = card(record={**RECORD, "command": [*command, "../out dir/run", "--set", "a=~/deep/b"]})
    assert "somebody" not in text
    assert "train.jsonl" in text
    assert "run c.toml --set" in text
    assert "out dir" not in text
    assert "deep" not in text


def test_the_sample_asks_what_the_task_reads():
    """One text or two, and of an answer in a text where it starts and ends; the encoder alone has hidden states."""
    assert 'tokenizer("a text", truncation=True' in card()
    pair = Layout(example=("a question", 'a "text"'))
    asked = r'tokenizer("a question", "a \"text\"", truncation=True'
    assert asked in card(layout=pair)
    answers = card(layout=pair, pipeline_tag="question-answering")
    assert asked in answers
    assert "print(outputs.start_logits, outputs.end_logits)" in answers
    assert "print(outputs.last_hidden_state)" in card(own_head=False, pipeline_tag="question-answering")


@pytest.mark.parametrize(("layout", "tag"), [(Layout(), "feature-extraction"), (Layout(usage="x"), "task")])
def test_an_encoder_alone_is_not_offered_for_the_task(layout, tag):
    """Others would give it a head without training; one that another library loads whole keeps its task."""
    text = card(layout=layout, own_head=False, pipeline_tag="task")
    assert huggingface_hub.ModelCard(text).data.pipeline_tag == tag


@pytest.mark.parametrize("name", ["price", *filter(str.strip, HOSTILE)])
def test_outputs_have_their_names(name):
    """As code, before the units, which go by number."""
    outputs = Outputs(size=2, center=(1.0, 2.0), scale=(3.0, 4.0))
    text = card(outputs=outputs, layout=Layout(output_names=(name, "weight")))
    code = [content for kind, content in tokens_of(text) if kind == "code_inline"]
    assert code.index("weight") == code.index(" ".join(name.split())) + 1
    assert text.index("its outputs are, in this order: ") < text.index("output 0 is standardised")
    assert "in this order" not in card()


def test_a_run_from_python_has_no_command():
    """What the process was started with says nothing of the run then."""
    assert "made by `rtx run colours.toml`" in card()
    assert "made by" not in card(record={**RECORD, "command": ["-q", "tests"]})


def test_what_was_not_recorded_is_left_out():
    """A run of an earlier version has no counts of its data; a stream has none of its training."""
    old = {name: value for name, value in RECORD.items() if name != "data"}
    assert "| set |" not in card(record=old)
    assert "- training samples were streamed\n" in card(record={**RECORD, "data": {"eval": RECORD["data"]["training"]}})
    assert "- nothing was evaluated\n" in card(values={})
    assert "- `eval/accuracy`: 0.9675\n\n## Limits" in card()
