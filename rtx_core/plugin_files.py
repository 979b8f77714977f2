"""The ``--plugin`` files of an earlier run: whatever goes on with the run wants the same ones."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from rtx_core.errors import InputError, PluginError

if TYPE_CHECKING:
    from rtx_core.folder import RunFolder
    from rtx_core.registry import Registry


def with_plugins_of_run(registry: Registry, folder: RunFolder, *, trust: bool) -> None:
    """Make sure that the registry has every plugin file that the run used.

    :param trust: take a missing one from the copy in the run's folder; that runs its code.
    :raises PluginError: one is missing or has another content.
    """
    given = {file.name: file.sha256 for file in registry.files}
    for name, sha256 in _files_of_run(folder):
        if given.get(name) == sha256:
            continue
        if name in given:
            raise PluginError(
                f"plugin {name} has another content than when this run started; give the same file, or start with --new"
            )
        kept = folder.plugins / name
        if not trust:
            raise PluginError(
                f"this run was started with --plugin {name}; give the same file again, or --trust-run-plugins "
                f"to run the copy {kept}"
            )
        if not kept.is_file() or hashlib.sha256(kept.read_bytes()).hexdigest() != sha256:
            raise PluginError(f"the copy {kept} is missing or has another content than when this run started")
        registry.add(kept)


def _files_of_run(folder: RunFolder) -> list[tuple[str, str]]:
    """Name and sha256 of each file that run.json lists.

    :raises InputError: it lists something else.
    """
    files = folder.read_record().get("plugins", [])
    try:
        found = [(file["file"], file["sha256"]) for file in files]
    except (TypeError, KeyError):
        found = [("", "")]
    if not all(isinstance(text, str) and text for pair in found for text in pair):
        raise InputError(f'{folder.record}: plugins: expected objects with "file" and "sha256", got {files!r}')
    return found
