"""Reading and writing of weights, on plain tensors: names, the load guard, damaged files, memory."""

import json
import struct

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rtx_core import InputError, LoadRules, RunError, stored, weights
from rtx_core.model_folder import INDEX
from rtx_core.weights import LoadContext, LoadReport, load, load_exactly, write_model

BACKBONE = {
    "base.word_embeddings.weight": (6, 4),
    "base.position_embeddings.weight": (8, 4),
    "base.layer.0.dense.weight": (4, 4),
    "base.layer.0.norm.weight": (4,),
    "base.layer.0.norm.bias": (4,),
    "base.layer.0.gamma": (4,),
}
HEAD = {"classifier.weight": (2, 4), "classifier.bias": (2,)}


def tensors(shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def blank(shapes):
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


@pytest.fixture
def model():
    """The parameters of a model with a backbone and a head, all 0."""
    return blank(BACKBONE | HEAD)


def context(**settings):
    return LoadContext(base_prefix="base.", head=HEAD.keys(), **settings)


def rules(**settings):
    return context(rules=LoadRules(**settings))


def saved(folder, values):
    save_file(values, folder / weights.WEIGHTS, metadata={"format": "pt"})
    return folder


def assert_refused(folder, parameters, pattern, given=None):
    """The error matches, and no parameter was touched."""
    with pytest.raises(InputError, match=pattern) as caught:
        load(folder, parameters, given or context())
    assert "\n" not in str(caught.value)
    assert all((tensor == 0).all() for tensor in parameters.values())


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        str,
        lambda name: name.removeprefix("base."),
        lambda name: f"module.{name}",
        lambda name: name.replace("norm.weight", "norm.gamma").replace("norm.bias", "norm.beta"),
    ],
    ids=["as they are", "without prefix", "module.", "gamma and beta"],
)
def test_a_name_may_be_spelt_in_four_ways(tmp_path, model, change):
    """Every value arrives, whatever the spelling, and the report has our names."""
    values = tensors(BACKBONE | HEAD)
    saved(tmp_path, {change(name): value for name, value in values.items()})
    assert load(tmp_path, model, context()) == LoadReport(loaded=tuple(model), new=(), unused=())
    assert all(torch.equal(model[name], value) for name, value in values.items())


def test_a_gamma_that_is_no_norms_stays_one(tmp_path, model):
    """``layer.0.gamma`` is a parameter of its own here; a file that has it under another module's name lacks it."""
    values = tensors(BACKBONE | HEAD)
    values["base.layer.0.dense.gamma"] = values.pop("base.layer.0.gamma")
    assert_refused(
        saved(tmp_path, values), model, r"1 of the model's.*base\.layer\.0\.gamma.*1 of the file's.*dense\.gamma"
    )


@pytest.mark.parametrize(
    "name", ["base.beta_layer.weight", "base.layer.0.dense.beta", "base.gamma", "base.norm.gamma.x"]
)
def test_gamma_and_beta_are_old_names_of_norms_alone(tmp_path, name):
    """A module called beta, a tensor called gamma of something else, one below it: found as they are, never renamed."""
    today = {"base.beta_layer.weight": "base.weight_layer.weight", "base.gamma": "base.weight"}
    renamed = today.get(name, name.replace("gamma", "weight").replace("beta", "bias"))
    values = tensors({name: (4,)})
    saved(tmp_path, values)
    same = blank({name: (4,)})
    assert load(tmp_path, same, context()).loaded == (name,)
    assert torch.equal(same[name], values[name])
    assert_refused(tmp_path, blank({renamed: (4,)}), rf"{name.replace('.', chr(92) + '.')}")


def test_a_prefix_that_only_resembles_ours_is_another(tmp_path, model):
    """``database.`` is not ``base.``; nothing of such a file is loaded."""
    values = {f"data{name}": value for name, value in tensors(BACKBONE).items()}
    assert_refused(saved(tmp_path, values), model, r"6 of the model's tensors are not in the file")


def test_position_ids_are_passed_over(tmp_path, model):
    """A buffer of old files is neither loaded nor reported as unused."""
    values = tensors(BACKBONE | HEAD) | {"base.embeddings.position_ids": torch.arange(8)}
    assert load(saved(tmp_path, values), model, context()).unused == ()


