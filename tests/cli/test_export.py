"""``export``: a run's model after any checkpoint, in a folder that transformers loads; the run stays as it is."""

from __future__ import annotations

import json
import shutil

import huggingface_hub
import pytest
import torch
import transformers
from safetensors.torch import load_file

from rtx_core import durable

TEXTS = ["red thing number 3", "blue one", "thing", "red blue red"]


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    """A copy of the small run, ``run``, in a working directory of its own."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "runs" / "colours", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def refused(rtx, run):
    """Export what must be refused: one line on stderr, which is returned, and nothing was written."""

    def line(*options, source="run", dest="new"):
        before = contents(run.parent)
        done = rtx("export", source, dest, *options)
        assert (done.status, done.out, done.err.count("\n")) == (2, "", 1), done.err
        assert contents(run.parent) == before
        return done.err.removesuffix("\n")

    return line


def contents(folder):
    """Every file below a folder, and when it was written."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def record_with(run, **entries):
    """Change run.json."""
    file = run / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def steps_of(run):
    return sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*"))


def saved(run, step, file="model"):
    return load_file(run / "checkpoints" / f"step-{step:08d}" / f"{file}.safetensors")


def assert_equal(one, other):
    """The same names, and the same bits under each."""
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one)


# --- which weights ----------------------------------------------------------------------------------------------------


def test_by_default_it_is_the_kept_model_to_the_bit(rtx, run):
    """Every file; nothing of the run is touched, and its checkpoints need not be there any more."""
    before = contents(run)
    assert rtx("export", "run", "new").status == 0
    assert contents(run) == before
    shutil.rmtree(run / "checkpoints")
    assert rtx("export", "run", "again").status == 0
    for dest in ("new", "again"):
        exported = {path.name: path.read_bytes() for path in (run.parent / dest).iterdir()}
        assert exported == {path.name: path.read_bytes() for path in (run / "model").iterdir()}


def test_a_run_may_be_named(rtx, trained, tmp_path, monkeypatch):
    """``run:colours`` is that of the working directory, and the result is said on stdout."""
    monkeypatch.chdir(trained)
    done = rtx("export", "run:colours", tmp_path / "new", "--json")
    step = json.loads((trained / "runs/colours/run.json").read_text())["kept"]["step"]
    tensors = load_file(tmp_path / "new" / "model.safetensors")
    assert json.loads(done.out) == {
        "folder": str(tmp_path / "new"),
        "step": step,
        "dtype": "float32",
        "tensors": len(tensors),
        "bytes": (tmp_path / "new" / "model.safetensors").stat().st_size,
    }
    assert done.err == ""


@pytest.mark.parametrize("which", ["best", "last", "step"])
def test_any_checkpoint_can_be_taken(rtx, run, which):
    """The weights are those of the checkpoint to the bit, and the card has that step's figures alone."""
    record = json.loads((run / "run.json").read_text())
    best, steps = record["best"]["step"], steps_of(run)
    assert len(steps) > 2
    step = {"best": best, "last": steps[-1], "step": steps[-2]}[which]
    assert rtx("export", "run", "new", "--checkpoint", step if which == "step" else which).status == 0
    assert_equal(load_file(run.parent / "new" / "model.safetensors"), saved(run, step))
    card = (run.parent / "new" / "README.md").read_text()
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    measured = {name: value for row in rows if row["step"] == step for name, value in row.items() if "eval/" in name}
    figures = card.partition("## Evaluation")[2].partition("##")[0]
    assert all(f"- `{name}`: {value:.6g}\n" in figures for name, value in measured.items())
    assert ("test/accuracy" in figures) == (step == best)
    assert f"weights after step {step} (" in card


def test_a_part_that_shows_other_weights_exports_those(rtx, run):
    """Where a checkpoint has the measured weights beside those of training, they are what comes out."""
    arguments = ("run", "colours.toml", "--output", "averaged", "--quiet", "--set", "callbacks.ema.decay=0.5")
    write_job(run)
    assert rtx(*arguments).status == 0
    assert rtx("export", "averaged", "new", "--checkpoint", "last").status == 0
    last = steps_of(run.parent / "averaged")[-1]
    assert_equal(load_file("new/model.safetensors"), saved(run.parent / "averaged", last, "evaluated"))


