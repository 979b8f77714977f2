"""Rules that every module keeps: docstrings, what may be imported and called, and where things stand."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rtx_core.components import KINDS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ENTRY_POINTS = PROJECT["project"]["entry-points"]["rtx.v1"]
CORE = sorted((ROOT / "rtx_core").rglob("*.py"))
PLUGINS = sorted((ROOT / "rtx_plugins").rglob("*.py"))
FOLDERS = {
    "architecture": "architectures",
    "head": "heads",
    "optimizer": "optimizers",
    "scheduler": "schedulers",
    "loss": "losses",
    "metric": "metrics",
    "callback": "callbacks",
    "task": "tasks",
    "data": "data",
    "tokenizer": "tokenizers",
    "strategy": "strategies",
    "command": "commands",
}
"""The folder of ``rtx_plugins`` that holds the parts of a kind."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def parsed(file):
    return ast.parse(file.read_bytes())


def module_name(file):
    """As it is imported: ``rtx_core/config/load.py`` is ``rtx_core.config.load``."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def place(file, node):
    return f"{file.relative_to(ROOT)}:{node.lineno}"


# --- docstrings -------------------------------------------------------------------------------------------------------


def public_definitions(body):
    """Classes and functions without an underscore, also those in public classes; not what a function keeps inside."""
    for node in body:
        if isinstance(node, (ast.ClassDef, *FUNCTIONS)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body)


def test_every_public_definition_of_the_core_has_a_docstring():
    """Every module, and every public class, function and method in it."""
    undocumented = [
        place(file, node) for file in CORE for node in public_definitions(parsed(file).body) if not doc(node)
    ]
    assert undocumented + [str(file) for file in (*CORE, *PLUGINS) if not ast.get_docstring(parsed(file))] == []


def doc(node):
    """The docstring; a property's setter shares its getter's."""
    if any(isinstance(one, ast.Attribute) and one.attr == "setter" for one in getattr(node, "decorator_list", ())):
        return "that of the getter"
    return (ast.get_docstring(node) or "").strip()


def test_every_test_says_what_it_shows():
    """A test's docstring is a sentence."""
    tests = [
        (file, node)
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(parsed(file))
        if isinstance(node, FUNCTIONS) and node.name.startswith("test_")
    ]
    assert len(tests) > 500
    assert [place(file, node) for file, node in tests if not doc(node).endswith(".")] == []


# --- imports ----------------------------------------------------------------------------------------------------------


