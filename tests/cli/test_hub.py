"""``hub:`` sources: from a prepared cache without a network, and from a server here that answers as the hub does."""

from __future__ import annotations

import errno
import hashlib
import http.server
import json
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
import tomli
import torch
import transformers
from huggingface_hub import constants
from safetensors.torch import load_file

from rtx_core import Pipeline
from rtx_core.cli import main

FINE_TUNING = """\
[task]
type = "sequence_classification"
max_length = 16
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[architecture]
from_pretrained = "hub:acme/tiny-bert"
[optimizer]
lr = 1e-3
[training]
duration = "4 steps"
batch_size = 4
threads = 1
[callbacks.checkpoint]
every = "2 steps"
"""
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "thing", "number", *map(str, range(30)))
AT = "job.toml:9:19: architecture.from_pretrained: "


def bert(folder, *, seed=0, hidden_size=16, shard="1GB"):
    """A BERT as transformers saves it."""
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=hidden_size,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    transformers.BertModel(config).save_pretrained(folder, max_shard_size=shard)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    transformers.BertTokenizer(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a BERT; read it, don't change it."""
    return bert(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A working directory with a pipeline that starts from a model of the hub."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(trained / "train.jsonl", tmp_path)
    (tmp_path / "job.toml").write_text(FINE_TUNING)
    return tmp_path


def resolved(run):
    return tomli.loads((run / "resolved.toml").read_text(encoding="utf-8"))


def record(run):
    return json.loads((run / "run.json").read_text(encoding="utf-8"))


# --- a prepared cache, and no network ---------------------------------------------------------------------------------

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


def test_check_looks_into_the_cache(rtx, place, model, hub_cache):
    """What is there is checked as in a folder: nothing is noted, and a mistake against config.json is found."""
    hub_cache("acme/tiny-bert", model, commit=COMMIT)
    done = rtx("check", "job.toml")
    assert (done.status, done.out, done.err) == (0, "job.toml: ok\n", "")
    done = rtx("check", "job.toml", "--set", "task.max_length=17")
    assert done.status == 2
    assert "17 tokens are more than the architecture's 16 positions" in done.err


def test_a_run_from_the_cache_is_one_from_the_folder(rtx, place, model, hub_cache):
    """Same bits as from the folder; header, resolved.toml and run.json name the commit."""
    hub_cache("acme/tiny-bert", model, commit=COMMIT)
    assert rtx("run", "job.toml", "--output", "hub").status == 0
    folder = ("--set", f"architecture.from_pretrained={model}")
    assert rtx("run", "job.toml", "--output", "folder", *folder).status == 0
    weights = [(place / run / "model" / "model.safetensors").read_bytes() for run in ("hub", "folder")]
    assert weights[0] == weights[1]
    pinned = f"hub:acme/tiny-bert@{COMMIT}"
    assert f" tensors from {pinned}, " in (place / "hub" / "log.txt").read_text(encoding="utf-8")
    assert resolved(place / "hub")["architecture"]["from_pretrained"] == pinned
    assert resolved(place / "hub")["tokenizer"]["path"] == pinned
    assert record(place / "hub")["commits"] == {"hub:acme/tiny-bert": COMMIT}
    assert record(place / "folder")["commits"] == {}


def test_a_branch_is_taken_where_it_is_written(rtx, place, model, hub_cache, tmp_path):
    """``@REVISION`` names a branch, a tag or a commit; each is found in the cache."""
    other = bert(tmp_path / "other", hidden_size=8)
    hub_cache("acme/tiny-bert", model, commit="1" * 40)
    hub_cache("acme/tiny-bert", other, commit="2" * 40, branch="small")
    for revision, size in (("", 16), ("@small", 8), ("@" + "2" * 40, 8), ("@main", 16)):
        done = rtx("plan", "job.toml", "--json", "--set", f"architecture.from_pretrained=hub:acme/tiny-bert{revision}")
        settings = {entry["key"]: entry["value"] for entry in json.loads(done.out)["settings"]}
        assert settings["architecture.hidden_size"] == size


def test_what_is_not_in_the_cache_is_a_note(rtx, place):
    """``check`` looks at all the rest: it passes, or names another mistake alone; ``--data`` has no tokenizer yet."""
    note = "hub:acme/tiny-bert is not in the cache yet; config, tokenizer and weights are looked at when it runs"
    done = rtx("check", "job.toml")
    assert (done.status, done.out, done.err) == (0, "job.toml: ok\n", f"note: {note}\n")
    done = rtx("check", "job.toml", "--json")
    assert json.loads(done.out) == {"ok": True, "problems": [], "notes": [note]}
    for setting in ("task.max_length=600", "architecture.type=bert"):  # no size of a default is held against it
        assert rtx("check", "job.toml", "--set", setting).status == 0
    done = rtx("check", "job.toml", "--set", "optimizer.momentun=0.9")
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "optimizer.momentun: unknown key" in done.err
    done = rtx("check", "job.toml", "--set", "architecture.type=bert", "--set", "architecture.hidden_sise=8")
    assert done.status == 2
    assert "architecture.hidden_sise: unknown key" in done.err
    done = rtx("check", "job.toml", "--data")
    assert (done.status, done.err) == (
        2,
        f"--data: {note}; rtx plan fetches config and tokenizer, and reads the data too\n",
    )


def test_weights_that_are_not_in_the_cache_are_a_note(rtx, place, model, hub_cache):
    """Config and tokenizer are enough for check and plan; without a network the run is refused and leaves nothing."""
    snapshot = hub_cache("acme/tiny-bert", model, commit=COMMIT)
    (snapshot / "model.safetensors").unlink()
    pinned = f"hub:acme/tiny-bert@{COMMIT}"
    done = rtx("check", "job.toml", "--data")
    assert done.status == 0
    assert f"note: the weights of {pinned} are not in the cache yet; they are fetched when it runs\n" in done.err
    assert rtx("plan", "job.toml").status == 0
    done = rtx("run", "job.toml", "--quiet")
    assert done.status == 2
    assert re.fullmatch(
        rf"{pinned} is not in the cache .*, or not all of it, and HF_HUB_OFFLINE is set; .*\n", done.err
    )
    assert not (place / "runs").exists()


def test_an_incomplete_config_is_a_note(rtx, place, model, hub_cache):
    """A cache that has only the tokenizer says nothing about the model."""
    snapshot = hub_cache("acme/tiny-bert", model, commit=COMMIT)
    (snapshot / "config.json").unlink()
    done = rtx("check", "job.toml")
    assert done.status == 0
    assert f"note: the config.json of hub:acme/tiny-bert@{COMMIT} is not in the cache yet; " in done.err


def test_pickled_weights_in_the_cache_are_refused(rtx, place, model, hub_cache):
    """Without a network they are all there is; the line names the command that converts them."""
    snapshot = hub_cache("acme/tiny-bert", model, commit=COMMIT)
    (snapshot / "model.safetensors").rename(snapshot / "pytorch_model.bin")
    done = rtx("run", "job.toml", "--quiet")
    assert done.status == 2
    assert f"hub:acme/tiny-bert@{COMMIT} has only pytorch_model.bin, " in done.err
    assert f"python -m rtx_core convert {snapshot} NEW" in done.err


def test_the_load_guard_is_that_of_a_folder(rtx, place, model, hub_cache, tmp_path):
    """A layer that the repository lacks is refused by its names."""
    hub_cache("acme/tiny-bert", model)
    done = rtx("run", "job.toml", "--quiet", "--set", "architecture.num_hidden_layers=2")
    assert done.status == 2
    assert "16 of the model's tensors are not in " in done.err
    assert not (place / "runs").exists()


@pytest.mark.parametrize("name", ["acme/tiny bert", "acme/tiny/bert", "../bert", "acme/tiny--bert"])
def test_a_name_that_is_none_is_one_line(rtx, place, name):
    """What can't be a repository is refused without asking for it."""
    done = rtx("check", "job.toml", "--set", f"architecture.from_pretrained=hub:{name}")
    assert done.status == 2
    assert done.err.startswith(f"--set: architecture.from_pretrained: hub:{name}")
    assert done.err.count("\n") == 1


def test_an_empty_revision_is_refused(rtx, place):
    """``hub:org/name@`` looks like a pin and would be none."""
    done = rtx("check", "job.toml", "--set", "architecture.from_pretrained=hub:acme/tiny-bert@")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert 'expected "hub:ORG/NAME" or "hub:ORG/NAME@REVISION", got "hub:acme/tiny-bert@"' in done.err


def test_nothing_of_the_hub_is_imported_where_none_is_named(imported, place, model):
    """Help and check start without the library; check of a ``hub:`` source imports no torch."""
    for arguments in (("--help",), ("check", "job.toml", "--set", f"architecture.from_pretrained={model}")):
        status, modules = imported(*arguments, folder=place)
        assert status == 0
        assert "huggingface_hub" not in modules
    status, modules = imported("check", "job.toml", folder=place)
    assert status == 0
    assert "torch" not in modules


# --- a server that answers as the hub ---------------------------------------------------------------------------------


@attrs.define
class Repository:
    """What the server has of one name."""

    branches: dict = attrs.field(factory=dict)
    commits: dict = attrs.field(factory=dict)
    gated: bool = False

    def push(self, folder, branch="main", without=(), more=()):
        files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name not in without} | dict(more)
        digest = hashlib.sha1(usedforsecurity=False)
        for name, content in sorted(files.items()):
            digest.update(name.encode() + content)
        commit = digest.hexdigest()
        self.branches[branch], self.commits[commit] = commit, files
        return commit


class Server(http.server.ThreadingHTTPServer):
    """Repositories, every request, and what goes wrong."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories, self.requests, self.broken, self.status = {}, [], None, None

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def fetched(self):
        """The names of the files whose content was asked for."""
        return {path.rpartition("/")[2] for method, path in self.requests if method == "GET" and "/resolve/" in path}


class Handler(http.server.BaseHTTPRequestHandler):
    """``/api/models/…`` and ``/ORG/NAME/resolve/…``."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.requests.append((self.command, self.path))
        self.answer(*self.found(self.path.partition("?")[0]))

    def found(self, path):
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+?)(?:/(revision|tree)/([^/]+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        found = api or file
        if found is None or self.server.status is not None:
            return self.server.status or 404, {}
        repository = self.server.repositories.get(found[1])
        if repository is None:
            return 401, {"X-Error-Code": "RepoNotFound"}
        revision = (api[3] if api else file[2]) or "main"
        commit = repository.branches.get(revision, revision)
        files = repository.commits.get(commit)
        if files is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}
        return self.listing(api, commit, files) if api else self.file(repository, commit, file[3])

    def listing(self, api, commit, files):
        entries = [{"type": "file", "path": path, "size": len(files[path]), "oid": "0" * 40} for path in files]
        info = {"id": api[1], "sha": commit, "siblings": [{"rfilename": path} for path in files]}
        content = json.dumps(entries if api[2] == "tree" else info).encode()
        return 200, {"Content-Type": "application/json"}, content

    def file(self, repository, commit, name):
        if repository.gated:
            return 403, {"X-Error-Code": "GatedRepo"}
        content = repository.commits[commit].get(name)
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        return 200, headers, content, len(content) // 2 if name == self.server.broken else None

    def answer(self, status, headers, content=b"", end=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:end])

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch, hub_cache):
    """The server, in place of the hub, and an empty cache."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
    template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def tiny(hub, model):
    """The repository ``acme/tiny-bert`` with one commit, beside the weights a pickled copy of them and code."""
    repository = hub.repositories["acme/tiny-bert"] = Repository()
    repository.push(model, more={"pytorch_model.bin": b"pickled", "modeling.py": b"import os", "tf_model.h5": b"h5"})
    return repository


@pytest.fixture
def offline(monkeypatch):
    """Go offline, as by ``HF_HUB_OFFLINE=1``."""

    def go():
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    return go


def test_plan_fetches_no_weights_and_run_nothing_else(rtx, place, hub, tiny):
    """Config and tokenizer for the one, the weights for the other, each once; never pickled weights or code."""
    assert rtx("check", "job.toml").status == 0
    assert hub.requests == []
    assert rtx("plan", "job.toml").status == 0
    assert hub.fetched == {"config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    hub.requests.clear()
    done = rtx("run", "job.toml")
    assert done.status == 0
    assert hub.fetched == {"model.safetensors"}
    commit = tiny.branches["main"]
    assert done.err.startswith(f"fetching the weights of hub:acme/tiny-bert@{commit}\n")
    assert "%" not in done.err.partition("run ")[0]  # no progress bar where nobody watches
    assert record(place / "runs" / "job")["commits"] == {"hub:acme/tiny-bert": commit}
    hub.requests.clear()
    assert rtx("run", "job.toml", "--new").status == 0
    assert hub.fetched == set()


def test_a_whole_commit_asks_for_nothing_twice(rtx, place, hub, tiny):
    """What is pinned in the file and in the cache needs no network at all."""
    pinned = ("--set", f"architecture.from_pretrained=hub:acme/tiny-bert@{tiny.branches['main']}")
    assert rtx("run", "job.toml", "--output", "a", *pinned).status == 0
    hub.requests.clear()
    assert rtx("run", "job.toml", "--output", "b", *pinned).status == 0
    assert hub.requests == []


def test_transformers_shares_the_cache(rtx, place, hub, tiny, offline):
    """What a run has fetched is found by transformers without a network."""
    assert rtx("run", "job.toml").status == 0
    offline()
    theirs = transformers.AutoModel.from_pretrained("acme/tiny-bert")
    assert theirs.config.hidden_size == 16


@pytest.mark.parametrize("network", [True, False])
def test_a_resumed_run_keeps_its_commit(rtx, place, hub, tiny, offline, tmp_path, network):
    """Also where the branch has moved on since, and where there is no network; the bits are those of a straight run."""
    first = tiny.branches["main"]
    assert rtx("run", "job.toml", "--output", "straight").status == 0
    assert rtx("run", "job.toml", "--output", "cut", "--steps", "2").status == 0
    second = tiny.push(bert(tmp_path / "newer", seed=1))
    if not network:
        offline()
    hub.requests.clear()
    assert rtx("run", "job.toml", "--output", "cut", "--resume").status == 0
    assert hub.requests == []
    assert record(place / "cut")["commits"] == {"hub:acme/tiny-bert": first}
    weights = [(place / run / "model" / "model.safetensors").read_bytes() for run in ("straight", "cut")]
    assert weights[0] == weights[1]
    assert rtx("run", "job.toml", "--output", "later").status == 0
    assert record(place / "later")["commits"] == {"hub:acme/tiny-bert": second if network else first}


def test_a_resumed_run_fetches_its_commit_again(rtx, place, hub, tiny, tmp_path):
    """With the cache gone, the recorded commit is fetched, not where the branch is now."""
    first = tiny.branches["main"]
    assert rtx("run", "job.toml", "--steps", "2", "--output", "cut").status == 0
    tiny.push(bert(tmp_path / "newer", seed=1))
    shutil.rmtree(constants.HF_HUB_CACHE)
    assert rtx("run", "job.toml", "--output", "cut", "--resume").status == 0
    assert record(place / "cut")["commits"] == {"hub:acme/tiny-bert": first}


def test_python_keeps_the_commit_too(place, hub, tiny, tmp_path):
    """``Pipeline.run(resume=True)`` reads the file again for the commit that the run started from."""
    Pipeline.load("job.toml").run(output=place / "cut", steps=2, quiet=True)
    tiny.push(bert(tmp_path / "newer", hidden_size=8))
    pipeline = Pipeline.load("job.toml")
    assert pipeline.settings.architecture.hidden_size == 8
    run = pipeline.run(output=place / "cut", resume=True, quiet=True)
    assert record(run.path)["status"] == "finished"
    assert load_file(run.model / "model.safetensors")["bert.pooler.dense.weight"].shape == (16, 16)


def test_a_series_has_one_commit(rtx, place, hub, tiny, tmp_path):
    """All its runs start from the same one; resumed, the missing run takes that of the others."""
    first = tiny.branches["main"]
    assert rtx("run", "job.toml", "--seeds", "2", "--quiet").status == 0
    tiny.push(bert(tmp_path / "newer", seed=1))
    runs = sorted(place.glob("runs/job-seed-*"))
    shutil.rmtree(runs[1])
    assert rtx("run", "job.toml", "--seeds", "2", "--quiet", "--resume").status == 0
    assert [record(run)["commits"] for run in runs] == [{"hub:acme/tiny-bert": first}] * 2


def test_a_finished_run_needs_the_hub_no_more(rtx, place, hub, tiny, offline):
    """Without cache and network its model answers, and is measured."""
    evaluated = ("--set", 'data.eval.files=["train.jsonl"]')
    assert rtx("run", "job.toml", "--quiet", *evaluated).status == 0
    shutil.rmtree(constants.HF_HUB_CACHE)
    offline()
    assert rtx("predict", "runs/job", "--text", "red thing").status == 0
    assert rtx("evaluate", "runs/job").status == 0


def test_shards_are_fetched_by_their_index(rtx, place, hub, tmp_path):
    """The index, then each file that it names, and the same model as from the folder."""
    folder = bert(tmp_path / "sharded", shard="4KB")
    shards = {file.name for file in folder.glob("*.safetensors")}
    assert len(shards) > 1
    hub.repositories["acme/tiny-bert"] = repository = Repository()
    repository.push(folder)
    assert rtx("run", "job.toml", "--output", "hub").status == 0
    assert {name for name in hub.fetched if "safetensors" in name} == shards | {"model.safetensors.index.json"}
    assert rtx("run", "job.toml", "--output", "folder", "--set", f"architecture.from_pretrained={folder}").status == 0
    weights = [(place / run / "model" / "model.safetensors").read_bytes() for run in ("hub", "folder")]
    assert weights[0] == weights[1]


def test_a_damaged_index_is_named(rtx, place, hub, model):
    """What was fetched is at fault, not the network."""
    hub.repositories["acme/tiny-bert"] = repository = Repository()
    repository.push(model, without=("model.safetensors",), more={"model.safetensors.index.json": b"{}"})
    message = '/model.safetensors.index.json: "weight_map" must give each tensor the name of a file beside it'
    assert refused(rtx, place).endswith(message)


def test_a_tokenizer_alone(rtx, place, hub, model):
    """``[tokenizer] path`` takes a ``hub:`` source whose repository has no config and no weights."""
    hub.repositories["acme/words"] = repository = Repository()
    commit = repository.push(model, without=("config.json", "model.safetensors"))
    text = FINE_TUNING.replace('from_pretrained = "hub:acme/tiny-bert"', 'type = "bert"\npreset = "tiny"')
    (place / "job.toml").write_text(text + '[tokenizer]\ntype = "pretrained"\npath = "hub:acme/words"\n')
    assert rtx("check", "job.toml").status == 0
    assert rtx("run", "job.toml").status == 0
    assert record(place / "runs" / "job")["commits"] == {"hub:acme/words": commit}


def test_without_a_network_the_cache_is_taken_and_said(rtx, place, hub, tiny, monkeypatch):
    """A run that was possible yesterday is possible on the train; it says which commit it took, and why."""
    assert rtx("run", "job.toml", "--quiet").status == 0
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    done = rtx("run", "job.toml", "--new")
    assert done.status == 0
    note = r"note: hub:acme/tiny-bert@main can't be had: http://127\.0\.0\.1:9 can't be reached, or broke off: .*; "
    assert re.match(rf"{note}the commit {tiny.branches['main']} in the cache is taken\n", done.err)


# --- what goes wrong --------------------------------------------------------------------------------------------------


def refused(rtx, place, *sets):
    """The one line of a run that left nothing, without ``hub:…`` in front of what the hub said."""
    done = rtx("run", "job.toml", "--quiet", *(word for text in sets for word in ("--set", text)))
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert not (place / "runs").exists()
    return done.err.removesuffix("\n")


def test_no_such_repository(rtx, place, hub):
    """A name that nobody has, and one that is private, are the same to the hub."""
    line = refused(rtx, place)
    assert line == (
        f"{AT}hub:acme/tiny-bert@main is not at {hub.endpoint}: no model has this name, or a private one has; "
        "for that hf auth login, or set HF_TOKEN"
    )


def test_a_gated_repository(rtx, place, hub, tiny):
    """What is listed but not given names the page on which to ask."""
    tiny.gated = True
    assert refused(rtx, place) == (
        f"{AT}hub:acme/tiny-bert@main is gated: ask for access at {hub.endpoint}/acme/tiny-bert, "
        "then hf auth login, or set HF_TOKEN"
    )


@pytest.mark.parametrize("revision", ["v9", "0123abc"])
def test_no_such_revision(rtx, place, hub, tiny, revision):
    """A misspelt branch, and a commit that was cut short."""
    line = refused(rtx, place, f"architecture.from_pretrained=hub:acme/tiny-bert@{revision}")
    more = "; a commit is named by all of its 40 digits" if revision == "0123abc" else ""
    message = f'hub:acme/tiny-bert@{revision} has no branch, tag or commit "{revision}"{more}'
    assert line == f"--set: architecture.from_pretrained: {message}"


def test_offline_and_not_in_the_cache(rtx, place, hub, tiny, offline):
    """The line says where was looked and what forbids to look elsewhere."""
    offline()
    cache = constants.HF_HUB_CACHE
    assert refused(rtx, place) == (
        f"{AT}hub:acme/tiny-bert@main is not in the cache {cache}, or not all of it, and HF_HUB_OFFLINE is set; "
        "start once without that, or name a folder"
    )
    assert hub.requests == []


def test_no_network(rtx, place, hub, tiny, monkeypatch):
    """Nobody answers."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert refused(rtx, place).startswith(
        f"{AT}hub:acme/tiny-bert@main can't be had: http://127.0.0.1:9 can't be reached, or broke off: "
    )


