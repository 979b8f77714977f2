"""What holds for every test."""

import atexit
import hashlib
import os
import shutil
import tempfile

import pytest

# Models here are tiny, and the suite runs in several processes: more threads than cores would make each other wait. Set
# before torch is imported, and inherited by the commands that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Nothing of a test in the cache of whoever runs it, nor the other way round; commands that tests start inherit it.
os.environ["RTX_CACHE"] = tempfile.mkdtemp(prefix="rtx-tests-")
atexit.register(shutil.rmtree, os.environ["RTX_CACHE"], ignore_errors=True)

# The same for what Hugging Face's libraries fetch, and no test asks the hub for anything.
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="rtx-tests-")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("HF_HUB_CACHE", None)
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)


@pytest.fixture
def hub_cache(tmp_path_factory, monkeypatch):
    """Put the files of a folder into a cache of the hub that is this test's own, as one commit of a repository."""
    from huggingface_hub import constants

    cache = tmp_path_factory.mktemp("hub")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))  # for commands that the test starts

    def put(name, folder, *, commit="0123456789abcdef0123456789abcdef01234567", branch="main"):
        place = cache / f"models--{name.replace('/', '--')}"
        snapshot = place / "snapshots" / commit
        for part in (place / "blobs", place / "refs", snapshot):
            part.mkdir(parents=True, exist_ok=True)
        for file in filter(os.path.isfile, folder.iterdir()):
            blob = place / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
            shutil.copy(file, blob)
            (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
        (place / "refs" / branch).write_text(commit)
        return snapshot

    return put
