"""Folders as ``datasets.save_to_disk`` writes them, and the hub by a stand-in for the package."""

import json
import sys
import types

import pyarrow as pa
import pytest

from rtx_core import DataError, InputError, Source, config
from rtx_core.registry import Registry
from rtx_plugins.data.datasets import Datasets

TEXT = {"dtype": "string", "_type": "Value"}
TONE = {"names": ["neg", "pos"], "_type": "ClassLabel"}
TONES = pa.table({"sentence": ["a", "b", "c"], "label": [1, 0, -1]})


def save(folder, features, *tables, split=None):
    """The layout of ``Dataset.save_to_disk``: Arrow streams, ``state.json``, ``dataset_info.json``."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{len(tables):05d}.arrow" for number in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        with pa.ipc.new_stream(str(folder / name), table.schema.with_metadata(metadata)) as writer:
            writer.write_table(table)
    state = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "a1b2c3d4e5f60718",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    (folder / "state.json").write_text(json.dumps(state, indent=2, sort_keys=True))
    info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
    (folder / "dataset_info.json").write_text(json.dumps(info, indent=2, sort_keys=True))
    return folder


def save_dict(folder, **splits):
    """The layout of ``DatasetDict.save_to_disk``: such a folder for each split."""
    for name, (features, *tables) in splits.items():
        save(folder / name, features, *tables, split=name)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return folder


def data(folder, **settings):
    return Datasets(path=Source("folder", str(folder)), **settings)


def values(source):
    return [record.values for record in source.records()]


def test_classes_become_their_names(tmp_path):
    """A ClassLabel's number is its name, and -1, which says that the class is not known, is null."""
    folder = save(tmp_path / "a", {"sentence": TEXT, "label": TONE}, TONES)
    assert values(data(folder)) == [
        {"sentence": "a", "label": "pos"},
        {"sentence": "b", "label": "neg"},
        {"sentence": "c", "label": None},
    ]


@pytest.mark.parametrize(
    ("feature", "value", "expected"),
    [
        ({"feature": TONE, "length": -1, "_type": "Sequence"}, [0, 1, -1], ["neg", "pos", None]),
        ({"feature": TONE, "length": -1, "_type": "List"}, [0, 1], ["neg", "pos"]),
        ({"feature": {"feature": TONE, "_type": "List"}, "_type": "LargeList"}, [[0], []], [["neg"], []]),
        ([TONE], [1], ["pos"]),
        ({"tone": TONE, "text": TEXT}, {"tone": 1, "text": "x"}, {"tone": "pos", "text": "x"}),
        ([{"tone": TONE}], [{"tone": 1}], [{"tone": "pos"}]),
        ({"feature": {"tone": TONE}, "_type": "Sequence"}, {"tone": [1, 0]}, {"tone": ["pos", "neg"]}),
        (TONE, None, None),
        ({"feature": TONE, "_type": "List"}, None, None),
        ({"num_classes": 2, "_type": "ClassLabel"}, 1, 1),
        ({"dtype": "int64", "_type": "Value"}, -1, -1),
    ],
)
def test_classes_within_lists_and_objects(tmp_path, feature, value, expected):
    """However deep they stand; ``Sequence`` of an object is stored as an object of lists."""
    folder = save(tmp_path / "a", {"x": feature}, pa.Table.from_pylist([{"x": value}]))
    assert values(data(folder)) == [{"x": expected}]


def test_shards_are_read_in_order_with_their_rows(tmp_path):
    """A record's file is the shard, its line the row in it."""
    folder = save(
        tmp_path / "a", {"n": {"dtype": "int64", "_type": "Value"}}, pa.table({"n": [5, 6]}), pa.table({"n": [7]})
    )
    assert [(r.file, r.line, r.values["n"]) for r in data(folder).records()] == [
        (f"{folder}/data-00000-of-00002.arrow", 1, 5),
        (f"{folder}/data-00000-of-00002.arrow", 2, 6),
        (f"{folder}/data-00001-of-00002.arrow", 1, 7),
    ]


def test_columns_limit_and_rename(tmp_path):
    """They are those of every reader, and a renamed column of classes keeps its names."""
    folder = save(tmp_path / "a", {"sentence": TEXT, "label": TONE}, TONES)
    source = data(folder, columns=("label",), rename={"label": "tone"}, limit=2)
    assert values(source) == [{"tone": "pos"}, {"tone": "neg"}]
    assert list(data(folder, columns=("label",), rename={"sentence": "text"}).check()) == [
        ("rename", '"sentence" is not among columns')
    ]


