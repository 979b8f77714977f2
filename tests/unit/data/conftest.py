"""What the tests of readers share: writing a file and reading it back."""

import pytest

from rtx_core import DataError


@pytest.fixture
def write(tmp_path):
    """Write bytes, or text as UTF-8, to a file of the test's folder; gives its path."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def complaint():
    """Read all records and give the error's text, with the folder's name left out."""

    def complaint(data):
        with pytest.raises(DataError) as caught:
            list(data.records())
        message = str(caught.value)
        assert "\n" not in message
        return message.replace(f"{data.files[0].parent}/", "")

    return complaint
