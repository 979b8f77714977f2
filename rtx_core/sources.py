"""The folders behind sources of models: a folder, the kept model of a run, a repository of the hub at one commit.

What comes from the hub lies in Hugging Face's own cache, so that all its libraries fetch a file once; ``HF_HOME``,
``HF_HUB_CACHE``, ``HF_HUB_OFFLINE``, ``HF_TOKEN`` and ``HF_ENDPOINT`` mean what they mean there. A :class:`Hub` that
may use the network fetches config and tokenizer, :func:`fetch_weights` the weights; nothing else asks for anything.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rtx_core.errors import InputError
from rtx_core.model_folder import CONFIG, INDEX, TOKENIZER_FILES, WEIGHTS, missing_weights, pickled_names, weight_map

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from rtx_core.components import Source
    from rtx_core.console import Console

_BRANCH = "main"
"""The revision where none is written."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PART_OF_COMMIT = re.compile(r"[0-9a-f]{5,39}")
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}
_OF_THE_TOKEN = {401, 403}
_SMALL = (
    *(name for name in TOKENIZER_FILES if not name.endswith(".model")),  # SentencePiece's are not read
    *("modules.json", "1_Pooling/config.json"),
    CONFIG,
)
"""What is fetched before the weights. In this order: a break leaves no vocabulary without its settings."""