def test_a_split_of_several(tmp_path):
    """A DatasetDict's folder needs the name of the split."""
    one, other = pa.table({"t": ["x"]}), pa.table({"t": ["y"]})
    folder = save_dict(tmp_path / "a", train=({"t": TEXT}, one), test=({"t": TEXT}, other))
    assert values(data(folder, split="test")) == [{"t": "y"}]
    assert list(data(folder, split="test").check()) == []
    for split, message in (
        (None, 'missing; there are "train", "test"'),
        ("dev", 'no split "dev"; there are "train", "test"'),
    ):
        assert list(data(folder, split=split).check()) == [("split", message)]
        with pytest.raises(InputError, match=f"^data.datasets: split: {message}$"):
            values(data(folder, split=split))


def test_a_folder_of_one_split(tmp_path):
    """Its own name is accepted, another is not."""
    folder = save(tmp_path / "a", {"t": TEXT}, pa.table({"t": ["x"]}), split="train")
    assert list(data(folder, split="train").check()) == list(data(folder).check()) == []
    message = 'no split "test"; the folder holds one split alone, "train"'
    assert list(data(folder, split="test").check()) == [("split", message)]


def test_the_fingerprint_is_of_content_and_names(tmp_path):
    """A folder elsewhere has the same one; other rows, or other names of the classes, have another."""
    features = {"sentence": TEXT, "label": TONE}
    one = data(save(tmp_path / "a", features, TONES))
    assert data(save(tmp_path / "b", features, TONES)).fingerprint() == one.fingerprint()
    assert data(save(tmp_path / "c", features, TONES.slice(1))).fingerprint() != one.fingerprint()
    swapped = features | {"label": TONE | {"names": ["pos", "neg"]}}
    assert data(save(tmp_path / "d", swapped, TONES)).fingerprint() != one.fingerprint()


def test_what_is_read_is_named(tmp_path):
    """The files that records depend on, so that a cache of them can tell when they change."""
    folder = save(tmp_path / "a", {"t": TEXT}, pa.table({"t": ["x"]}))
    names = ["state.json", "dataset_info.json", "data-00000-of-00001.arrow"]
    assert data(folder).paths() == [folder / name for name in names]
    assert Datasets(path=Source("hub", "org/name"), split="train").paths() is None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "state.json").unlink(), 'data.datasets: path: "FOLDER" was not written by save_to_disk: '),
        (lambda f: (f / "state.json").write_text("{"), "FOLDER/state.json: not JSON: "),
        (lambda f: (f / "state.json").write_text("[]"), "FOLDER/state.json: expected a JSON object"),
        (lambda f: (f / "state.json").write_text("{}"), "FOLDER/state.json: names no data files; save it anew, "),
        (lambda f: (f / "dataset_info.json").unlink(), "FOLDER/dataset_info.json: can't be read: No such file or "),
        (lambda f: (f / "dataset_dict.json").write_text("{}"), "FOLDER/dataset_dict.json: names no splits"),
        (lambda f: (f / "data-00000-of-00001.arrow").unlink(), "FOLDER/data-00000-of-00001.arrow: can't be read: No "),
        (lambda f: (f / "data-00000-of-00001.arrow").write_bytes(b"x" * 99), "FOLDER/data-00000-of-00001.arrow: can't"),
        (
            lambda f: (f / "dataset_info.json").write_text(
                '{"features": {"label": {"names": ["a"], "_type": "ClassLabel"}}}'
            ),
            'FOLDER/data-00000-of-00001.arrow:1: column "label": class 1, but dataset_info.json has names for 1',
        ),
    ],
)
def test_a_damaged_folder_is_one_clear_error(tmp_path, spoil, message):
    """Each file may be missing or broken; the error names it."""
    folder = save(tmp_path / "a", {"sentence": TEXT, "label": TONE}, TONES)
    spoil(folder)
    with pytest.raises(InputError) as caught:
        values(data(folder))
    assert str(caught.value).startswith(message.replace("FOLDER", str(folder)))
    assert "\n" not in str(caught.value)


