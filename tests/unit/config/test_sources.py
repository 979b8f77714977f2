"""Several sources of training records, and records from Python in place of a table."""

from __future__ import annotations

import pytest

from rtx_core.config import load
from rtx_core.config.pipeline import Sources
from rtx_core.errors import InputError, PipelineError
from rtx_core.python_records import sources_of

TABLE = '[data.train]\nfiles = ["train.jsonl"]\n'
INLINE = 'train = [{{ files = ["train.jsonl"]{} }}, {{ files = ["other.jsonl"]{} }}]\n'


@pytest.fixture
def with_sources(base):
    """The valid pipeline with ``train`` as it is written instead of its table."""

    def text(train):
        return base.replace(TABLE, train if train.startswith("[") else "").replace(
            'type = "jsonl"\n', 'type = "jsonl"\n' + ("" if train.startswith("[") else train)
        )

    return text


# --- several sources --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "weights"),
    [
        (INLINE.format("", ""), None),
        (INLINE.format(", weight = 1", ", weight = 2.5"), (1.0, 2.5)),
        (
            TABLE.replace("[data.train]", "[[data.train]]\nweight = 1")
            + '[[data.train]]\nfiles = ["other.jsonl"]\nweight = 3\n',
            (1.0, 3.0),
        ),
    ],
)
def test_train_may_have_several_sources(loaded, with_sources, folder, train, weights):
    """A list of tables, inline or not; keys of ``[data]`` are defaults of each, and the core adds the weight."""
    pipeline = loaded(with_sources(train).replace('type = "jsonl"\n', 'type = "jsonl"\nlimit = 7\n'))
    sources = pipeline.data.train
    assert isinstance(sources, Sources)
    assert [source.files for source in sources.sources] == [(folder / "train.jsonl",), (folder / "other.jsonl",)]
    assert {source.limit for source in sources.sources} == {7}
    assert sources.weights == weights
    assert pipeline.chosen["data.train[1]"].name == "jsonl"
    assert [record.file for record in sources.records()] == [
        str(folder / f"{name}.jsonl") for name in ("train", "other")
    ]


def test_sources_may_be_of_different_types(loaded, with_sources, folder):
    """Each may have a type of its own, which then takes no defaults of another."""
    (folder / "a.csv").write_text("text,label\na,x\n", "utf-8")
    text = with_sources('train = [{ files = ["train.jsonl"] }, { type = "csv", files = ["a.csv"], delimiter = "," }]\n')
    first, second = loaded(text).data.train.sources
    assert (type(first).__name__, type(second).__name__) == ("Jsonl", "Csv")


def test_sources_can_be_set_on_the_command_line(loaded, base, folder):
    """``--set data.train=[…]`` is a TOML value there too."""
    pipeline = loaded(base, 'data.train=[{ files = ["other.jsonl"], weight = 2 }]')
    assert pipeline.data.train.weights == (2.0,)
    assert pipeline.data.train.sources[0].files == (folder / "other.jsonl",)


@pytest.mark.parametrize("weights", [("", ""), (", weight = 1", ", weight = 2.5")])
def test_resolved_gives_the_same_sources(loaded, with_sources, registry, tmp_path, weights):
    """resolved.toml has each source with its weight and reads back to equal ones."""
    from rtx_core.config import resolved_toml

    first = loaded(with_sources(INLINE.format(*weights)))
    (tmp_path / "resolved.toml").write_text(resolved_toml(first), "utf-8")
    second = load("resolved.toml", registry=registry, working_directory=tmp_path)
    assert second.data == first.data
    assert resolved_toml(second) == resolved_toml(first)


def test_the_fingerprint_knows_every_source(loaded, with_sources, folder):
    """Another content of any source, or another order of them, is another fingerprint."""
    forwards = loaded(with_sources(INLINE.format("", ""))).data.train
    (folder / "other.jsonl").write_text('{"text": "c", "label": "y"}\n', "utf-8")
    changed = forwards.fingerprint()
    backwards = Sources(sources=forwards.sources[::-1]).fingerprint()
    (folder / "other.jsonl").write_text('{"text": "a b", "label": "x"}\n', "utf-8")
    assert len({forwards.fingerprint(), changed, backwards}) == 3


