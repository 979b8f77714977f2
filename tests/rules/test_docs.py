"""Rules that the documentation keeps: every hook stands in it, samples work, commands exist, links lead somewhere."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from pathlib import Path

import attrs
import pytest
import tomli
import torch
from sklearn.metrics import top_k_accuracy_score

from rtx_core import config, inference
from rtx_core.cli import main
from rtx_core.components import KINDS
from rtx_core.console import Console
from rtx_core.hooks import KindHooks, LoopHooks
from rtx_core.prepare import prepare
from rtx_core.registry import Registry
from rtx_plugins.architectures.bert import Bert

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
"""Packages whose samples need them installed: ``tests/third_party/`` does that."""
DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if EXAMPLES not in page.parents]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

BASE = """\
[task]
type = "sequence_classification"
[data]
type = "csv"
[data.train]
files = ["my.csv"]
[data.eval]
files = ["my.csv"]
[tokenizer]
type = "wordpiece"
[architecture]
type = "bert"
[optimizer]
lr = 5e-4
[training]
duration = "3 epochs"
batch_size = 32
"""
"""What a sample of single tables is an extension of."""


@attrs.frozen
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages):
    """Every fenced block in one of the languages, of every page."""
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2])
        for page, text in ((page, page.read_text(encoding="utf-8")) for page in PAGES)
        for match in FENCE.finditer(text)
        if match[1] in languages
    ]


def is_plugin_file(block):
    return "from rtx_core import" in block.text and "@hookimpl" in block.text


@pytest.fixture
def rtx(capfd, tmp_path, monkeypatch):
    """Call the command line in a working directory with ``my.csv`` and ``new.csv``; the status and both outputs."""
    monkeypatch.chdir(tmp_path)
    labels = {"red": "warm", "blue": "cold", "grey": "neither", "green": "both"}
    rows = [f"a {word} thing that has the number {i},{label}" for i in range(25) for word, label in labels.items()]
    (tmp_path / "my.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "new.csv").write_text("text\na red thing\na blue one\n")

    def call(*arguments):
        capfd.readouterr()
        status = main([str(argument) for argument in arguments])
        return status, *capfd.readouterr()

    return call


# --- hooks ------------------------------------------------------------------------------------------------------------


def hooks(protocol):
    """The hooks of a protocol, each with the names of its arguments."""
    functions = {name: value for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"}
    return {name: list(inspect.signature(function).parameters)[1:] for name, function in functions.items()}


def written_calls(text):
    """Every ``name(a, b)`` in a page, with the first word of each argument."""
    for name, arguments in re.findall(r"\b([a-z_]+)\(([^()]*)\)", text):
        yield name, [words[0] for words in map(str.split, arguments.split(",")) if words]


@pytest.mark.parametrize("protocol", [KindHooks, LoopHooks])
def test_every_hook_is_documented_with_its_arguments(protocol):
    """``docs/hooks.md`` writes each hook of ``hooks.py`` at least once as it is called."""
    written = list(written_calls((ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")))
    assert [name for name, arguments in hooks(protocol).items() if (name, arguments) not in written] == []


def test_the_page_on_hooks_names_no_other():
    """What is written like a hook is one."""
    text = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\bon_[a-z]+(?:_[a-z]+)*\b", text)) <= hooks(LoopHooks).keys()


def test_every_kind_has_a_hook():
    """In the order of ``KINDS``, without arguments."""
    assert hooks(KindHooks) == {kind: [] for kind in KINDS}
    assert list(hooks(KindHooks)) == list(KINDS)


# --- samples ----------------------------------------------------------------------------------------------------------

TABLE_OF = {"callback": "[callbacks.{}]", "metric": "[metrics.{}]"}
"""The table that turns a part on, where it isn't that of its kind with a ``type``."""
ON_TOP = 'extends = ["base.toml"]\n'