def test_two_names_of_one_parameter_must_agree(tmp_path, model):
    """With and without prefix in one file: equal values are fine, different ones an error that names both."""
    values = tensors(BACKBONE | HEAD)
    values["layer.0.dense.weight"] = values["base.layer.0.dense.weight"].clone()
    load(saved(tmp_path, values), model, context())
    assert torch.equal(model["base.layer.0.dense.weight"], values["layer.0.dense.weight"])
    values["layer.0.dense.weight"][0, 0] += 1
    saved(tmp_path, values)
    assert_refused(
        tmp_path, blank(BACKBONE | HEAD), r"base\.layer\.0\.dense\.weight and layer\.0\.dense\.weight differ"
    )


def test_a_tied_parameter_is_found_under_either_name(tmp_path, model):
    """A file may hold a tied tensor under its second name alone."""
    tied = {"decoder.weight": "base.word_embeddings.weight"}
    values = tensors(BACKBONE | HEAD)
    table = values["decoder.weight"] = values.pop("base.word_embeddings.weight")
    assert load(saved(tmp_path, values), model, context(tied=tied)).new == ()
    assert torch.equal(model["base.word_embeddings.weight"], table)


# --- the load guard ---------------------------------------------------------------------------------------------------


def test_a_head_and_a_pooler_may_be_new_or_unused(tmp_path):
    """Those alone, with no rule; the report lists them and a new tensor keeps its values."""
    values = tensors(BACKBONE) | tensors({"base.pooler.weight": (4, 4), "cls.bias": (6,)})
    model = blank(BACKBONE | HEAD | {"pooler.scale": (4,)})
    model["classifier.bias"] += 7
    report = load(saved(tmp_path, values), model, context())
    assert report.new == ("classifier.weight", "classifier.bias", "pooler.scale")
    assert report.unused == ("base.pooler.weight", "cls.bias")
    assert (model["classifier.bias"] == 7).all()


def test_a_file_without_prefix_may_have_another_head(tmp_path, model):
    """What is a head is told by its first name: no module of the backbone has it."""
    bare = {name.removeprefix("base."): value for name, value in tensors(BACKBONE).items()}
    report = load(saved(tmp_path, bare | tensors({"qa_outputs.weight": (2, 4)})), model, context())
    assert report.unused == ("qa_outputs.weight",)
    assert_refused(
        saved(tmp_path, bare | tensors({"layer.1.dense.weight": (4, 4)})), blank(BACKBONE), r"layer\.1\.dense\.weight"
    )


@pytest.mark.parametrize("name", ["base.layer.1.dense.weight", "base.adapter.weight", "module.base.layer.1.norm.bias"])
def test_what_the_backbone_leaves_unused_is_refused(tmp_path, model, name):
    """A tensor of the file's backbone without a place is named, and ``allow_unused`` lets it go."""
    saved(tmp_path, tensors(BACKBONE | HEAD | {name: (4, 4)}))
    assert_refused(tmp_path, model, rf"1 of the file's have no place.*{name}.*allow_unused")
    assert load(tmp_path, model, rules(allow_unused=("*layer.1.*", "base.adapter.*"))).unused == (name,)


@pytest.mark.parametrize("pattern", ["base.layer.1.*", "layer.1.*"], ids=["public name", "the file's"])
def test_a_rule_for_unused_tensors_knows_the_prefix(tmp_path, model, pattern):
    """A pattern is of public names, also where the file leaves the prefix out; the file's own names fit too."""
    values = {name.removeprefix("base."): value for name, value in tensors(BACKBONE).items()}
    saved(tmp_path, values | {"layer.1.dense.weight": torch.ones(4, 4)})
    assert_refused(tmp_path, blank(BACKBONE | HEAD), r"layer\.1\.dense\.weight.*allow_unused")
    assert load(tmp_path, model, rules(allow_unused=(pattern,))).unused == ("layer.1.dense.weight",)


def test_what_the_backbone_lacks_is_refused(tmp_path, model):
    """Few of the missing tensors are named, all are counted, and ``allow_new`` permits them."""
    values = tensors(BACKBONE | HEAD)
    lacking = [name for name in values if "layer.0" in name]
    for name in lacking:
        del values[name]
    saved(tmp_path, values)
    assert_refused(tmp_path, model, r"4 of the model's .*\(base\.layer\.0\.dense\.weight, .* and 1 more\).*allow_new")
    assert load(tmp_path, model, rules(allow_new=("base.layer.0.*",))).new == tuple(lacking)


def test_the_error_says_what_the_folder_holds(tmp_path, model):
    """The model type of config.json tells at once that it is a file of something else."""
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert_refused(saved(tmp_path, tensors({"h.0.weight": (2, 2)})), model, r'\(model_type "gpt2"\)')