def write_job(run):
    """The pipeline of the run and its data in the working directory."""
    shutil.copy(run / "pipeline.toml", run.parent / "colours.toml")
    rows = [{"text": f"{word} thing {i}", "label": label} for i in range(15) for word, label in LABELS.items()]
    for name in ("train", "eval"):
        (run.parent / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


LABELS = {"red": "warm", "blue": "cold"}
STOPPING = '''
import attrs
from rtx_core import Callback, hookimpl
from rtx_core.cli import main

@attrs.frozen(kw_only=True)
class Stop(Callback):
    """Exports the run from inside it, then fails."""
    def on_step_end(self, run):
        if run.step == 5:
            assert main(["export", str(run.folder), "early", "--plugin", FILE]) == 0
        if run.step == 7:
            raise RuntimeError("enough")

@hookimpl
def callback():
    return {"stop": Stop}
'''


def test_a_run_that_goes_on_and_one_that_failed_have_a_model(rtx, run, tmp_path):
    """Trained up to a checkpoint, there is something to export: the best one so far, by the plugins of the run."""
    write_job(run)
    (tmp_path / "stop.py").write_text(STOPPING.replace("FILE", repr(str(tmp_path / "stop.py"))))
    done = rtx(
        *("run", "colours.toml", "--output", "broken", "--plugin", "stop.py", "--quiet"),
        *("--set", "callbacks.stop.enabled=true", "--set", "callbacks.checkpoint.every=2 steps"),
    )
    assert done.status == 1
    assert json.loads((tmp_path / "broken" / "run.json").read_text())["status"] == "failed"
    best = json.loads((tmp_path / "broken" / "run.json").read_text())["best"]["step"]
    assert "this run was started with --plugin stop.py" in rtx("export", "broken", "new").err
    assert rtx("export", "broken", "new", "--trust-run-plugins").status == 0
    assert_equal(load_file("new/model.safetensors"), saved(tmp_path / "broken", best))
    transformers.AutoModelForSequenceClassification.from_pretrained("early")


def test_thresholds_of_the_kept_model_are_not_those_of_another(rtx, run):
    """A tuned threshold was chosen for the kept weights, so the card of another checkpoint has none."""
    write_job(run)
    assert rtx("run", "colours.toml", "--output", "tuned", "--quiet", "--set", "task.threshold=tuned").status == 0
    assert rtx("export", "tuned", "kept").status == 0
    assert "is predicted above a probability of" in (run.parent / "kept" / "README.md").read_text()
    kept = json.loads((run.parent / "tuned" / "run.json").read_text())["kept"]["step"]
    other = next(step for step in steps_of(run.parent / "tuned") if step != kept)
    assert rtx("export", "tuned", "other", "--checkpoint", other).status == 0
    assert "is predicted above a probability of" not in (run.parent / "other" / "README.md").read_text()


# --- as what ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_torchs_rounding(rtx, run, dtype):
    """Each weight to the bit; config.json says it, so transformers opens it as that; the card says it too."""
    assert rtx("export", "run", "new", "--dtype", dtype).status == 0
    expected = {
        name: tensor.to(getattr(torch, dtype)) for name, tensor in load_file(run / "model/model.safetensors").items()
    }
    assert_equal(load_file("new/model.safetensors"), expected)
    model = transformers.AutoModelForSequenceClassification.from_pretrained("new")
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}
    assert f"its weights are rounded to {dtype}" in (run.parent / "new" / "README.md").read_text()


def test_a_weight_beyond_the_range_of_half_precision_is_refused(refused, run):
    """65504 is the largest of float16; bfloat16 goes as far as float32."""
    file = run / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors["classifier.bias"][0] = 1e5
    durable.write_tensors(file, tensors)
    assert refused("--dtype", "float16") == (
        "classifier.bias has values beyond the range of float16; bfloat16 has that of float32"
    )


def test_it_answers_as_predict_does(rtx, run):
    """A pipeline of transformers on the folder gives the label and the probability that ``predict`` gives."""
    assert rtx("export", "run", "new").status == 0
    options = [word for text in TEXTS for word in ("--text", text)]
    answers = [json.loads(line) for line in rtx("predict", "run", *options, "--scores").out.splitlines()]
    pipeline = transformers.pipeline("text-classification", "new", device="cpu")
    for theirs, ours in zip(pipeline(TEXTS), answers, strict=True):
        assert theirs["label"] == ours["prediction"]
        assert theirs["score"] == pytest.approx(ours["scores"][ours["prediction"]], abs=1e-5)


def test_the_next_run_starts_from_it(rtx, run):
    """As from the kept model: nothing is new or unused, also in half precision."""
    write_job(run)
    assert rtx("export", "run", "new", "--dtype", "bfloat16").status == 0
    text = (run.parent / "colours.toml").read_text().replace('[tokenizer]\ntype = "wordpiece"\nvocab_size = 100\n', "")
    (run.parent / "next.toml").write_text(text.replace("[architecture]\n", '[architecture]\nfrom_pretrained = "new"\n'))
    assert rtx("run", "next.toml", "--steps", 1, "--output", "next").status == 0
    assert "25 tensors from new, 0 new, 0 unused\n" in (run.parent / "next" / "log.txt").read_text()


# --- the card ---------------------------------------------------------------------------------------------------------


