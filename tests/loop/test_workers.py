"""Processes that prepare batches change no result, disturb nobody, and end with the run."""

import multiprocessing
import os
import signal
import subprocess
import warnings

import attrs
import pytest

from rtx_core import Callback, RtxError, hookimpl

# torch advises against more workers than cores; here they only have to be many.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

RECORDS = [{"text": " ".join("abcdef"[: i % 6 + 1])} for i in range(20)]
SETS = ["training.batch_size=4", "training.duration=8 steps", "task.mask_probability=0.5"]


@attrs.frozen(kw_only=True)
class SignalAll(Callback):
    """Sends a signal to the run and to each of its workers, as a terminal or a cluster does, after the third step."""

    number: int

    def on_step_end(self, run):
        if run.step == 3:
            everyone = [*(child.pid for child in multiprocessing.active_children()), os.getpid()]
            # From outside: torch's workers take a signal of their own parent for the usual end.
            subprocess.run(["kill", f"-{self.number}", *map(str, everyone)], check=True)


@pytest.fixture
def plugins(plugins):
    """The fixtures of the loop's tests and the callback above."""
    callbacks = plugins.callback()

    @hookimpl
    def callback():
        return {**callbacks, "signal_all": SignalAll}

    plugins.callback = callback
    return plugins


def results(outcome):
    """What a run leaves: its rows, but for the speed, and the bytes of its tensors."""
    rows = [{key: value for key, value in row.items() if key != "tokens_per_second"} for row in outcome.rows]
    last = outcome.folder / "checkpoints" / "step-00000008"
    return rows, {file.name: file.read_bytes() for file in last.glob("*.safetensors")}


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_no_bit(train, workers):
    """A run with workers equals one without: rows and checkpoint."""
    alone = results(train(RECORDS, task="masked_lm", sets=SETS))
    assert results(train(RECORDS, task="masked_lm", sets=[*SETS, f"training.workers={workers}"])) == alone


def test_a_fork_beside_threads_is_no_warning(train, monkeypatch):
    """Python 3.12 and later warn of one; here warnings are errors, and a worker waits for no thread."""
    forked = []
    fork = os.fork

    def as_in_python_3_12():
        forked.append(1)
        warnings.warn(
            f"This process (pid={os.getpid()}) is multi-threaded, use of fork() may lead to deadlocks in the child.",
            DeprecationWarning,
            stacklevel=2,
        )
        return fork()

    monkeypatch.setattr(os, "fork", as_in_python_3_12)
    train(RECORDS, task="masked_lm", sets=[*SETS, "training.workers=2"])
    assert len(forked) == 2


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_processes_still_ends_after_the_step(train, tmp_path, number, status):
    """Workers live until the checkpoint is there; the status is the signal's, and a resume equals a straight run."""
    sets = [*SETS, "training.workers=2"]
    extra = f"[callbacks.signal_all]\nnumber = {int(number)}\n"
    folder = tmp_path / "interrupted"
    with pytest.raises(RtxError, match="interrupted after step 3; a checkpoint is saved") as caught:
        train(RECORDS, task="masked_lm", sets=sets, extra=extra, output=folder)
    assert caught.value.exit_status == status
    assert multiprocessing.active_children() == []
    resumed = results(train(RECORDS, task="masked_lm", sets=sets, extra=extra, output=folder, resume=True))
    straight = results(train(RECORDS, task="masked_lm", sets=SETS))
    assert resumed == straight