class Hub:
    """The hub as one command sees it: each source at one commit, however often it is asked for."""

    def __init__(self, *, network: bool = False, commits: Mapping[str, str] | None = None) -> None:
        """Look into the cache alone, or with ``network`` fetch config and tokenizer of what isn't there.

        :param commits: the commits to take again, by source as it was written: those of a run that goes on.
        """
        self.network = network
        self.commits: dict[str, str] = {}
        """The commit of each source that was found so far, by source as it was written."""
        self._again = commits or {}
        self.notes: list[str] = []
        """What a person should know of the sources, one sentence each."""
        self._found: dict[str, Source] = {}
        self._files: dict[Source, frozenset[str]] = {}
        """The names of all files of a source that the hub was asked for."""

    def pinned(self, source: Source) -> Source | None:
        """The same source with a commit for its revision; None where it is not in the cache and may not be fetched.

        :raises InputError: it can't be had: there is no such repository or revision, no access, no network, no space.
        """
        written = str(source)
        if written not in self._found:
            revision = self._again.get(written, source.revision or _BRANCH)
            commit = self._commit(attrs.evolve(source, revision=revision))
            if commit is None:
                return None
            self.commits[written] = commit
            self._found[written] = attrs.evolve(source, revision=commit)
        return self._found[written]

    def __contains__(self, source: Source) -> bool:
        """Whether a pinned source was found."""
        return source in self._found.values()

    def missing_weights(self, source: Source) -> str | None:
        """Why a pinned source has no weights that can be read; None where it has some, or may have for all we know."""
        names = self._files.get(source)
        return None if names is None else _missing_weights(source, names)

    def _commit(self, source: Source) -> str | None:
        """The commit behind a revision, its config and tokenizer in the cache."""
        cached = _cached(source)
        if not self.network:
            return None if cached is None else cached.name
        # A commit never changes, so there is nothing to ask for.
        if cached is not None and (_is_offline() or (_is_commit(cached.name, source) and _looks_whole(cached))):
            return cached.name
        return self._fetched(source, cached)

    def _fetched(self, source: Source, cached: Path | None) -> str:
        from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download

        repository, revision = source.location, source.revision
        try:
            with _explained(source):
                found = HfApi().model_info(repository, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except _UnreachableError as error:
            if cached is None:
                raise
            self.notes.append(f"{error}; the commit {cached.name} in the cache is taken")
            return cached.name
        commit, names = str(found.sha), frozenset(sibling.rfilename for sibling in found.siblings or ())
        with _explained(source), _bars(shown=False):
            for name in _SMALL:
                if name in names:
                    hf_hub_download(repository, name, revision=commit)
            if revision != commit:  # leave in the cache where the branch is, for a start without a network
                snapshot_download(repository, revision=revision, allow_patterns=list(_SMALL))
        self._files[attrs.evolve(source, revision=commit)] = names
        return commit


def folder_of(source: Source, working_directory: Path) -> Path:
    """The folder behind a source, on this machine; nothing is fetched.

    :raises InputError: there is none.
    """
    if source.scheme == "hub":
        return _snapshot(source)
    if source.scheme == "run":
        folder = working_directory / "runs" / source.location / "model"
        if not folder.is_dir():
            raise InputError(f'run "{source.location}" has kept no model here: there is no folder {folder}')
        return folder
    folder = Path(source.location)
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    return folder


def fetch_weights(source: Source, console: Console) -> None:
    """Put the weights of a pinned source into the cache, if they are the hub's and not there yet.

    :raises InputError: they can't be had.
    """
    if source.scheme != "hub" or has_weights(folder := _snapshot(source)):
        return
    if _is_offline() and pickled_names(file.name for file in folder.iterdir()):
        raise InputError(f"{source} {missing_weights(folder)}")
    from huggingface_hub import HfApi, hf_hub_download

    console.say(f"fetching the weights of {source}")
    with _explained(source), _bars(shown=console.terminal and not console.rich.quiet):
        names = HfApi().list_repo_files(source.location, revision=source.revision)
        if (problem := _missing_weights(source, names)) is not None:
            raise InputError(f"{source} {problem}")
        first = WEIGHTS if WEIGHTS in names else INDEX
        hf_hub_download(source.location, first, revision=source.revision)
        for name in sorted(set(weight_map(folder / INDEX).values())) if first == INDEX else ():
            hf_hub_download(source.location, name, revision=source.revision)


def _missing_weights(source: Source, names: Collection[str]) -> str | None:
    """Why a repository with these files has no weights that can be read; None where it has some."""
    if WEIGHTS in names or INDEX in names:
        return None
    if pickled := pickled_names(names):
        return (
            f"has only {pickled[0]}, whose format can run code when it is read; fetch it by hf download "
            f"{source.location}, then python -m rtx_core convert FOLDER NEW makes a folder with {WEIGHTS} of it"
        )
    return f"has no {WEIGHTS}"


def cache_folder() -> Path:
    """Where Hugging Face's libraries keep what they fetch."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


# --- the cache --------------------------------------------------------------------------------------------------------


def has_weights(folder: Path) -> bool:
    """Whether weights that can be read are in a folder, with all shards if there are some."""
    if (folder / WEIGHTS).is_file():
        return True
    return (folder / INDEX).is_file() and all((folder / name).is_file() for name in weight_map(folder / INDEX).values())


def _snapshot(source: Source) -> Path:
    cached = _cached(source)
    if cached is None:
        raise InputError(f"{source} is not in the cache {cache_folder()}; run and plan fetch it")
    return cached


def _cached(source: Source) -> Path | None:
    """The folder of a revision in the cache, or None."""
    keep_quiet()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            source.location, revision=source.revision, allow_patterns=list(_SMALL), local_files_only=True
        )
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise InputError(f"{source}: {_first_line(error)}") from error
    return Path(folder)


def _is_commit(commit: str, source: Source) -> bool:
    return commit == source.revision and _COMMIT.fullmatch(commit) is not None


def _looks_whole(folder: Path) -> bool:
    """Whether somebody has fetched more than the config, as far as a folder tells."""
    return (folder / CONFIG).is_file() and any((folder / name).is_file() for name in _VOCABULARIES)


# --- the network ------------------------------------------------------------------------------------------------------


class _UnreachableError(InputError):
    """The hub could not be asked, which says nothing about the source."""


def _is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def keep_quiet() -> None:
    """Keep Hugging Face's libraries from reporting to their makers; to be called before one is imported."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


@contextmanager
def _explained(source: Source) -> Iterator[None]:
    """Turn what goes wrong into one line, and say nothing else: the library warns and logs in several."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except Exception as error:  # each version of the library has another HTTP library, with errors of its own
        raise _explanation(source, error) from error
    finally:
        logger.setLevel(level)


def _explanation(source: Source, error: Exception) -> InputError:
    from huggingface_hub import constants, errors

    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # what kept the library from asking
    hub, kind = constants.ENDPOINT, InputError
    log_in = "hf auth login, or set HF_TOKEN"
    match error:
        case errors.GatedRepoError():
            why = f"is gated: ask for access at {hub}/{source.location}, then {log_in}"
        case errors.RepositoryNotFoundError():
            why = f"is not at {hub}: no model has this name, or a private one has; for that {log_in}"
        case errors.RevisionNotFoundError():
            why = f'has no branch, tag or commit "{source.revision}"'
            if _PART_OF_COMMIT.fullmatch(source.revision or ""):
                why += "; a commit is named by all of its 40 digits"
        case errors.OfflineModeIsEnabled():
            why = (
                f"is not in the cache {cache_folder()}, or not all of it, and HF_HUB_OFFLINE is set; start once "
                "without that, or name a folder"
            )
        case errors.HfHubHTTPError(response=response) if response is not None:
            why, kind = f"can't be had: {hub} answered with status {response.status_code}", _UnreachableError
            if response.status_code in _OF_THE_TOKEN:
                why += f"; {log_in}"
        case OSError(errno=number, strerror=reason) if number in _OF_THE_DISK:
            why = f"can't be put into the cache {cache_folder()}: {reason}; HF_HOME names another place"
        case _:
            why, kind = f"can't be had: {hub} can't be reached, or broke off: {_first_line(error)}", _UnreachableError
    return kind(f"{source} {why}")


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def _bars(*, shown: bool) -> Iterator[None]:
    """With the library's progress bars, or without."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    change = not shown and not are_progress_bars_disabled()
    if change:
        disable_progress_bars()
    try:
        yield
    finally:
        if change:
            enable_progress_bars()
