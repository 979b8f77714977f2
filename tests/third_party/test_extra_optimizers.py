"""``docs/examples/rtx-extra-optimizers``: built, installed and tested like a stranger's package."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
EXTRA = ROOT / "docs" / "examples" / "rtx-extra-optimizers"

PIPELINE = """\
[task]
type = "sequence_classification"
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[data.eval]
files = ["train.jsonl"]
[tokenizer]
type = "wordpiece"
vocab_size = 60
[architecture]
type = "bert"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
max_position_embeddings = 16
[training]
duration = "20 epochs"
batch_size = 8
eval_every = "1 epoch"
threads = 1
[callbacks.checkpoint]
keep_last = 30
"""

NAMES = ["lion", "schedule_free_adamw"]


def samples():
    """The TOML samples of the package's README, by the optimizer that they are about."""
    blocks = re.findall(
        r"^```toml\n(.*?)^```", (EXTRA / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return {re.search(r'type = "(\w+)"', block)[1]: block for block in blocks}


@pytest.fixture(scope="module")
def site(pip_install):
    """The folder that pip installed the package into."""
    return pip_install(EXTRA)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """A working directory with a pipeline for each sample, on 32 rows whose first word tells the label."""
    folder = tmp_path_factory.mktemp("extra")
    for name, sample in samples().items():
        (folder / f"{name}.toml").write_text(PIPELINE + sample)
    rows = [{"text": f"{word} {i}", "label": word} for i in range(16) for word in ("red", "blue")]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def done(site, jobs, in_one_process):
    """Commands with the package installed."""
    commands = {"show": ["plugins", "show", "optimizer.schedule_free_adamw"]}
    for name in NAMES:
        rate = ["--set", "optimizer.lr=0.01"]
        commands[f"check {name}"] = ["check", f"{name}.toml"]
        commands[f"run {name}"] = ["run", f"{name}.toml", "--output", name, *rate, "--quiet"]
    commands["resume"] = ["verify-resume", f"{NAMES[1]}.toml", "--steps", "3", "--more", "3"]
    return in_one_process(commands, folder=jobs, path=site)


def pytest_in(folder, environment, *arguments):
    """Run pytest in a process of its own; what it said at the end."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout.splitlines()[-1]


def test_its_own_tests_pass(site, environment, tmp_path):
    """In a folder that has the tests and the settings alone, against the installed package."""
    shutil.copytree(EXTRA / "tests", tmp_path / "tests")
    shutil.copy(EXTRA / "pyproject.toml", tmp_path)
    assert re.fullmatch(r"\d+ passed in .*", pytest_in(tmp_path, environment(site)))


def test_it_keeps_the_contract_of_optimizers(site, environment):
    """The contract tests find its two optimizers by their entry points, and both pass all of them."""
    contract = ["tests/contract/test_optimizers.py", "-k", "lion or schedule_free_adamw"]
    passed = re.match(r"(\d+) passed", pytest_in(ROOT, environment(site), *contract))
    functions = (ROOT / "tests" / "contract" / "test_optimizers.py").read_text(encoding="utf-8").count("\ndef test_")
    assert int(passed[1]) >= len(NAMES) * functions


@pytest.mark.parametrize("name", NAMES)
def test_the_samples_of_its_readme_are_pipelines(done, name):
    """Each passes ``check`` with the package installed."""
    assert (done[f"check {name}"].status, done[f"check {name}"].err) == (0, "")


def test_it_is_shown_like_any_other(done):
    """``plugins show`` prints its fields and where it comes from."""
    assert done["show"].status == 0
    assert "rtx-extra-optimizers 0.1.0" in done["show"].out
    assert {"beta1", "beta2", "eps", "lr", "weight_decay"} <= set(re.findall(r"\w+", done["show"].out))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_learns_with_it(done, jobs, name):
    """Two words are told apart: the loss of the best evaluation is below a tenth of ln 2."""
    assert done[f"run {name}"].status == 0, done[f"run {name}"].err
    record = json.loads((jobs / name / "run.json").read_text())
    assert record["components"]["optimizer"]["distribution"] == "rtx-extra-optimizers"
    assert record["best"]["value"] < 0.0693


def test_a_resume_goes_on_to_the_same_bits(done):
    """A run of schedule_free_adamw that is killed and goes on equals one that is not, by the command that proves it."""
    assert done["resume"].status == 0, done["resume"].err


def test_the_average_is_kept_and_training_goes_on_beside_it(done, jobs):
    """Of schedule_free_adamw: the kept model is the average that was measured; the checkpoint has both."""
    assert done["run schedule_free_adamw"].status == 0
    folder = jobs / "schedule_free_adamw"
    step = json.loads((folder / "run.json").read_text())["kept"]["step"]
    checkpoint = folder / "checkpoints" / f"step-{step:08d}"
    kept, measured, trained = (
        load_file(file)
        for file in (
            folder / "model" / "model.safetensors",
            checkpoint / "evaluated.safetensors",
            checkpoint / "model.safetensors",
        )
    )
    assert all(torch.equal(tensor, measured[name]) for name, tensor in kept.items())
    assert not torch.equal(kept["classifier.weight"], trained["classifier.weight"])