def test_the_card_says_what_the_run_was(rtx, run):
    """Data with size and fingerprint, how it was made, with what, its figures; no folder of this machine."""
    assert rtx("export", "run", "new").status == 0
    text = (run.parent / "new" / "README.md").read_text()
    card, record = huggingface_hub.ModelCard(text), json.loads((run / "run.json").read_text())
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["rtx"],
    }
    assert "| `training` | 50 | 50 | 300 |\n" in text
    assert f"- `train` (`train.jsonl`): sha256 {record['fingerprints']['train'][:16]}…\n" in text
    assert "a run of 10 epochs, 10 sequences a step\n" in text
    assert "optimizer `adamw`, peak rate 0.01; scheduler `linear`; loss `cross_entropy`; seed 0\n" in text
    assert f"torch {torch.__version__}" in text
    assert f"- `test/accuracy`: {record['test']['test/accuracy']:.6g}\n" in text
    assert "it knows these labels and no other: `cold`, `warm`\n" in text
    assert str(run.parent.parent) not in text


def test_the_cards_sample_runs(rtx, run, monkeypatch, capfd):
    """As it stands there, in the folder, it prints logits for two labels."""
    code = (run / "model" / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(run / "model")
    capfd.readouterr()
    exec(compile(code, "card", "exec"), {})  # noqa: S102 - the sample is what is tested
    assert capfd.readouterr().out.startswith("tensor([[")


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_refused(refused, rtx, run):
    """By its manifest; as the last one it is passed over with a warning, as in a resume."""
    last, before = steps_of(run)[-1], steps_of(run)[-2]
    file = run / "checkpoints" / f"step-{last:08d}" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    expected = f"the checkpoint step-{last:08d} is damaged: model.safetensors has another content than was written"
    assert refused("--checkpoint", last).startswith(expected)
    done = rtx("export", "run", "new", "--checkpoint", "last", "--json")
    assert json.loads(done.out)["step"] == before
    assert f"checkpoint step-{last:08d} is damaged and not used" in done.err


def test_a_checkpoint_that_is_not_there_is_refused(refused, run):
    """With the steps that there are, or what can be written."""
    there = ", ".join(map(str, steps_of(run)))
    assert refused("--checkpoint", "7") == f"{run} has no checkpoint of step 7; there are {there}"
    assert refused("--checkpoint", "-1") == '--checkpoint: expected best, last or a step, got "-1"'
    record_with(run, best=None)
    assert refused("--checkpoint", "best").startswith("--checkpoint best: nothing was evaluated, so none is the best")


def test_a_run_without_a_checkpoint_is_refused(refused, run):
    """It has not come that far; one that lost its checkpoints still has the model that it kept."""
    shutil.rmtree(run / "checkpoints")
    kept = f"{run} has no checkpoint (status: finished); leave --checkpoint out for the model that it kept"
    assert refused("--checkpoint", "last") == kept
    shutil.rmtree(run / "model")
    record_with(run, status="running")
    assert refused() == f"{run} has no checkpoint (status: running)"


def test_what_is_no_run_is_refused(refused, run):
    """A folder of another kind, and none at all."""
    (run.parent / "other").mkdir()
    assert refused(source="other") == "other is no run's folder: it has no run.json"
    assert refused(source="gone") == "gone: no such folder"


@pytest.mark.parametrize("dest", ["run/new", "run", ".", "full"])
def test_a_destination_that_is_there_is_refused(refused, run, dest):
    """Or that lies in the run."""
    (run.parent / "full").mkdir()
    (run.parent / "full" / "mine.txt").touch()
    reason = "lies in run, which is read only" if dest.startswith("run") else "is there already; name a new folder"
    assert refused(dest=dest).startswith(f"{dest}: {reason}")
    assert refused(dest="") == '"" is no folder; name a new one'


def test_a_broken_row_of_metrics_is_refused(refused, run):
    """The card's figures come from them; a last row that is still being written is none."""
    lines = len((run / "metrics.jsonl").read_bytes().splitlines())
    with (run / "metrics.jsonl").open("a") as rows:
        rows.write('{"step": 1, "lr"\n{"st')
    assert refused() == f"{run / 'metrics.jsonl'}:{lines + 1}: this line is no row of metrics; delete it"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "README.md"])
def test_a_full_disk_leaves_nothing(rtx, run, monkeypatch, name):
    """Whichever file it is that has no room: one line, and no folder."""

    def full(write):
        def stop(file, content):
            if file.name == name:
                raise OSError(28, "No space left on device")
            write(file, content)

        return stop

    for module, function in (("weights", "write_tensors"), ("weights", "write_file"), ("export", "write_file")):
        monkeypatch.setattr(f"rtx_core.{module}.{function}", full(getattr(durable, function)))
    done = rtx("export", "run", "new")
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert "No space left on device" in done.err
    assert [path.name for path in run.parent.iterdir()] == ["run"]