# --- shapes and dtypes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "table"),
    [("base.word_embeddings.weight", "vocabulary"), ("base.position_embeddings.weight", "position table")],
)
@pytest.mark.parametrize("more", [2, -2])
def test_a_table_with_other_rows_is_named(tmp_path, model, name, table, more):
    """Case 22: the message has both numbers of rows, in a file with more and with fewer of them."""
    ours = BACKBONE[name][0]
    saved(tmp_path, tensors(BACKBONE | HEAD | {name: (ours + more, 4)}))
    assert_refused(tmp_path, model, rf"the {table} has {ours + more} rows in the file and {ours} in the model")


def test_another_shape_is_refused_before_anything_is_read(tmp_path, model):
    """The first that differs is shown with both shapes and the rest counted, whatever else is wrong."""
    shapes = {name: (*shape[:-1], 5) for name, shape in (BACKBONE | HEAD).items()} | {"base.more": (1,)}
    saved(tmp_path, tensors(shapes))
    assert_refused(tmp_path, model, r"word_embeddings\.weight has shape \[6, 5\], .* \[6, 4\], and 7 more differ")


def test_a_head_for_other_classes_is_refused_unless_allowed(tmp_path, model):
    """A classifier of 3 classes can't start one of 2; a rule starts it anew and reports the file's as unused."""
    saved(tmp_path, tensors(BACKBONE | {"classifier.weight": (3, 4), "classifier.bias": (3,)}))
    assert_refused(tmp_path, model, r"trained for 3 outputs, this one has 2.*reinit_head = true")
    for rule in ({"allow_new": ("classifier.*",)}, {"reinit_head": True}):
        report = load(tmp_path, model, rules(**rule))
        assert report.new == ("classifier.weight", "classifier.bias")
        assert set(report.unused) == set(report.new)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_values_are_converted_to_the_models_dtype(tmp_path, model, dtype):
    """A file in another precision fills float32 parameters with exactly its values."""
    values = {name: value.to(dtype) for name, value in tensors(BACKBONE | HEAD).items()}
    load(saved(tmp_path, values), model, context())
    for name, value in values.items():
        assert model[name].dtype == torch.float32
        assert torch.equal(model[name], value.float())


def test_quantised_weights_are_refused(tmp_path, model):
    """Integers of the right shape are not taken for numbers to train."""
    values = tensors(BACKBONE | HEAD) | {"base.layer.0.dense.weight": torch.ones(4, 4, dtype=torch.int8)}
    assert_refused(saved(tmp_path, values), model, r"base\.layer\.0\.dense\.weight is stored as I8")


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1e39])
def test_what_is_no_number_is_refused(tmp_path, model, value):
    """Training would go on with NaN; a number that float32 doesn't have is as bad. An unused tensor may hold any."""
    values = {name: tensor.double() for name, tensor in tensors(BACKBONE | HEAD).items()}
    values["base.layer.0.dense.weight"][1, 2] = value
    assert_refused(
        saved(tmp_path, values), model, r"safetensors: base\.layer\.0\.dense\.weight holds NaN, infinities or"
    )
    values["other.mask"] = values.pop("base.layer.0.dense.weight")
    allowed = rules(allow_new=["base.layer.0.dense.weight"], allow_unused=["other.*"])
    assert load(saved(tmp_path, values), model, allowed).unused == ("other.mask",)


def test_a_tensor_of_another_shape_starts_anew_where_it_is_allowed(tmp_path, model):
    """The model's is new and the file's unused, by the one rule."""
    values = tensors(BACKBONE | HEAD) | {"base.layer.0.dense.weight": torch.ones(5, 4)}
    report = load(saved(tmp_path, values), model, rules(allow_new=["base.layer.0.*.weight"]))
    assert report.new == report.unused == ("base.layer.0.dense.weight",)
    assert model["base.layer.0.norm.weight"].ne(0).all()


def test_large_tensors_are_read_in_pieces(tmp_path, monkeypatch):
    """However few numbers fit into a piece, every value arrives, in every number of dimensions."""
    values = tensors({"a": (7, 3), "b": (5,), "c": (2, 3, 4), "d": ()}) | {"e": torch.zeros(0, 3)}
    saved(tmp_path, values)
    for piece in (1, 2, 7, 100):
        monkeypatch.setattr(stored, "_PIECE", piece)
        filled = {name: torch.full_like(value, -1) for name, value in values.items()}
        load_exactly(tmp_path, filled)
        assert all(torch.equal(filled[name], value) for name, value in values.items())


