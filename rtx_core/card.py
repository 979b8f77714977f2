"""The model card: ``README.md`` of the kept model, from what the run has recorded.

Its header is YAML, in which every text is written as JSON, which is YAML too. A card may be published, so of a path it
has the file's name alone.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rtx_core.components import Layout, Outputs

_SHOWN_OF_HASH = 16
_PATHS = re.compile(r"(?<![\w.:])(?:~|\.{1,2})?/[^=,\"'\[\]]*")
"""A path that tells of the machine, in an argument of a command line."""


@attrs.frozen(kw_only=True)
class Facts:
    """What a card is written from."""

    record: Mapping[str, Any]
    """run.json."""
    settings: Mapping[str, Any]
    """resolved.toml."""
    config: Mapping[str, Any]
    """config.json beside the card."""
    layout: Layout
    pipeline_tag: str | None
    encoder_options: Mapping[str, Any]
    """What ``transformers``' class is called with, where it builds the encoder alone; else nothing."""
    outputs: Outputs
    max_length: int
    step: int
    """The step after which the weights were as they are."""
    why: str
    """Which step that is, in a clause: ``the best by eval/loss``."""
    values: Mapping[str, Any]
    """What was measured of these weights, by full name."""
    own_head: bool
    """Whether ``transformers`` has a class for encoder and head together."""


def model_card(facts: Facts) -> str:
    """Markdown: how to load the model, its data, how it was made, its figures, its limits."""
    record = facts.record
    components = record["components"]
    lines = [
        *_header(facts),
        f"# {_inline(record['name'])}",
        "",
        (
            f"{_code(_name(components, 'architecture'))} for {_code(_name(components, 'task'))}, trained with "
            f"rtx {record['packages']['rtx-transformers']}."
        ),
        "",
        "## Use",
        "",
        "In the folder of this file:",
        "",
        "```python",
        facts.layout.usage or _usage(facts),
        "```",
        "",
        "## Data",
        "",
        *_data(facts),
        "",
        "## Training",
        "",
        *_training(facts),
        "",
        "## Evaluation",
        "",
        *(list(_evaluation(facts)) or ["- nothing was evaluated"]),
        "",
        "## Limits",
        "",
        *_limits(facts),
        "",
    ]
    return "\n".join(lines)


# --- header and use ---------------------------------------------------------------------------------------------------


def _header(facts: Facts) -> Iterator[str]:
    """What the Hugging Face hub reads."""
    yield "---"
    yield f"library_name: {json.dumps(facts.layout.library)}"
    pipeline_tag = "feature-extraction" if _is_encoder_alone(facts) else facts.pipeline_tag
    if pipeline_tag is not None:
        yield f"pipeline_tag: {json.dumps(pipeline_tag)}"
    yield "tags:"
    yield '- "rtx"'
    source = facts.settings["architecture"].get("from_pretrained", "")
    if source.startswith("hub:"):
        yield f"base_model: {json.dumps(source.removeprefix('hub:').partition('@')[0])}"
    yield "---"


def _is_encoder_alone(facts: Facts) -> bool:
    """Whether other libraries load the encoder without the head, so that they can't do the task."""
    return not facts.own_head and facts.layout.usage is None


def _usage(facts: Facts) -> str:
    """Python that loads tokenizer and model by ``transformers``' class for it."""
    (name, *_) = facts.config.get("architectures") or ["AutoModel"]
    options = "".join(f", {key}={value!r}" for key, value in facts.encoder_options.items())
    texts = ", ".join(map(json.dumps, facts.layout.example))
    if not facts.own_head:
        shown = "outputs.last_hidden_state"
    elif facts.pipeline_tag == "question-answering":
        shown = "outputs.start_logits, outputs.end_logits"
    else:
        shown = "outputs.logits"
    return "\n".join(
        [
            f"from transformers import AutoTokenizer, {name}",
            "",
            'tokenizer = AutoTokenizer.from_pretrained(".")',
            f'model = {name}.from_pretrained("."{options})',
            f'outputs = model(**tokenizer({texts}, truncation=True, return_tensors="pt"))',
            f"print({shown})",
        ]
    )


# --- data and training ------------------------------------------------------------------------------------------------


def _data(facts: Facts) -> Iterator[str]:
    """Each set with its size, then what identifies its contents."""
    sets: Mapping[str, Any] = facts.record.get("data", {})
    if sets:
        yield "| set | records | samples | tokens |"
        yield "| --- | --- | --- | --- |"
        for name, counted in sets.items():
            numbers = (f"{counted[key]:,}" for key in ("records", "samples", "tokens"))
            yield f"| {_cell(name)} | {' | '.join(numbers)} |"
        yield ""
    if "training" not in sets:
        yield "- training samples were streamed"
    for name, fingerprint in facts.record["fingerprints"].items():
        files = _files(facts.settings["data"], name)
        named = f" ({', '.join(map(_code, files))})" if files else ""
        yield f"- {_code(name)}{named}: sha256 {fingerprint[:_SHOWN_OF_HASH]}…"