@pytest.mark.parametrize(("status", "more"), [(503, ""), (403, "; hf auth login, or set HF_TOKEN")])
def test_the_hub_answers_with_an_error(rtx, place, hub, tiny, status, more):
    """One of its own, or of what the token may do."""
    hub.status = status
    message = f"hub:acme/tiny-bert@main can't be had: {hub.endpoint} answered with status {status}{more}"
    assert refused(rtx, place) == AT + message


@pytest.fixture
def impatient(monkeypatch):
    """Let the library's further attempts follow at once."""
    monkeypatch.setattr("huggingface_hub.file_download.time", SimpleNamespace(sleep=lambda _: None))


@pytest.mark.parametrize("broken", ["model.safetensors", "tokenizer.json"])
def test_a_connection_that_breaks_leaves_nothing_to_use(rtx, place, hub, tiny, model, impatient, broken):
    """Half a file is never taken for the file, neither by this start nor by the next."""
    hub.broken = broken
    assert " can't be reached, or broke off: " in refused(rtx, place)
    cache = Path(constants.HF_HUB_CACHE)
    assert not list(cache.glob(f"models--*/snapshots/*/{broken}"))
    hub.broken = None
    assert rtx("run", "job.toml", "--quiet").status == 0
    (fetched,) = cache.glob(f"models--*/snapshots/*/{broken}")
    assert fetched.read_bytes() == (model / broken).read_bytes()


