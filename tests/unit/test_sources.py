"""Folders behind sources, as far as they are on this machine."""

from __future__ import annotations

import json
import re

import pytest

from rtx_core import InputError, Source
from rtx_core.folder import commits_of
from rtx_core.sources import Hub, cache_folder, folder_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def model(tmp_path):
    """A folder with the names of a model's files."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


def test_folders_and_runs(tmp_path):
    """A folder is itself, ``run:`` the kept model of that run; what isn't there is named."""
    model = tmp_path / "runs" / "legal" / "model"
    model.mkdir(parents=True)
    assert folder_of(Source("folder", str(model)), tmp_path) == model
    assert folder_of(Source("run", "legal"), tmp_path) == model
    with pytest.raises(InputError, match=r"there is no folder .*gone"):
        folder_of(Source("folder", str(tmp_path / "gone")), tmp_path)
    with pytest.raises(InputError, match=r'run "other" has kept no model here: there is no folder .*runs/other/model'):
        folder_of(Source("run", "other"), tmp_path)


def test_a_snapshot_of_the_hub(model, tmp_path, hub_cache):
    """A branch, none, and the commit lead to the same folder of the cache; a relative name is not looked for here."""
    snapshot = hub_cache("org/name", model, commit=COMMIT)
    for revision in (None, "main", COMMIT):
        assert folder_of(Source("hub", "org/name", revision), tmp_path) == snapshot
    assert (snapshot / "config.json").read_text() == "{}"
    with pytest.raises(
        InputError, match=f"hub:org/name@v1 is not in the cache {cache_folder()}; run and plan fetch it"
    ):
        folder_of(Source("hub", "org/name", "v1"), tmp_path)


def test_a_source_is_pinned_once(model, hub_cache):
    """Asked again it has the same commit, though the branch has moved on; another Hub finds where it is now."""
    hub_cache("org/name", model, commit="1" * 40)
    hub, source = Hub(), Source("hub", "org/name")
    assert hub.pinned(source) == Source("hub", "org/name", "1" * 40)
    hub_cache("org/name", model, commit="2" * 40)
    assert hub.pinned(source) == Source("hub", "org/name", "1" * 40)
    assert hub.commits == {"hub:org/name": "1" * 40}
    assert Hub().pinned(source) == Source("hub", "org/name", "2" * 40)


def test_recorded_commits_go_first(model, hub_cache):
    """What a run has started from is taken again; a source that it doesn't know is looked for as ever."""
    hub_cache("org/name", model, commit="1" * 40, branch="old")
    hub_cache("org/name", model, commit="2" * 40)
    hub_cache("org/name", model, commit="3" * 40, branch="v1")
    hub = Hub(commits={"hub:org/name": "1" * 40})
    assert hub.pinned(Source("hub", "org/name")) == Source("hub", "org/name", "1" * 40)
    assert hub.pinned(Source("hub", "org/name", "v1")) == Source("hub", "org/name", "3" * 40)


def test_what_is_not_there_is_none(hub_cache):
    """Without the network nothing is an error yet."""
    assert Hub().pinned(Source("hub", "org/name")) is None


def test_offline_it_is_an_error_for_who_needs_it(hub_cache):
    """With ``HF_HUB_OFFLINE``, as in all of these tests, the line says so."""
    message = f"hub:org/name@main is not in the cache {cache_folder()}, or not all of it, and HF_HUB_OFFLINE is set; "
    with pytest.raises(InputError, match=re.escape(message)):
        Hub(network=True).pinned(Source("hub", "org/name"))


# --- what a run has recorded ------------------------------------------------------------------------------------------


def recorded(folder, **entries):
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(entries))


def test_the_commits_of_a_run(tmp_path):
    """Those of its run.json; none where it records none, or where there is no run."""
    commits = {"hub:org/name": COMMIT}
    recorded(tmp_path / "a", commits=commits)
    recorded(tmp_path / "b")
    assert [commits_of(tmp_path / name) for name in ("a", "b", "c")] == [commits, {}, {}]


def test_the_commits_of_a_series(tmp_path):
    """Those of the first of its runs that has some; a run of the name itself goes first."""
    recorded(tmp_path / "a-seed-1")
    recorded(tmp_path / "a-seed-2", commits={"hub:org/name": COMMIT})
    recorded(tmp_path / "a-smoke", commits={"hub:org/name": "1" * 40})
    assert commits_of(tmp_path / "a") == {"hub:org/name": COMMIT}
    recorded(tmp_path / "a")
    assert commits_of(tmp_path / "a") == {}


@pytest.mark.parametrize("commits", [["a"], {"hub:org/name": 1}])
def test_a_damaged_record_is_named(tmp_path, commits):
    """What rtx did not write is no commit."""
    recorded(tmp_path / "a", commits=commits)
    with pytest.raises(InputError, match=r"a/run\.json: commits: expected a text for each source, got "):
        commits_of(tmp_path / "a")
