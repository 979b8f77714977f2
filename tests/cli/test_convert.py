"""``convert``: pickled weights become the same tensors in model.safetensors; a file that could run code is refused."""

from __future__ import annotations

import collections
import json
import os

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file

from rtx_core import durable

FORMATS = {"of today": True, "before torch 1.6": False}
each_format = pytest.mark.parametrize("is_zip", FORMATS.values(), ids=FORMATS.keys())


def save(content, file, *, is_zip=True):
    """As torch.save writes today, or as it did before 1.6."""
    torch.save(content, file, _use_new_zipfile_serialization=is_zip)


def a_state_dict():
    """Tensors of several types and forms; two share memory, one is a transposed view, one is part of another's rows."""
    draw = torch.Generator().manual_seed(3)
    table = torch.randn(7, 4, generator=draw)
    return collections.OrderedDict(
        {
            "embeddings.weight": table,
            "decoder.weight": table,
            "half": torch.randn(5, generator=draw).half(),
            "brain": torch.randn(2, 3, generator=draw).bfloat16(),
            "double": torch.randn(3, generator=draw).double(),
            "whole": torch.arange(6),
            "turned": torch.randn(4, 6, generator=draw).T,
            "rows": torch.randn(9, 2, generator=draw)[3:5],
            "scalar": torch.tensor(2.5),
            "positions": torch.arange(512).expand(1, -1),
            "nothing": torch.zeros(0, 3),
        }
    )


def assert_same_bits(file, expected):
    """The file has these tensors with these bits and dtypes, and no others."""
    found = load_file(file)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with an empty folder ``old``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    return tmp_path


@pytest.fixture
def refused(rtx, place):
    """Convert what must be refused: one line on stderr, which is returned, and nothing was written."""

    def line(source="old", dest="new"):
        before = sorted(place.rglob("*"))
        done = rtx("convert", source, dest)
        assert (done.status, done.out, done.err.count("\n")) == (2, "", 1), done.err
        assert sorted(place.rglob("*")) == before
        return done.err.removesuffix("\n")

    return line


# --- what works -------------------------------------------------------------------------------------------------------