def test_a_break_leaves_no_vocabulary_without_its_settings(rtx, place, hub, tiny, impatient, offline):
    """A tokenizer of which some files are missing is not taken offline: it could cut texts in another way."""
    hub.broken = "tokenizer_config.json"
    refused(rtx, place)
    offline()
    refused(rtx, place)


def test_a_full_disk(rtx, place, hub, tiny, monkeypatch):
    """The line names the cache, and how to have another."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", full)
    assert refused(rtx, place) == (
        f"{AT}hub:acme/tiny-bert@main can't be put into the cache {constants.HF_HUB_CACHE}: No space left on device; "
        "HF_HOME names another place"
    )


CONTENTS = {
    "only pickled weights": (
        ("model.safetensors",),
        {"pytorch_model.bin": b"pickled"},
        (
            "has only pytorch_model.bin, whose format can run code when it is read; fetch it by hf download "
            "acme/tiny-bert, then python -m rtx_core convert FOLDER NEW makes a folder with model.safetensors of it"
        ),
    ),
    "no weights": (("model.safetensors",), {}, "has no model.safetensors"),
    "no config": (("config.json",), {}, "has no config.json"),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_a_repository_without_what_is_needed(rtx, place, hub, model, case):
    """It is refused by what is listed, before any weights are fetched."""
    without, more, message = CONTENTS[case]
    hub.repositories["acme/tiny-bert"] = repository = Repository()
    commit = repository.push(model, without=without, more=more)
    pinned = f"hub:acme/tiny-bert@{commit}"
    assert refused(rtx, place) == f"{AT}{pinned} {message}"
    if case != "no config":  # now that the rest is in the cache, the weights are missed when they are fetched
        assert refused(rtx, place, f"architecture.from_pretrained={pinned}") == f"{pinned} {message}"
    assert not {name for name in hub.fetched if name.endswith((".bin", ".safetensors"))}


def test_a_repository_without_tokenizer(rtx, place, hub, model):
    """It is named with its commit, and nothing is left."""
    hub.repositories["acme/tiny-bert"] = repository = Repository()
    commit = repository.push(model, without=("vocab.txt", "tokenizer.json"))
    line = refused(rtx, place)
    assert line.startswith(f'tokenizer.path: no tokenizer in "hub:acme/tiny-bert@{commit}": expected tokenizer.json')


def test_in_a_fresh_process(shell, place, hub, tiny):
    """By the environment's variables alone, and with nothing on stderr that rtx doesn't say itself."""
    done = shell("run", "job.toml", folder=place)
    assert done.status == 0
    said = done.err.splitlines()
    assert said[0] == f"fetching the weights of hub:acme/tiny-bert@{tiny.branches['main']}"
    assert said[1].endswith("/tokenizer.json was read, not vocab.txt beside it")
    assert said[2].startswith("run ")
    assert not [path for _, path in hub.requests if not path.startswith(("/api/models/acme/", "/acme/tiny-bert/"))]
    assert done.err.count("warning") == 0


def test_an_interrupted_run_is_no_mistake_of_the_file(place, hub, tiny, monkeypatch):
    """Ctrl-C while it fetches ends with 130 and leaves no folder."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("huggingface_hub.file_download.http_get", interrupted)
    assert main(["run", "job.toml", "--quiet"]) == 130
    assert not (place / "runs").exists()
