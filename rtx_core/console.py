"""What a run says to a person: rich text on a terminal, plain lines in a pipe, and all of it in ``log.txt``.

Messages go to stderr; results of commands go to stdout and are not this module's.
"""

from __future__ import annotations

import io
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

import rich.console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from rich.console import RenderableType

_PLAIN_WIDTH = 120
_LONG_SECONDS = 5.0


class _Outlet:
    """A stream that falls silent once it can't be written: a training is worth more than what it says."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        """Write it, or drop it."""
        if self.failure is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self.failure = error
        return len(text)

    def flush(self) -> None:
        """The same for what is still in the stream's buffer."""
        if self.failure is None:
            try:
                self._stream.flush()
            except OSError as error:
                self.failure = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Console:
    """Says each thing once on stderr and, while a log is open, writes the same as plain text there."""

    def __init__(self, stream: IO[str] | None = None, *, quiet: bool = False) -> None:
        """Speak on ``stream`` (stderr unless given); a quiet console only writes the log."""
        stream = stream if stream is not None else sys.stderr
        if stream is None:  # Python's way to say that stderr was closed before it started
            stream, quiet = io.StringIO(), True
        plain = not stream.isatty()
        self._outlet = _Outlet(stream)
        self._told_of_failure = False
        self.rich = rich.console.Console(
            file=cast("IO[str]", self._outlet),
            quiet=quiet,
            highlight=False,
            soft_wrap=plain,
            width=_PLAIN_WIDTH if plain else None,
        )
        self._log: rich.console.Console | None = None

    @property
    def terminal(self) -> bool:
        """Whether a person watches: progress bars and colours make sense."""
        return self.rich.is_terminal

    def open_log(self, path: Path) -> None:
        """Write everything that is said from now on to the end of this file too, and no longer to an earlier one."""
        self.close_log()
        self._log = rich.console.Console(
            file=path.open("a", encoding="utf-8"), width=_PLAIN_WIDTH, highlight=False, no_color=True, soft_wrap=True
        )

    def close_log(self) -> None:
        """Write no log any more."""
        self._tell_of_failure()
        if self._log is not None:
            self._log.file.close()
            self._log = None

    def say(self, message: RenderableType = "", *, style: str | None = None) -> None:
        """Say a line or anything that rich can draw. Square brackets in a string are text, not markup."""
        self.rich.print(message, style=style, markup=False)
        self._tell_of_failure()
        if self._log is not None:
            self._log.print(message, markup=False)
            self._log.file.flush()

    def _tell_of_failure(self) -> None:
        """Say in the log, once, that nobody hears what is said; the progress bar may have found out."""
        failure = self._outlet.failure
        if self._log is None or failure is None or self._told_of_failure:
            return
        self._told_of_failure = True
        reason = failure.strerror or failure
        self._log.print(
            f"warning: the terminal can't be written ({reason}); from here on only this file has it", markup=False
        )

    def warn(self, message: str) -> None:
        """Say what a person should look at."""
        self.say(f"warning: {message}", style="yellow")

    @contextmanager
    def progress(self, label: str) -> Iterator[Callable[[int], None]]:
        """Show how far something has come that may take long; what is given is called with how much more is done.

        A person sees it grow; elsewhere it is one line, once it does take long.
        """
        if self.terminal and not self.rich.quiet:
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed:,.0f}"), TimeElapsedColumn())
            with Progress(*columns, console=self.rich, transient=True) as bar:
                task = bar.add_task(label, total=None)
                yield lambda more: bar.advance(task, more)
            return
        since: float | None = time.monotonic()

        def advance(_more: int) -> None:
            nonlocal since
            if since is not None and time.monotonic() - since > _LONG_SECONDS:
                since = None
                self.say(f"{label} …")

        yield advance

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_log()