@each_format
def test_tensors_are_the_same_to_the_bit(rtx, place, is_zip):
    """Values, dtypes and shapes; what shares memory stands once; the only metadata is the format."""
    tensors = a_state_dict()
    save(tensors, place / "old" / "pytorch_model.bin", is_zip=is_zip)
    done = rtx("convert", "old", "new")
    assert done.status == 0
    assert done.out.startswith(f"{place}/new: 10 tensors from pytorch_model.bin, 0.0 MB")
    assert "note: left out, as the same tensor as another: decoder.weight\n" in done.err
    del tensors["decoder.weight"]
    assert_same_bits(place / "new" / "model.safetensors", tensors)
    with safe_open(place / "new" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


@each_format
def test_transformers_loads_the_new_folder(rtx, place, is_zip):
    """A masked language model with a tied decoder: nothing is missing or left over, and logits are equal to the bit."""
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(config).eval()
    config.save_pretrained("old")
    save(model.state_dict(), place / "old" / "pytorch_model.bin", is_zip=is_zip)
    assert rtx("convert", "old", "new").status == 0
    found, info = transformers.BertForMaskedLM.from_pretrained("new", output_loading_info=True)
    assert {name: keys for name, keys in info.items() if keys} == {}
    ids = torch.tensor([[2, 5, 9, 3]])
    with torch.no_grad():
        assert torch.equal(found.eval()(ids).logits, model(ids).logits)


def test_shards_become_one_file(rtx, place):
    """As an index says, in which each tensor's file stands."""
    tensors = a_state_dict()
    names = list(tensors)
    shards = {"a.bin": names[::2], "b.bin": names[1::2]}  # the tied ones in two files, where they share no memory
    for shard, own in shards.items():
        save({name: tensors[name] for name in own}, place / "old" / shard)
    write_index(place / "old", {name: shard for shard, own in shards.items() for name in own})
    assert rtx("convert", "old", "new").status == 0
    assert_same_bits(place / "new" / "model.safetensors", tensors)


def write_index(folder, places):
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.mark.parametrize("wrapper", ["state_dict", "model_state_dict", "model"])
def test_of_a_training_checkpoint_the_model_is_taken(rtx, place, wrapper):
    """What else is in it is named and left out."""
    weight = torch.ones(2)
    save({wrapper: {"w": weight}, "epoch": 3, "optimizer": {"lr": 0.1}}, place / "old" / "last.pt")
    done = rtx("convert", "old/last.pt", "new")
    assert done.status == 0
    assert "note: left out, as no part of the model: epoch, optimizer\n" in done.err
    assert_same_bits(place / "new" / "model.safetensors", {"w": weight})


def test_config_and_tokenizer_come_along_and_nothing_else(rtx, place):
    """Byte for byte; also where the weights are named themselves."""
    files = {"config.json": b'{"model_type":  "bert"}', "vocab.txt": b"[PAD]\r\n", "tokenizer_config.json": b"{}"}
    for name, content in {**files, "README.md": b"x", "training_args.bin": b"x", "modeling.py": b"x"}.items():
        (place / "old" / name).write_bytes(content)
    save({"w": torch.ones(2)}, place / "old" / "pytorch_model.bin")
    for source in ("old", "old/pytorch_model.bin"):
        dest = place / source.replace("/", "-new-")
        dest = dest if source != "old" else place / "new"
        assert rtx("convert", source, dest).err == ""
        assert {path.name for path in dest.iterdir()} == {*files, "model.safetensors"}
        assert all((dest / name).read_bytes() == content for name, content in files.items())


def test_what_is_missing_is_said(rtx, place):
    """Weights alone are converted; what a model needs besides is a note."""
    save({"w": torch.ones(2)}, place / "old" / "model.pt")
    done = rtx("convert", "old", "new")
    assert done.status == 0
    assert done.err == "note: there is no config.json, which from_pretrained needs\nnote: there is no tokenizer\n"


def test_the_result_for_a_program(rtx, place):
    """The new folder, how many tensors, and the size of their file."""
    save({"w": torch.ones(2)}, place / "old" / "model.pt")
    size = {"folder": str(place / "new"), "tensors": 1}
    found = json.loads(rtx("convert", "old", "new", "--json").out)
    assert found == {**size, "bytes": (place / "new" / "model.safetensors").stat().st_size}


def test_an_empty_folder_may_be_there_already(rtx, place):
    """As ``mktemp -d`` makes it."""
    (place / "new").mkdir()
    save({"w": torch.ones(2)}, place / "old" / "model.pt")
    assert rtx("convert", "old", "new").status == 0
    assert (place / "new" / "model.safetensors").is_file()


# --- what could run code ----------------------------------------------------------------------------------------------


class Call:
    """Pickled, it asks whoever reads it to call a function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


ATTACKS = {
    "os.system": (lambda: Call(os.system, "touch pwned"), "posix.system"),
    "eval": (lambda: Call(eval, "open('pwned', 'w')"), "eval"),
    "of torch": (lambda: Call(torch.load, "pwned"), "torch.serialization.load"),
    "of torch.hub": (lambda: Call(torch.hub.load, "a/b", "c"), "torch.hub.load"),
    "of collections": (lambda: Call(collections.ChainMap, {}), "collections.ChainMap"),
    "a whole module": (lambda: torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
}


@each_format
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_file_that_calls_anything_is_refused(refused, place, monkeypatch, attack, is_zip, forced):
    """Whatever it calls, beside a tensor; in either format, and whatever torch's environment variables say."""
    if forced:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    make, name = ATTACKS[attack]
    save({"w": torch.ones(2), "x": make()}, place / "old" / "pytorch_model.bin", is_zip=is_zip)
    assert refused() == (
        f"old/pytorch_model.bin: wants to call {name}, which is no part of a tensor, so reading it could run code; "
        "nothing was converted"
    )


BARE = {
    "text": b"cos\nsystem\n(S'touch pwned'\ntR.",
    "binary": b"\x80\x02cposix\nsystem\nX\x0b\x00\x00\x00touch pwned\x85R.",
    "named by two texts": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0btouch pwned\x85R.",
}


@pytest.mark.parametrize("content", BARE.values(), ids=BARE.keys())
def test_a_bare_pickle_is_refused(refused, place, content):
    """An old file is several pickles, the first of which is read before anything is known of the file."""
    (place / "old" / "pytorch_model.bin").write_bytes(content)
    assert refused().startswith("old/pytorch_model.bin: ")
    assert not (place / "pwned").exists()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
def test_a_torchscript_archive_is_refused(refused, place):
    """It is a program."""
    torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1)).save(place / "old" / "model.pt")
    assert "is a TorchScript archive, which is code" in refused()