# --- shards -----------------------------------------------------------------------------------------------------------


def sharded(folder, values, **changes):
    """A file for each tensor, and an index."""
    for number, (name, value) in enumerate(values.items()):
        save_file({name: value}, folder / f"model-{number}.safetensors", metadata={"format": "pt"})
    places = {name: f"model-{number}.safetensors" for number, name in enumerate(values)}
    (folder / INDEX).write_text(json.dumps({"weight_map": places | changes}))
    return folder


def test_shards_are_one_checkpoint(tmp_path, model):
    """The index says which file a tensor is in."""
    values = tensors(BACKBONE | HEAD)
    assert load(sharded(tmp_path, values), model, context()).new == ()
    assert all(torch.equal(model[name], value) for name, value in values.items())


@pytest.mark.parametrize("place", ["../model-0.safetensors", "/model-0.safetensors", "..", "", 3, None])
def test_an_index_names_only_files_beside_it(tmp_path, model, place):
    """A path out of the folder, or something that is no name, is refused."""
    folder = tmp_path / "model"
    folder.mkdir()
    sharded(folder, tensors(BACKBONE | HEAD), **{"classifier.bias": place})
    assert_refused(folder, model, r"index\.json.*name of a file beside it")


def test_an_index_that_promises_too_much_is_refused(tmp_path, model):
    """A missing shard, and a tensor that its shard lacks, are named."""
    sharded(tmp_path, tensors(BACKBONE | HEAD), **{"classifier.bias": "model-0.safetensors"})
    assert_refused(tmp_path, model, r"classifier\.bias are not in the files")
    (tmp_path / "model-1.safetensors").unlink()
    assert_refused(tmp_path, model, r"lacks model-1\.safetensors, which model\.safetensors\.index\.json names")


@pytest.mark.parametrize("copied", ["classifier.bias", "base.layer.9.extra"], ids=["in two shards", "in no index"])
def test_an_index_that_does_not_fit_its_files_is_refused(tmp_path, model, copied):
    """A shard with a tensor that the index has elsewhere, or doesn't have: which one counts can't be told."""
    values = tensors(BACKBONE | HEAD)
    sharded(tmp_path, values)
    first = next(iter(values))
    save_file({first: values[first], copied: torch.ones(2)}, tmp_path / "model-0.safetensors")
    assert_refused(tmp_path, model, rf"index\.json.*doesn't fit its files: {copied} are in others than it says")


@pytest.mark.parametrize("prefix", ["base.", "", "module.", "module.base."])
def test_names_in_shards_may_vary_too(tmp_path, model, prefix):
    """With and without prefix, below ``module.`` and with old norms: what holds for a file holds for shards."""
    values = tensors(BACKBONE | HEAD)

    def change(name):
        old = name.replace("norm.weight", "norm.gamma").replace("norm.bias", "norm.beta")
        return old if name in HEAD else prefix + old.removeprefix("base.")

    sharded(tmp_path, {change(name): value for name, value in values.items()})
    assert load(tmp_path, model, context()) == LoadReport(loaded=tuple(model), new=(), unused=())
    assert all(torch.equal(model[name], value) for name, value in values.items())


def test_a_cut_shard_is_refused(tmp_path, model):
    """It is named, and the shards before it have filled nothing."""
    sharded(tmp_path, tensors(BACKBONE | HEAD))
    file = tmp_path / "model-3.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert_refused(tmp_path, model, r"model-3\.safetensors can't be read")


# --- files that can't be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "last.ckpt"])
def test_pickled_weights_are_refused(tmp_path, model, name):
    """A format that can run code is not opened; the line says how to convert it."""
    (tmp_path / name).write_bytes(b"not even read")
    assert_refused(tmp_path, model, rf"{name}.*can run code.*rtx_core convert .* NEW")


@pytest.mark.parametrize("name", ["model.safetensors", "model-00002-of-00003.safetensors"])
def test_a_pointer_of_git_lfs_is_refused(tmp_path, model, name):
    """A clone without Git LFS has a few lines of text in place of the file, or of a shard; the line says so."""
    (tmp_path / INDEX).write_text("{}")
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    assert_refused(tmp_path, model, rf"Git LFS's pointer to {name}")


def test_a_folder_without_weights_is_refused(tmp_path, model):
    """Nothing to load is one clear line."""
    assert_refused(tmp_path, model, r"has no model\.safetensors")