@pytest.mark.parametrize(
    ("train", "at", "expected"),
    [
        ("train = []\n", "[]", "data.train: expected at least one source, got an empty list"),
        ("train = [1]\n", "1]", "data.train[0]: expected a table, got 1"),
        ('train = "x.jsonl"\n', '"x', 'data.train: expected a table, got "x.jsonl"'),
        (
            INLINE.format(", weight = 1", ""),
            '{ files = ["other',
            "data.train[1].weight: missing; other sources have one: give every source a weight, or none",
        ),
        (INLINE.format(", weight = 0", ", weight = 1"), "0", "data.train[0].weight: must be > 0.0, got 0"),
        (INLINE.format("", ", weight = nan"), "nan", "data.train[1].weight: expected a finite number, got nan"),
        (INLINE.format(', weight = "1"', ", weight = 1"), '"1"', "data.train[0].weight: expected a number, "),
        (INLINE.format(", limt = 1", ""), "limt", 'data.train[0].limt: unknown key; did you mean "limit"?'),
        (INLINE.format("", "").replace("other", "gone"), '"gone', "data.train[1].files[0]: no such file: "),
        ('train = [{ type = "nope" }]\n', '"nope', 'data.train[0].type: no data "nope" is installed'),
    ],
)
def test_sources_with_a_mistake(lines, with_sources, train, at, expected):
    """Each mistake is one problem, at its place in the list."""
    (line,) = lines(with_sources(train))
    assert line.startswith(f"pipeline.toml:8:{train.index(at) + 1}: {expected}")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            '[data.eval]\nfiles = ["eval.jsonl"]\n',
            '[[data.eval]]\nfiles = ["eval.jsonl"]\n',
            "data.eval: only train has several sources, give one table; several evaluation sets have names: [data.eval",
        ),
        (
            "[tokenizer]",
            '[[data.test]]\nfiles = ["eval.jsonl"]\n[tokenizer]',
            "data.test: only train has several sources, give one table",
        ),
    ],
)
def test_only_train_has_several_sources(lines, base, old, new, expected):
    """For evaluation the error says what is meant instead."""
    (line,) = lines(base.replace(old, new))
    assert f": {expected}" in line


# --- from Python ------------------------------------------------------------------------------------------------------


ROWS = [{"text": "a", "label": "x"}]


@pytest.fixture
def given(registry, folder):
    """Load a text with records from Python."""

    def load_text(text, **data):
        (folder / "pipeline.toml").write_text(text, "utf-8")
        return load("pipeline.toml", registry=registry, working_directory=folder, data=sources_of(data))

    return load_text


def test_records_from_python_replace_a_table(given, folder, base):
    """What the file says of that set is not looked at; the others stay."""
    (folder / "train.jsonl").unlink()
    pipeline = given(base, train=ROWS)
    assert [(r.values, r.file, r.line) for r in pipeline.data.train.records()] == [(ROWS[0], "train", 1)]
    assert pipeline.data.eval[""].files == (folder / "eval.jsonl",)
    assert pipeline.resolved["data"]["train"] == {"type": "python"}


@pytest.mark.parametrize("data", ["", "[data]\n", "[data]\nsplit = { test = 0.1 }\n"])
def test_tables_may_be_left_out(given, base, data):
    """With records from Python ``[data]`` needs no sets, or need not be there."""
    start, end = base.index("[data]"), base.index("[tokenizer]")
    pipeline = given(base[:start] + data + base[end:], train=ROWS, eval={"b": ROWS, "a": ROWS})
    assert list(pipeline.data.eval) == ["b", "a"]
    assert pipeline.monitor == "eval/b/loss"
    assert pipeline.resolved["data"]["eval"] == {"b": {"type": "python"}, "a": {"type": "python"}}


def test_a_monitor_of_a_set_from_python(given, base):
    """Names of evaluation sets are those that were handed over."""
    text = base.replace("batch_size = 8", 'batch_size = 8\nmonitor = "eval/a/loss"')
    assert given(text, eval={"a": ROWS}).monitor == "eval/a/loss"
    with pytest.raises(PipelineError, match='no evaluation produces "eval/a/loss"; there are eval/b/loss'):
        given(text, eval={"b": ROWS})


def test_a_file_can_not_stand_for_records_from_python(given, lines, base):
    """A resolved.toml says that its records came from Python, and takes them again."""
    text = base.replace('files = ["train.jsonl"]', 'type = "python"')
    (line,) = lines(text)
    assert line.startswith("pipeline.toml:9:8: data.train.type: these records came from Python: Pipeline.load(…, data=")
    assert given(text, train=ROWS).data.train.name == "train"


def test_an_unknown_set_is_refused():
    """The sets there are are named."""
    with pytest.raises(InputError, match=r"data: there is no set 'valid'; the sets are train, eval, test"):
        sources_of({"valid": ROWS})
