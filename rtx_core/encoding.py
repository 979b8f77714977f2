"""Records → samples, some at a time, with what is worth keeping beside them."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from rtx_core.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import tokenizers

    from rtx_core.components import TaskPart
    from rtx_core.console import Console
    from rtx_core.lint import Surveyor
    from rtx_core.samples import Record, Sample

T = TypeVar("T")

_AT_ONCE = 1000
_PATIENCE_SECONDS = 0.1
_AHEAD = 2
_LARGE = 1_000_000


@attrs.define(eq=False)
class SetEncoding:
    """The samples of one set: training, an evaluation set, or the test set."""

    task: TaskPart
    sources: Sequence[Iterable[Record]]
    name: str
    """What the set is called in messages."""
    console: Console
    surveyor: Callable[[], Surveyor]
    """Who looks at them, anew for each iteration."""
    _survey: Surveyor = attrs.field(init=False)
    _sizes: list[int] = attrs.field(factory=list, init=False)
    """Samples of each source."""
    _file: str | None = attrs.field(default=None, init=False)
    """That of the first record."""

    def __iter__(self) -> Iterator[list[Sample]]:
        """Read and encode all records, from the beginning each time.

        :raises DataError: a record is bad, or there is no sample.
        """
        self.task.notes()  # those of an attempt that was given up
        self._survey, self._sizes = self.surveyor(), []
        with self.console.progress(f"encoding {self.name}: records") as advance:
            for source in self.sources:
                self._sizes.append(0)
                shown = self._survey.seen
                # Reading is Python's, encoding mostly the library's, which lets Python go on meanwhile.
                read = itertools.chain.from_iterable(ahead(in_lists(source, _AT_ONCE, size=_characters), _AHEAD))
                for samples in in_lists(self.task.samples(self._looked_at(read)), _AT_ONCE, size=_tokens):
                    self._sizes[-1] += len(samples)
                    self._survey.count(samples)
                    yield samples
                    advance(self._survey.seen - shown)
                    shown = self._survey.seen
        if not any(self._sizes):
            raise DataError(self._file or self.name, None, f"gives no sample for {self.name}")

    def _looked_at(self, source: Iterable[Record]) -> Iterator[Record]:
        for record in self._survey.records(source):
            self._file = self._file or record.file
            yield record

    def about(self) -> dict[str, Any]:
        """How many samples each source gave, the task's notes, and what was counted."""
        survey = self._survey.survey()
        return {"sources": self._sizes, "notes": list(self.task.notes()), "survey": survey.to_json()}


def ahead(items: Iterable[T], depth: int) -> Iterator[T]:
    """The same items, made by a thread that is up to so many of them ahead.

    Its exception is raised where its item would come. When the iteration ends early, so does the thread.
    """
    maker = _Maker(items, depth)
    maker.start()
    try:
        while (item := maker.made.get()) is not _END:
            if isinstance(item, _Failure):
                raise item.error
            yield item
    finally:
        maker.dismiss()


_END = object()


@attrs.frozen
class _Failure:
    error: BaseException


class _Maker(threading.Thread):
    """Iterates over items and puts them into a queue, then why there are no more."""

    def __init__(self, items: Iterable[Any], depth: int) -> None:
        super().__init__(name="ahead", daemon=True)
        self._items = items
        self.made: queue.Queue[Any] = queue.Queue(depth)
        self.unwanted = threading.Event()

    def run(self) -> None:
        """Until there are no more items, or nobody wants them."""
        try:
            for item in self._items:
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001 - it is the other thread's to handle
            self._put(_Failure(error))
        else:
            self._put(_END)

    def dismiss(self) -> None:
        """Let it end, and wait until it has."""
        self.unwanted.set()
        with contextlib.suppress(queue.Empty):
            self.made.get_nowait()  # it may be waiting for a place
        self.join()

    def _put(self, item: object) -> bool:
        """Whether it was wanted."""
        while not self.unwanted.is_set():
            try:
                self.made.put(item, timeout=_PATIENCE_SECONDS)
            except queue.Full:
                continue
            return True
        return False


def in_lists(items: Iterable[T], most: int, *, size: Callable[[T], int] | None = None) -> Iterator[list[T]]:
    """Consecutive items in lists of so many, or fewer where they are large; the last may be shorter.

    Where the items end in an error, those before it come first.

    :param size: of an item; a list ends once it has a million of it.
    """
    some: list[T] = []
    total = 0
    try:
        for item in items:
            some.append(item)
            total += 0 if size is None else size(item)
            if len(some) == most or total >= _LARGE:
                yield some
                some, total = [], 0
    except Exception:
        if some:
            yield some
        raise
    if some:
        yield some


def rows_needed(tokenizer: tokenizers.Tokenizer) -> int:
    """Rows of a token table that has one for each token. A vocabulary with a line twice has numbers without a token, so
    the highest number counts.
    """
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def _characters(record: Record) -> int:
    return sum(len(value) for value in record.values.values() if isinstance(value, str | list))


def _tokens(sample: Sample) -> int:
    return len(sample.input_ids)