def test_an_empty_data_set_is_refused(tmp_path):
    """It is saved without a file; one of no rows is refused as every file without records."""
    with pytest.raises(DataError, match="state.json: no records: the data set was empty when it was saved$"):
        values(data(save(tmp_path / "a", {"t": TEXT})))
    folder = save(tmp_path / "b", {"t": TEXT}, pa.table({"t": pa.array([], pa.string())}))
    with pytest.raises(DataError, match="no records in this file$"):
        values(data(folder))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"path": Source("run", "a")}, ("path", '"run:a" is a run, which holds no data; expected a folder or ')),
        ({"path": Source("hub", "org/name")}, ("split", 'missing; a data set of the hub has splits, as "train"')),
    ],
)
def test_what_check_refuses(settings, expected):
    """Before anything is read, and without the network."""
    ((field, message),) = Datasets(**settings).check()
    assert (field, message[: len(expected[1])]) == expected


def test_a_folder_has_no_configurations(tmp_path):
    """That is for the hub."""
    folder = save(tmp_path / "a", {"t": TEXT}, pa.table({"t": ["x"]}))
    expected = ("config", "a saved folder holds one configuration; leave it out")
    assert list(data(folder, config="mrpc").check()) == [expected]


def test_what_the_package_saves_is_read(tmp_path):
    """The package's own folders: shards, splits, chosen rows, and classes in lists and objects."""
    package = pytest.importorskip("datasets", reason="the extra datasets is not installed")
    tone = package.ClassLabel(names=["neg", "pos"])
    features = package.Features(
        {"t": package.Value("string"), "y": tone, "ys": package.Sequence(tone), "o": {"y": tone}, "os": [{"y": tone}]}
    )
    rows = [{"t": f"x{i}", "y": i % 2, "ys": [0, i % 2], "o": {"y": 1}, "os": [{"y": 0}]} for i in range(5)]
    table = package.Dataset.from_list(rows, features=features)
    table.save_to_disk(tmp_path / "a", num_shards=2)
    package.DatasetDict(train=table, test=table.select([3, 1])).save_to_disk(tmp_path / "b")
    names = ["neg", "pos"]
    expected = [
        {"t": f"x{i}", "y": names[i % 2], "ys": ["neg", names[i % 2]], "o": {"y": "pos"}, "os": [{"y": "neg"}]}
        for i in range(5)
    ]
    assert values(data(tmp_path / "a")) == expected
    assert values(data(tmp_path / "b", split="test")) == [expected[3], expected[1]]


# --- the hub ----------------------------------------------------------------------------------------------------------


def test_without_the_package_the_extra_is_named(monkeypatch):
    """One line that says what to install."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError) as caught:
        values(Datasets(path=Source("hub", "org/name"), split="train"))
    assert str(caught.value) == (
        "data.datasets: \"hub:org/name\" needs the package datasets: pip install 'rtx-transformers[datasets]', "
        "or name a folder that save_to_disk wrote"
    )


def test_the_hub_is_read_from_the_packages_cache(tmp_path, monkeypatch):
    """The package is asked for the split, and its Arrow files are read as a folder's; here by a stand-in."""
    folder = save(tmp_path / "a", {"sentence": TEXT, "label": TONE}, TONES)
    asked = []

    def load_dataset(name, config, **more):
        asked.append((name, config, more))
        return types.SimpleNamespace(
            cache_files=[{"filename": str(folder / "data-00000-of-00001.arrow")}],
            features=types.SimpleNamespace(to_dict=lambda: {"sentence": TEXT, "label": TONE}),
        )

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    source = Datasets(path=Source("hub", "org/name", "v1"), split="train", config="mrpc", limit=1)
    assert values(source) == [{"sentence": "a", "label": "pos"}]
    assert asked == [("org/name", "mrpc", {"split": "train", "revision": "v1"})]


def test_what_the_package_raises_is_one_line(monkeypatch):
    """Whatever it is, with the source's name."""

    def load_dataset(*_, **__):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(InputError) as caught:
        values(Datasets(path=Source("hub", "org/name"), split="train"))
    assert str(caught.value) == 'data.datasets: "hub:org/name" can\'t be loaded: no network'


PIPELINE = """
[task]
type = "sequence_classification"
[data]
type = "datasets"
[data.train]
path = "hub:org/name@v1"
split = "train"
[tokenizer]
type = "bpe"
[architecture]
type = "bert"
preset = "tiny"
[optimizer]
lr = 1e-4
[training]
duration = "1 step"
batch_size = 1
"""


def test_check_does_not_read_the_hub(tmp_path, monkeypatch):
    """A pipeline that names a data set of the hub is resolved without the package."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "a.toml").write_text(PIPELINE)
    pipeline = config.load(tmp_path / "a.toml", registry=Registry.discover([]))
    assert pipeline.data.train == Datasets(path=Source("hub", "org/name", "v1"), split="train")