@pytest.mark.parametrize("kept", [0, 5, 40, -1], ids=["empty", "in the length", "in the header", "in the data"])
def test_a_cut_file_is_refused(tmp_path, model, kept):
    """Wherever a file ends too early, it is an error with its name."""
    file = saved(tmp_path, tensors(BACKBONE | HEAD)) / weights.WEIGHTS
    file.write_bytes(file.read_bytes()[:kept])
    assert_refused(tmp_path, model, r"model\.safetensors can't be read")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weight_map": []}', "\xff"])
def test_a_bad_index_is_refused(tmp_path, model, text):
    """An index that is no JSON object, or has no map, is an error with its name."""
    (tmp_path / INDEX).write_bytes(text.encode("latin-1"))
    assert_refused(tmp_path, model, r"index\.json")


def test_config_is_read_strictly(tmp_path):
    """An object is returned; a missing file, other JSON and no JSON are one line each."""
    with pytest.raises(InputError, match=r"there is no .*config\.json"):
        weights.read_config(tmp_path)
    for text, pattern in (("[]", "no JSON object"), ("{,}", "is not JSON")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InputError, match=pattern):
            weights.read_config(tmp_path)
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    assert weights.read_config(tmp_path) == {"hidden_size": 8}


def test_load_exactly_wants_the_same_model(tmp_path):
    """Another name or another shape is refused, and nothing is changed."""
    saved(tmp_path, tensors(BACKBONE))
    for other, message in (
        (blank(BACKBONE | HEAD), r"another model: classifier\.bias, classifier\.weight are not in both"),
        (blank(BACKBONE | {"base.layer.0.gamma": (5,)}), r"base\.layer\.0\.gamma is F32 \[4\], in this one .* \[5\]"),
    ):
        with pytest.raises(InputError, match=message):
            load_exactly(tmp_path, other)
        assert all((tensor == 0).all() for tensor in other.values())
    same = blank(BACKBONE)
    load_exactly(tmp_path, same)
    assert all(torch.equal(same[name], value) for name, value in tensors(BACKBONE).items())


# --- writing ----------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_back(tmp_path):
    """Values of any layout arrive, and the config is strict JSON with sorted keys."""
    values = tensors({"a": (4, 6), "b": (3,)}) | {"c": torch.arange(6.0).reshape(2, 3).T, "d": torch.tensor(2.0)}
    write_model(tmp_path, values, {"model_type": "x", "id2label": {"0": "né"}})
    read = load_file(tmp_path / weights.WEIGHTS)
    assert read.keys() == values.keys()
    assert all(torch.equal(read[name], value) for name, value in values.items())
    assert (tmp_path / "config.json").read_text(encoding="utf-8") == (
        '{\n  "id2label": {\n    "0": "né"\n  },\n  "model_type": "x"\n}\n'
    )


def test_the_file_has_one_metadata_key_and_always_the_same_bytes(tmp_path):
    """``format: pt`` alone, as transformers asks for; equal models are equal files."""
    contents = set()
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        write_model(folder, tensors(BACKBONE | HEAD), {})
        contents.add((folder / weights.WEIGHTS).read_bytes())
        with safe_open(folder / weights.WEIGHTS, framework="pt") as file:
            assert file.metadata() == {"format": "pt"}
    (content,) = contents
    (length,) = struct.unpack("<Q", content[:8])
    assert json.loads(content[8 : 8 + length])["__metadata__"] == {"format": "pt"}


def test_a_tensor_with_two_names_is_written_once(tmp_path):
    """Tied tensors stand under their first name; views of one memory that differ are written whole."""
    table = torch.arange(12.0).reshape(4, 3)
    write_model(tmp_path, {"table": table, "decoder": table, "top": table[:2], "bottom": table[2:]}, {})
    read = load_file(tmp_path / weights.WEIGHTS)
    assert read.keys() == {"table", "top", "bottom"}
    assert torch.equal(read["bottom"], table[2:])


def test_a_colleague_may_read_what_is_written(tmp_path):
    """The files have the folder's permissions, not safetensors' private ones."""
    tmp_path.chmod(0o750)
    write_model(tmp_path, tensors(HEAD), {})
    assert (tmp_path / weights.WEIGHTS).stat().st_mode & 0o777 == 0o640


def test_a_failing_disk_is_one_line(tmp_path):
    """A folder that isn't there stands for a disk that fails: a run's error that names the file."""
    with pytest.raises(RunError, match=r"gone/model\.safetensors can't be written"):
        write_model(tmp_path / "gone", tensors(HEAD), {})
