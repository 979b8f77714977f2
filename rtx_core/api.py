"""Running a pipeline from Python: the same checks, the same folder, the same result as from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs

from rtx_core import config
from rtx_core.config.pipeline import folder_of
from rtx_core.errors import InputError
from rtx_core.folder import RunFolder, commits_of
from rtx_core.python_records import sources_of
from rtx_core.registry import Registry
from rtx_core.sources import Hub

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType


@attrs.frozen
class Pipeline:
    """A checked pipeline, ready to run."""

    settings: config.Pipeline
    """Every table as the object that it names."""
    _registry: Registry
    _load: Callable[[Sequence[str], Hub], config.Pipeline]
    """The same file with some more ``sets``."""
    _hub: Hub
    """Which commits the ``hub:`` sources are at."""

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        sets: Sequence[str] = (),
        plugins: Sequence[Path | ModuleType] = (),
        data: Mapping[str, Any] | None = None,
    ) -> Self:
        """Check a TOML file; of ``hub:`` sources config and tokenizer are fetched.

        :param sets: ``"optimizer.lr=1e-4"`` and so on, as ``--set`` takes them.
        :param plugins: files or modules whose components come before everything installed, as ``--plugin`` does.
        :param data: records in place of what the file says of ``train``, ``eval`` or ``test``: an iterable of dicts, or
            a pandas or polars data frame; for ``eval`` also a dict of them by name. All are read here.
        :raises PipelineError: with every problem.
        :raises InputError: the data are no records.
        """
        registry = Registry.discover(plugins)
        sources = {} if data is None else sources_of(data)

        def load_with(more: Sequence[str], hub: Hub) -> config.Pipeline:
            return config.load(path, sets=(*sets, *more), registry=registry, data=sources, hub=hub)

        hub = Hub(network=True)
        return cls(load_with((), hub), registry, load_with, hub)

    def run(
        self,
        *,
        output: Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        new: bool = False,
        steps: int | None = None,
        cache: bool = True,
        quiet: bool = False,
    ) -> RunFolder:
        """Train, and give back the finished run's folder; the arguments are those of ``python -m rtx_core run``.

        :raises RtxError: the run was refused, failed or interrupted.
        """
        from rtx_core.console import Console
        from rtx_core.runner import RunOptions, run_pipeline

        options = RunOptions(output=output, resume=resume, overwrite=overwrite, new=new, steps=steps, cache=cache)
        settings, _ = self._going_on(folder_of(self.settings, output, Path.cwd()), resume=resume)
        with Console(quiet=quiet) as console:
            return RunFolder(run_pipeline(settings, self._registry, options, console))

    def run_series(
        self,
        *,
        seeds: int | None = None,
        output: Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        quiet: bool = False,
    ) -> Path:
        """Train once for each seed, or for each of ``[data] folds``; the folder with ``summary.json``.

        :raises RtxError: there is nothing to make several runs of, or one was refused, failed or interrupted.
        """
        from rtx_core.console import Console
        from rtx_core.runner import RunOptions
        from rtx_core.series import run_series, series_of

        series = series_of(self.settings, seeds)
        if series is None:
            raise InputError("run_series: give seeds, or write [data] folds; a single run is run()")
        options = RunOptions(output=output, resume=resume, overwrite=overwrite)
        _, hub = self._going_on(folder_of(self.settings, output, Path.cwd()), resume=resume)
        with Console(quiet=quiet) as console:
            return run_series(series, lambda more: self._load(more, hub), self._registry, options, console)

    def _going_on(self, folder: Path, *, resume: bool) -> tuple[config.Pipeline, Hub]:
        """The settings, read again where a run goes on that started from other commits, and who finds these."""
        commits = commits_of(folder) if resume else {}
        if self._hub.commits.items() >= commits.items():
            return self.settings, self._hub
        hub = Hub(network=True, commits=commits)
        return self._load((), hub), hub