# --- what is no weights -----------------------------------------------------------------------------------------------

CONTENTS = {
    "a number": ({"w": torch.ones(2), "epoch": 3}, '"epoch" is a value of type int; expected tensors alone'),
    "a text": ({"w": "x"}, '"w" is a value of type str; expected tensors alone'),
    "tensors in a dict": ({"a": {"w": torch.ones(2)}}, '"a" is a dict with "w"; expected tensors alone'),
    "two models": ({"model": {}, "state_dict": {}}, 'holds "state_dict", "model"; which of them is the model'),
    "a list": ([torch.ones(2)], "holds a value of type list; expected tensors by name (a state dict)"),
    "a tensor": (torch.ones(2), "holds a value of type Tensor; expected tensors by name (a state dict)"),
    "nothing": ({}, "holds no tensor"),
    "a number for a name": ({3: torch.ones(2)}, "3 is no name of a tensor"),
    "safetensors' own name": ({"__metadata__": torch.ones(2)}, "'__metadata__' is no name of a tensor"),
    "complex": ({"w": torch.ones(2, dtype=torch.complex64)}, '"w" is a tensor of complex64 (strided)'),
    "sparse": ({"w": torch.eye(3).to_sparse()}, '"w" is a tensor of float32 (sparse_coo)'),
    "without values": ({"w": torch.ones(2, device="meta")}, '"w" is a tensor without values'),
    "a bomb": ({"w": torch.ones(1).expand(1 << 40)}, "its tensors would be far larger than the file"),
}


@each_format
@pytest.mark.parametrize("content", CONTENTS)
def test_anything_but_tensors_is_refused(refused, place, content, is_zip):
    """With what it is and under which name; a tensor that claims terabytes is never made."""
    value, expected = CONTENTS[content]
    save(value, place / "old" / "pytorch_model.bin", is_zip=is_zip)
    assert refused().startswith(f"old/pytorch_model.bin: {expected}")


@each_format
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_cut_file_is_refused(refused, place, is_zip, share):
    """Nothing of it is used."""
    file = place / "old" / "pytorch_model.bin"
    save(a_state_dict(), file, is_zip=is_zip)
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    assert refused().startswith("old/pytorch_model.bin: ")


