"""The console: what is said reaches the log whatever becomes of the terminal."""

import errno
import io
import sys

import pytest

from rtx_core.console import Console


class Full(io.StringIO):
    """A terminal whose device is full, or whose reader has gone, from the second text on."""

    def __init__(self, error):
        super().__init__()
        self.error, self.tries = error, 0

    def write(self, text):
        self.tries += 1
        if self.tries > 1:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), BrokenPipeError(errno.EPIPE, "Broken pipe")], ids=str
)
def test_a_terminal_that_cannot_be_written_ends_nothing(tmp_path, error):
    """It is said once in the log, which has everything; nothing more is tried on the terminal."""
    terminal = Full(error)
    with Console(terminal) as console:
        console.open_log(tmp_path / "log.txt")
        for text in ("one", "two", "three"):
            console.say(text)
    assert (terminal.getvalue(), terminal.tries) == ("one\n", 2)
    warning = f"warning: the terminal can't be written ({error.strerror}); from here on only this file has it"
    assert (tmp_path / "log.txt").read_text().splitlines() == ["one", warning, "two", "three"]


def test_a_failure_before_there_is_a_log_is_said_when_there_is_one(tmp_path):
    """The first messages come before the run's folder is known."""
    with Console(Full(OSError(errno.EIO, "Input/output error"))) as console:
        console.say("one")
        console.say("two")
        console.open_log(tmp_path / "log.txt")
    assert "can't be written (Input/output error)" in (tmp_path / "log.txt").read_text()


def test_a_failure_of_the_bar_is_one_of_the_terminal(tmp_path):
    """The progress bar draws through rich itself, and is silenced the same way."""
    with Console(Full(OSError(errno.ENOSPC, "No space left on device"))) as console:
        console.open_log(tmp_path / "log.txt")
        for _ in range(3):
            console.rich.print("bar")
    assert (tmp_path / "log.txt").read_text().count("can't be written") == 1


def test_without_stderr_a_console_is_quiet(tmp_path, monkeypatch):
    """Python has None for a stream that was closed before it started (``2>&-``)."""
    monkeypatch.setattr(sys, "stderr", None)
    with Console() as console:
        console.open_log(tmp_path / "log.txt")
        console.say("one")
        assert not console.terminal
    assert (tmp_path / "log.txt").read_text() == "one\n"


class Terminal(io.StringIO):
    """A stream that a person watches."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("seconds", "said"), [(1000.0, ""), (-1.0, "encoding …\n")])
def test_something_long_is_one_line_in_a_pipe(seconds, said, monkeypatch):
    """Once it takes long, and nothing where it doesn't."""
    monkeypatch.setattr("rtx_core.console._LONG_SECONDS", seconds)
    stream = io.StringIO()
    with Console(stream) as console, console.progress("encoding") as advance:
        for _ in range(3):
            advance(1000)
    assert stream.getvalue() == said


def test_something_long_grows_on_a_terminal(monkeypatch):
    """What it has come to is drawn, and gone at the end."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Console(stream) as console, console.progress("encoding: records") as advance:
        advance(1200)
        advance(34)
    drawn = stream.getvalue()
    assert "encoding: records 1,234" in drawn
    assert drawn.endswith("\x1b[2K")  # the line is cleared


def test_a_quiet_console_draws_nothing():
    """On a terminal either."""
    stream = Terminal()
    with Console(stream, quiet=True) as console, console.progress("encoding") as advance:
        advance(5)
    assert stream.getvalue() == ""
