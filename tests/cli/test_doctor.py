"""``doctor``: what is found, and what is wrong."""

from __future__ import annotations

import importlib.metadata
import json
import platform

import torch


def test_findings_are_those_of_the_machine(rtx, folder):
    """Versions, threads, plugins and disk, with exit status 0 where nothing is broken."""
    done = rtx("doctor", "--json")
    report = json.loads(done.out)
    assert (done.status, done.err) == (0, "")
    assert report["versions"]["torch"] == importlib.metadata.version("torch")
    assert report["versions"]["python"].startswith(platform.python_version())
    assert report["device"]["threads"] == torch.get_num_threads()
    ours = report["plugins"][f"rtx-transformers {importlib.metadata.version('rtx-transformers')}"]
    assert {"optimizer.adamw", "command.doctor"} <= set(ours)
    assert str(folder) in report["disk"]["free here"]
    assert report["problems"] == []


def test_the_text_says_that_plugins_were_imported(rtx):
    """Importing them runs their code, so a person is told."""
    done = rtx("doctor")
    assert done.status == 0
    assert "every installed plugin was imported" in done.out


def test_broken_plugins_are_problems(rtx, installed):
    """Case 30: one that can't be imported and one of another API are named with their distribution; exit status 1."""
    installed("loss.bad")
    installed("loss.newer", group="rtx.v2", distribution="later-rtx")
    done = rtx("doctor", "--json")
    assert done.status == 1
    problems = json.loads(done.out)["problems"]
    (bad,) = [problem for problem in problems if problem.startswith("loss.bad of acme-rtx 1.2 ")]
    assert "acme_rtx_missing: ModuleNotFoundError" in bad
    assert "loss.newer of later-rtx 1.2 is for plugin API rtx.v2, this is rtx.v1" in problems


def test_a_replaced_part_is_a_note(rtx, mine):
    """That another part is taken than ours is worth knowing, but no problem."""
    done = rtx("doctor", "--json", "--plugin", mine)
    (note,) = json.loads(done.out)["notes"]
    assert done.status == 0
    assert note.startswith("optimizer.adamw is supplied by extra.py ")
    assert note.endswith("instead of rtx-transformers")


def test_entry_points_of_no_kind_are_problems(rtx, installed):
    """A misspelt kind, or a name without one, is named with its distribution; the rest is examined all the same."""
    installed("nokind.x", "lonely")
    done = rtx("doctor", "--json")
    assert done.status == 1
    problems = json.loads(done.out)["problems"]
    assert [problem.partition("; kinds are ")[0] for problem in problems] == [
        'entry point "nokind.x" of acme-rtx 1.2: nokind is no kind',
        'entry point "lonely" of acme-rtx 1.2: its name is not KIND.NAME',
    ]
