"""SIGINT and SIGTERM end a run after its current step, with a checkpoint; a second one ends it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from rtx_core.errors import RunInterruptedError

_HANDLED = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """While entered, remembers the first signal; after it the usual handlers are back, so a second one acts at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def exit_status(self) -> int:
        """128 plus the signal's number."""
        return 128 + (self.received or 0)

    def interrupt(self, step: int) -> NoReturn:
        """End the run after a step whose checkpoint is committed.

        :raises RunInterruptedError: always.
        """
        raise RunInterruptedError(
            f"interrupted after step {step}; a checkpoint is saved; the same command with --resume goes on",
            exit_status=self.exit_status,
        )

    def __enter__(self) -> Self:
        # Python allows handlers in the main thread only; elsewhere (a notebook's worker) signals keep their meaning.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _HANDLED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