def test_plugins_are_imported_without_what_takes_long():
    """A fresh process that imports the command line and every entry point's module has neither torch nor the like."""
    modules = ["rtx_core.cli", "rtx_core.config", "rtx_core.console", *sorted(set(ENTRY_POINTS.values()))]
    program = (
        "import importlib, json, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "print(json.dumps(list(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *modules], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert set(modules) <= loaded
    assert loaded & {"torch", "torchmetrics", "transformers", "sklearn", "scipy", "pandas", "datasets"} == set()


def test_plugins_use_public_names_of_the_core():
    """No plugin of ours imports a name with an underscore."""
    imported = [
        (place(file, node), name.name)
        for file in PLUGINS
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rtx_core")
        for name in node.names
    ]
    assert len(imported) > 50
    assert [found for found in imported if found[1].startswith("_")] == []


# --- what runs code from data -----------------------------------------------------------------------------------------

MODULES = {"pickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle", "yaml"}
"""Modules that run what a data file says, or make such files."""
CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.save"}
"""Functions that do."""
READS_PICKLES = ROOT / "rtx_plugins" / "commands" / "pickled.py"
"""The one exception: ``convert`` turns old files of weights into safetensors, by torch's restricted reader."""


def suspicious(tree):
    """Imports and calls through which a data file could run code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = any(alias.name.partition(".")[0] in MODULES for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found = (node.module or "").partition(".")[0] in MODULES
        elif isinstance(node, ast.Call):
            found = ast.unparse(node.func) in CALLS or any(word.arg == "allow_pickle" for word in node.keywords)
        else:
            found = False
        if found:
            yield node


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from dill import load", "eval(x)", "exec(x)", "torch.load(f)", "np.load(f, allow_pickle=True)"],
)
def test_the_search_finds_what_it_is_for(code):
    """Each form that is forbidden below is found."""
    assert len(list(suspicious(ast.parse(code)))) == 1


def test_no_data_can_run_code():
    """No pickle, ``eval``, ``exec`` or ``torch.load`` in the packages; ``model.eval()`` is another thing."""
    assert list(suspicious(ast.parse("model.eval()"))) == []
    files = (file for file in (*CORE, *PLUGINS) if file != READS_PICKLES)
    assert [place(file, node) for file in files for node in suspicious(parsed(file))] == []


def test_pickles_are_read_in_one_place_alone():
    """One call of ``torch.load``, with ``weights_only=True`` written out, in a module that the command imports only."""
    (call,) = suspicious(parsed(READS_PICKLES))
    assert "weights_only=True" in ast.unparse(call)
    module = module_name(READS_PICKLES)
    importing = [
        file.name
        for file in (*CORE, *PLUGINS)
        for node in ast.walk(parsed(file))
        if (isinstance(node, ast.ImportFrom) and node.module == module)
        or (isinstance(node, ast.Import) and any(alias.name == module for alias in node.names))
    ]
    assert importing == ["convert.py"]


# --- where things stand -----------------------------------------------------------------------------------------------


def test_every_kind_has_its_folder():
    """The folders of ``rtx_plugins`` are those of the kinds, no more and no fewer."""
    folders = {path.name for path in (ROOT / "rtx_plugins").iterdir() if (path / "__init__.py").is_file()}
    assert FOLDERS.keys() == KINDS.keys()
    assert folders == set(FOLDERS.values())


def test_a_files_name_is_the_name_in_toml():
    """Entry point ``kind.name`` leads to the file ``name.py``, or the folder ``name``, of the kind's folder."""
    expected = {}
    for point in ENTRY_POINTS:
        kind, _, name = point.partition(".")
        expected[point] = f"rtx_plugins.{FOLDERS[kind]}.{name.replace('-', '_')}"
    assert expected == ENTRY_POINTS


def test_every_component_has_an_entry_point():
    """A module of a kind's folder that offers components of the kind stands in pyproject.toml."""
    offering = {
        module_name(file)
        for file in PLUGINS
        for node in parsed(file).body
        if isinstance(node, FUNCTIONS)
        and "hookimpl" in map(ast.unparse, node.decorator_list)
        and FOLDERS.get(node.name) == file.relative_to(ROOT / "rtx_plugins").parts[0]
    }
    assert offering == set(ENTRY_POINTS.values())


def test_the_installation_has_these_entry_points():
    """What pip recorded is what pyproject.toml says; after a change of it, ``pip install -e .`` again."""
    installed = importlib.metadata.distribution("rtx-transformers").entry_points.select(group="rtx.v1")
    assert {point.name: point.value for point in installed} == ENTRY_POINTS


# --- layers -----------------------------------------------------------------------------------------------------------


def layers():
    """The layers of ``rtx_core`` in import-linter's contract, from the highest, each a set of names."""
    (contract,) = [c for c in PROJECT["tool"]["importlinter"]["contracts"] if c.get("containers") == ["rtx_core"]]
    assert contract["exhaustive"] is True
    return [set(re.split(r" [|:] ", layer)) for layer in contract["layers"]]


def test_every_module_of_the_core_has_its_layer():
    """Each file and folder of ``rtx_core`` stands once in the contract that ``lint-imports`` checks."""
    names = [name for layer in layers() for name in layer]
    modules = {module_name(file).split(".")[1] for file in CORE if file != ROOT / "rtx_core" / "__init__.py"}
    assert sorted(names) == sorted(modules)


def test_the_layers_are_those_of_the_design():
    """In one direction: errors < components < run < hooks < registry < config < build < loop < cli."""
    order = ("cli", "loop", "build", "config", "registry", "hooks", "run", "components", "errors")
    heights = [next(height for height, layer in enumerate(layers()) if name in layer) for name in order]
    assert heights == sorted(set(heights))