def text(place):
    (place / "old" / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1\n")


def another_protocol(place):
    torch.save({"w": torch.ones(2)}, place / "old" / "a.pt", pickle_protocol=4)


def folder(place):
    (place / "old" / "pytorch_model.bin").mkdir()


def two(place):
    save({"w": torch.ones(2)}, place / "old" / "a.pt")
    save({"w": torch.ones(2)}, place / "old" / "b.pth")


def safetensors(place):
    (place / "old" / "model.safetensors").touch()
    save({"w": torch.ones(2)}, place / "old" / "pytorch_model.bin")


def index_without_file(place):
    write_index(place / "old", {"w": "gone.bin"})


def index_that_leads_out(place):
    save({"w": torch.ones(2)}, place / "w.bin")
    write_index(place / "old", {"w": "../w.bin"})


def index_of_other_tensors(place):
    save({"w": torch.ones(2)}, place / "old" / "a.bin")
    write_index(place / "old", {"v": "a.bin", "w": "a.bin"})


def broken_index(place):
    (place / "old" / "pytorch_model.bin.index.json").write_text("{")


SOURCES = {
    "nothing": (lambda place: None, "old has no pytorch_model.bin, nor any other file of pickled weights (*.bin, "),
    "text": (text, "old/pytorch_model.bin: can't be read as tensors ("),
    "another protocol": (
        another_protocol,
        "old/a.pt: can't be read as tensors (",
    ),
    "a folder of this name": (folder, "old has no pytorch_model.bin, nor any other"),
    "two files": (two, "old has a.pt, b.pth; name the one to convert, as: python -m rtx_core convert old/a.pt NEW"),
    "safetensors": (
        safetensors,
        "old has model.safetensors, which from_pretrained reads as it is; there is nothing to",
    ),
    "an index without its file": (index_without_file, "old/pytorch_model.bin.index.json: there is no gone.bin beside"),
    "an index that leads out": (index_that_leads_out, 'old/pytorch_model.bin.index.json: "weight_map" must give each'),
    "an index of others": (index_of_other_tensors, "old/a.bin: v is not in both the file and pytorch_model.bin.index"),
    "a broken index": (broken_index, "old/pytorch_model.bin.index.json is not JSON: "),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_is_none_is_refused(refused, place, source):
    """With what is there and what was expected; torch's advice to read the file without its guard is left out."""
    make, expected = SOURCES[source]
    make(place)
    line = refused()
    assert line.startswith(expected)
    assert "torch.load" not in line


def test_no_such_source(refused):
    """Its name comes back."""
    assert refused("gone") == "gone: no such file or folder"


@pytest.mark.parametrize("dest", ["old/new", "old", ".", "full", "file", "link"])
def test_a_destination_that_is_there_is_refused(refused, place, dest):
    """Or that lies in the source: both stay as they are."""
    save({"w": torch.ones(2)}, place / "old" / "model.pt")
    (place / "full").mkdir()
    (place / "full" / "mine.txt").touch()
    (place / "file").touch()
    (place / "link").symlink_to(place / "full")
    reason = "lies in old, which is read only" if dest.startswith("old") else "is there already; name a new folder"
    assert refused(dest=dest).startswith(f"{dest}: {reason}")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_full_disk_leaves_nothing(rtx, place, monkeypatch, name):
    """Whichever file it is that has no room: one line, and no folder."""
    save({"w": torch.ones(2)}, place / "old" / "model.pt")
    (place / "old" / "config.json").write_text("{}")
    write_file, write_tensors = durable.write_file, durable.write_tensors

    def full(write):
        def stop(file, content):
            if file.name == name:
                raise OSError(28, "No space left on device")
            write(file, content)

        return stop

    monkeypatch.setattr("rtx_plugins.commands.convert.write_file", full(write_file))
    monkeypatch.setattr("rtx_core.weights.write_tensors", full(write_tensors))
    done = rtx("convert", "old", "new")
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert "No space left on device" in done.err
    assert sorted(path.name for path in place.iterdir()) == ["old"]


def test_a_message_about_pickled_weights_names_the_command(rtx, place, trained):
    """A run that is pointed at them is refused, and what it says works."""
    model = trained / "runs" / "colours" / "model"
    for file in model.iterdir():
        if file.name != "model.safetensors":
            (place / "old" / file.name).write_bytes(file.read_bytes())
    save(load_file(model / "model.safetensors"), place / "old" / "pytorch_model.bin")
    text = (trained / "colours.toml").read_text().replace("[architecture]", '[architecture]\nfrom_pretrained = "old"')
    (place / "job.toml").write_text(text.replace('[tokenizer]\ntype = "wordpiece"\nvocab_size = 100\n', ""))
    for name in ("train.jsonl", "eval.jsonl"):
        (place / name).write_bytes((trained / name).read_bytes())
    done = rtx("check", "job.toml")
    assert done.status == 2
    assert f"python -m rtx_core convert {place}/old NEW makes a folder with model.safetensors of it" in done.err
    assert rtx("convert", f"{place}/old", "new").status == 0
    done = rtx("check", "job.toml", "--set", "architecture.from_pretrained=new")
    assert (done.status, done.err) == (0, "")