@pytest.mark.parametrize("block", [block for block in blocks("python") if is_plugin_file(block)], ids=str)
def test_a_plugin_in_the_docs_works_in_a_run(block, rtx, tmp_path):
    """A block that imports rtx_core and marks a hook is a whole file for ``--plugin``, and its part takes 3 steps."""
    (tmp_path / "sample.py").write_text(block.text, encoding="utf-8")
    offered = [entry for entry in Registry.discover([tmp_path / "sample.py"]).entries if entry.file is not None]
    assert offered
    tables = [TABLE_OF.get(part.kind, f'[{part.kind}]\ntype = "{{}}"').format(part.name) for part in offered]
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "sample.toml").write_text(ON_TOP + "\n".join(tables) + "\n")
    small = ("--set", "architecture.preset=tiny", "--steps", 3, "--quiet")
    assert rtx("run", "sample.toml", "--plugin", "sample.py", *small) == (0, "", "")
    used = json.loads((tmp_path / "runs" / "sample-smoke" / "run.json").read_text())["components"].values()
    assert {f"{part.kind}.{part.name}" for part in offered} <= {
        part["component"] for part in used if part["distribution"] == "sample.py"
    }


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_toml_in_the_docs_passes_check(block, rtx, tmp_path, monkeypatch, hub_cache):
    """A whole pipeline by itself, single tables on top of one, where the files and packages of the page are there."""
    tables = tomli.loads(block.text)
    if "project" in tables or "build-system" in tables:
        return  # a package's pyproject.toml; that it is TOML is all that can be said
    alone = "task" in tables
    (tmp_path / "sample.toml").write_text(block.text if alone or "extends" in tables else ON_TOP + block.text)
    for name in tables.get("extends", [] if alone else ["base.toml"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(BASE.replace("my.csv", str(tmp_path / "my.csv")))
    make_files(tables, tmp_path, hub_cache)
    monkeypatch.syspath_prepend(install_packages(block.page, tmp_path / "site"))
    plugins = write_plugins(block.page, tmp_path)
    assert rtx("check", "sample.toml", *plugins)[::2] == (0, "")


def make_files(tables, folder, hub_cache):
    """The data and the folder of weights that a sample names, or the same in the cache of the hub."""
    for name in named_files(tables.get("data", {})):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name.replace("*", "x")).write_bytes((folder / "my.csv").read_bytes())
    source = tables.get("architecture", {}).get("from_pretrained", "run:")
    if not source.startswith("run:"):
        model = folder / source.removeprefix("hub:")
        model.mkdir(parents=True)
        (model / "config.json").write_text(json.dumps({"model_type": "bert", **Bert.presets["base"]}))
        (model / "vocab.txt").touch()
        (model / "model.safetensors").touch()  # check sees that it is there
        if source.startswith("hub:"):
            hub_cache(source.removeprefix("hub:"), model)


def named_files(value):
    """Every entry of a ``files`` list in ``[data]``, and the three of a retrieval's, at any depth."""
    if isinstance(value, dict):
        yield from value.get("files", ())
        yield from (value[name] for name in ("queries", "corpus", "relevant") if name in value)
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from named_files(inner)


def install_packages(page, site):
    """A folder for the path in which every pyproject.toml of a page has been installed, as far as metadata go."""
    site.mkdir()
    for block in blocks("toml"):
        project = tomli.loads(block.text).get("project")
        if block.page == page and project is not None:
            info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
            info.mkdir()
            head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
            (info / "METADATA").write_text(head)
            points = project["entry-points"]["rtx.v1"]
            lines = "".join(f"{name} = {module}\n" for name, module in points.items())
            (info / "entry_points.txt").write_text(f"[rtx.v1]\n{lines}")
    return site


def write_plugins(page, folder):
    """``--plugin FILE`` for every plugin file on a page."""
    options = []
    for number, block in enumerate(block for block in blocks("python") if block.page == page and is_plugin_file(block)):
        (folder / f"plugin_{number}.py").write_text(block.text)
        options += ["--plugin", folder / f"plugin_{number}.py"]
    return options


def commands():
    """Every command line of ours in the shell samples, without what starts Python."""
    for block in blocks("sh", "bash", "console"):
        for line in block.text.splitlines():
            if found := re.search(r"(?:-m rtx_core|^(?:\$ )?rtx)\s+(.*)", line):
                yield pytest.param(
                    shlex.split(found[1], comments=True), id=f"{block}: {found[1].split('#')[0].strip()}"
                )


@pytest.mark.parametrize("arguments", list(commands()))
def test_a_command_in_the_docs_exists_and_takes_its_options(arguments, rtx):
    """The command is installed, and every option of the line is in its help."""
    status, helped, _ = rtx(arguments[0], "--help")
    assert status == 0
    options = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    assert options <= set(re.findall(r"--[a-z][a-z-]*", helped))


# --- the README, as a new user follows it -----------------------------------------------------------------------------


def readme(language, containing):
    """The block of the README that holds a text."""
    (block,) = [b for b in blocks(language) if b.page.name == "README.md" and containing in b.text]
    return block.text


def test_the_way_from_a_table_to_answers_works(rtx, tmp_path):
    """The README's commands, one after the other, on a CSV with a text and a label: each succeeds."""
    lines = [line for line in readme("sh", "init my.csv").splitlines() if line]
    commands = [shlex.split(line.partition("-m rtx_core ")[2], comments=True) for line in lines]
    assert [command[0] for command in commands] == ["init", "check", "plan", "run", "predict"]
    for command in commands:
        # What init proposes takes 500 steps; whether it trains well is shown with init.
        shorter = ("--set", "training.duration=10 steps", "--quiet") if command[0] == "run" else ()
        assert rtx(*command, *shorter)[0] == 0, command
    answers = (tmp_path / "answers.csv").read_text().splitlines()
    assert answers[0] == "text,prediction,error"
    assert [line.split(",")[0] for line in answers[1:]] == ["a red thing", "a blue one"]


def test_the_metric_in_the_readme_measures(rtx, tmp_path):
    """``top2.py`` with the README's pipeline: what it logs is scikit-learn's figure for the model that is kept."""
    (tmp_path / "top2.py").write_text(readme("python", "# top2.py"))
    (tmp_path / "my.toml").write_text(readme("toml", "[task]") + "[metrics.top2]\n")
    status, _, said = rtx("run", "my.toml", "--plugin", "top2.py", "--set", "training.duration=4 steps", "--quiet")
    assert (status, said) == (0, "")
    run = tmp_path / "runs" / "my"
    best = json.loads((run / "run.json").read_text())["best"]["step"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (logged,) = [row["eval/top2"] for row in rows if "eval/top2" in row and row["step"] == best]
    registry = Registry.discover([tmp_path / "top2.py"])
    pipeline = config.load(tmp_path / "my.toml", sets=(), registry=registry)
    records = prepare(pipeline, console=Console(quiet=True)).records.eval[""]
    trained = inference.load(run, registry)
    logits = torch.cat(trained.logits(records)).numpy()
    targets = [trained.outputs.labels.index(record.values["label"]) for record in records]
    assert logged == pytest.approx(top_k_accuracy_score(targets, logits, k=2, labels=range(4)), rel=1e-6)


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    """Every relative link of a page is a file of the repository."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