def _files(data: Mapping[str, Any], name: str) -> list[str]:
    """Names of the files of a set, by its dotted name (``train[1]``, ``eval.clean``)."""
    table: Any = data
    for key, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", name):
        if number and isinstance(table, list) and int(number) < len(table):
            table = table[int(number)]
        elif isinstance(table, dict):
            table = table.get(key)
    files = table.get("files", []) if isinstance(table, dict) else []
    return [PurePath(file).name for file in files]


def _training(facts: Facts) -> Iterator[str]:
    record, settings = facts.record, facts.settings
    optimizer, training = settings["optimizer"], settings["training"]
    source = settings["architecture"].get("from_pretrained")
    size = next((f"{training[key]:,}" for key in ("batch_size", "batch_tokens") if key in training), "?")
    unit = "sequences" if "batch_size" in training else "tokens"
    yield f"- weights after step {facts.step:,} ({facts.why}) of a run of {training['duration']}, {size} {unit} a step"
    yield f"- started from {_code(_origin(source))}" if source else "- started from a seed, not from other weights"
    scheduler, loss = (_code(settings[name]["type"]) for name in ("scheduler", "loss"))
    yield (
        f"- optimizer {_code(optimizer['type'])}, peak rate {optimizer['lr']:g}; scheduler {scheduler}; loss {loss}; "
        f"seed {settings['run']['seed']}"
    )
    command = record.get("command") or []
    if "run" in command:
        yield f"- made by {_code(shlex.join(['rtx', *(_PATHS.sub(_last_part, word) for word in command)]))}"
    packages = ", ".join(f"{name} {version}" for name, version in record["packages"].items())
    yield f"- {packages}; Python {record['python']}, {record['machine']}, {record['device']}"
    yield "- every value that was used is in `resolved.toml` of the run's folder"


def _origin(source: str) -> str:
    """Where the first weights came from; of a folder its name."""
    return source if source.startswith(("hub:", "run:")) else PurePath(source).name


def _last_part(path: re.Match[str]) -> str:
    return PurePath(path[0]).name


# --- figures and limits -----------------------------------------------------------------------------------------------


def _evaluation(facts: Facts) -> Iterator[str]:
    for name, value in facts.values.items():
        if isinstance(value, float):
            yield f"- {_code(name)}: {value:.6g}"


def _limits(facts: Facts) -> Iterator[str]:
    outputs = facts.outputs
    yield f"- texts are cut at {facts.max_length} tokens"
    if outputs.labels:
        yield f"- it knows these labels and no other: {', '.join(map(_code, outputs.labels))}"
    if facts.layout.output_names:
        yield f"- its outputs are, in this order: {', '.join(map(_code, facts.layout.output_names))}"
    yield from _units(outputs)
    yield from _thresholds(outputs)
    if _is_encoder_alone(facts):
        yield "- transformers has no class for its head: it loads the encoder alone, `rtx predict` answers with both"
    yield from (f"- {limit}" for limit in facts.layout.limits)
    if facts.config.get("dtype", "float32") != "float32":
        yield f"- its weights are rounded to {facts.config['dtype']}; they were measured before that, in float32"
    yield "- it was measured on the data above alone"


def _units(outputs: Outputs) -> Iterator[str]:
    """How what ``transformers`` gives becomes what the data had: rtx turns it back itself."""
    if outputs.center is None or outputs.scale is None:
        return
    for number, (center, scale) in enumerate(zip(outputs.center, outputs.scale, strict=True)):
        yield f"- output {number} is standardised: the value is {scale!r} × the logit + {center!r}"


def _thresholds(outputs: Outputs) -> Iterator[str]:
    """From where a label is predicted, which ``transformers`` has no place for: it takes 0.5, or the likeliest."""
    for label, threshold in zip(outputs.labels or (), outputs.thresholds or (), strict=False):
        yield (
            f"- {_code(label)} is predicted above a probability of {threshold!r}; transformers doesn't know this "
            "threshold"
        )


# --- markdown ---------------------------------------------------------------------------------------------------------


def _name(components: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    return str(components[kind]["component"]).partition(".")[2]


def _inline(text: str) -> str:
    """A text on one line in which nothing is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """A text as code: on one line, in more backticks than it has in a row itself (CommonMark 6.1)."""
    line = " ".join(text.split())
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def _cell(text: str) -> str:
    """A text in a table."""
    return _code(text).replace("|", r"\|")
