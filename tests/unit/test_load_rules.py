"""``[architecture.load]`` on small models of every family: other rows, fewer layers, longer positions, another head."""

import json

import attrs
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rtx_core import InputError, LoadRules, Outputs, build, weights
from rtx_core.model import initialize, make_model
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.architectures.distilbert import DistilBert
from rtx_plugins.architectures.modernbert import ModernBert
from rtx_plugins.architectures.roberta import Roberta

SIZES = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 12}
FAMILIES = {
    "bert": Bert(**SIZES, max_position_embeddings=6),
    "roberta": Roberta(**SIZES, max_position_embeddings=10, pad_token_id=3),
    "distilbert": DistilBert(dim=8, n_layers=3, n_heads=2, hidden_dim=12, max_position_embeddings=6),
    "modernbert": ModernBert(**SIZES),
}
LAYERS = {family: "n_layers" if family == "distilbert" else "num_hidden_layers" for family in FAMILIES}
WITH_POSITIONS = [family for family in FAMILIES if family != "modernbert"]
RESERVED = {"bert": 0, "roberta": 4, "distilbert": 0}
"""Rows in front of the position table that belong to no position."""
LABELS = ("animal", "food", "person")
CLASSES = Outputs(size=3, labels=LABELS)
SEED = 5
each_family = pytest.mark.parametrize("family", FAMILIES)
each_with_positions = pytest.mark.parametrize("family", WITH_POSITIONS)


def words(rows):
    """What a language model predicts."""
    return Outputs(size=rows)


def task_of(outputs):
    """A classifier's where outputs have labels, else a language model's."""
    return "masked_lm" if outputs.labels is None else "sequence_classification"


def made(architecture, outputs, rows=20, seed=SEED, task=None):
    """A model from the seed, with the task's native head."""
    task = task or task_of(outputs)
    return make_model(
        architecture, architecture.native_head(task), task=task, outputs=outputs.size, vocab_size=rows, seed=seed
    )


def write(folder, architecture, outputs, rows=20, task=None):
    """Random weights in a folder; its tensors by name."""
    task = task or task_of(outputs)
    model = made(architecture, outputs, rows, task=task)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            parameter.normal_(generator=generator)
    weights.write_model(folder, model.tensors(), architecture.hf_config(task, outputs))
    return load_file(folder / weights.WEIGHTS)


def load(folder, architecture, outputs, rows=20, task=None, **rules):
    """A model from the seed that was filled from a folder as a run does it, its tensors by name, and the report."""
    architecture = attrs.evolve(architecture, load=LoadRules(**rules))
    task = task or task_of(outputs)
    model = made(architecture, outputs, rows, task=task)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)  # whatever is neither loaded nor initialised is seen
    context = build.load_context(model, architecture, outputs, task=task)
    report = weights.load(folder, model.parameters_by_name(), context, lambda names: initialize(model, names, SEED))
    assert not any(tensor.isnan().any() for tensor in model.tensors().values())
    return model, model.tensors(), report


def fresh(architecture, outputs, rows=20):
    """The tensors of a model from the seed alone."""
    return made(architecture, outputs, rows).tensors()


def table_of(family):
    """The name of the token table."""
    prefix = "model" if family == "modernbert" else family
    return f"{prefix}.embeddings.{'tok' if family == 'modernbert' else 'word'}_embeddings.weight"


def positions_of(family):
    return f"{family}.embeddings.position_embeddings.weight"


# --- names ------------------------------------------------------------------------------------------------------------


def old_norms(name):
    """A norm's parameters as the first releases called them."""
    module, _, kind = name.rpartition(".")
    return (
        f"{module}.{ {'weight': 'gamma', 'bias': 'beta'}[kind] }" if "norm" in module.split(".")[-1].lower() else name
    )


@each_family
@pytest.mark.parametrize(
    ("module", "has_prefix", "change"),
    [
        ("", False, str),
        ("module.", True, str),
        ("module.", False, str),
        ("", True, old_norms),
        ("module.", False, old_norms),
    ],
)
def test_the_encoder_is_found_however_it_is_called(tmp_path, family, module, has_prefix, change):
    """Case 21: with prefix or without, below ``module.``, with old norms: all of it arrives, only the head is new."""
    stored = write(tmp_path, FAMILIES[family], CLASSES)
    prefix = table_of(family).partition(".")[0] + "."
    encoder = {name: tensor for name, tensor in stored.items() if name.startswith(prefix)}
    file = {
        module + change(name if has_prefix else name.removeprefix(prefix)): tensor for name, tensor in encoder.items()
    }
    save_file(file, tmp_path / weights.WEIGHTS)
    _, tensors, report = load(tmp_path, FAMILIES[family], CLASSES)
    assert set(report.new) == stored.keys() - encoder.keys()
    assert report.unused == ()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in encoder.items())


@each_family
def test_renamed_weights_are_refused(tmp_path, family):
    """Case 21: nothing of the file is known; the message counts what is missing and what is left, and names some."""
    stored = write(tmp_path, FAMILIES[family], CLASSES)
    save_file({f"other.{name}": tensor for name, tensor in stored.items()}, tmp_path / weights.WEIGHTS)
    with pytest.raises(
        InputError, match=rf"of the model's tensors are not in the file \({table_of(family)}, .* more\)"
    ):
        load(tmp_path, FAMILIES[family], CLASSES)


@each_family
@pytest.mark.parametrize("kept", ["table", "decoder", "both"])
def test_a_tied_table_is_found_under_its_name_the_decoders_or_both(tmp_path, family, kept):
    """Case 20: it is one tensor afterwards; two that differ are refused, both named."""
    stored = write(tmp_path, FAMILIES[family], words(20))
    (decoder,) = (name for name in made(FAMILIES[family], words(20)).tied_names() if name.endswith(".weight"))
    table = stored[table_of(family)]
    file = stored | {decoder: table.clone()}
    if kept != "both":
        del file[decoder if kept == "table" else table_of(family)]
    save_file(file, tmp_path / weights.WEIGHTS)
    model, tensors, report = load(tmp_path, FAMILIES[family], words(20))
    assert (report.new, report.unused) == ((), ())
    assert torch.equal(tensors[table_of(family)], table)
    assert model.head.decoder.weight is model.backbone.input_embeddings
    if kept == "both":
        file[decoder][19, 7] += 1
        save_file(file, tmp_path / weights.WEIGHTS)
        with pytest.raises(InputError, match=rf"{decoder}.* differ, and in the model both are {table_of(family)}"):
            load(tmp_path, FAMILIES[family], words(20))


@each_family
def test_an_untied_decoder_is_a_tensor_of_its_own(tmp_path, family):
    """Case 20: with ``tie_word_embeddings = false`` table and decoder may differ, and each arrives."""
    untied = attrs.evolve(FAMILIES[family], tie_word_embeddings=False)
    stored = write(tmp_path, untied, words(20))
    model, tensors, report = load(tmp_path, untied, words(20))
    assert (report.new, report.unused) == ((), ())
    assert all(torch.equal(tensors[name], stored[name]) for name in stored)
    assert not torch.equal(model.head.decoder.weight, model.backbone.input_embeddings)


# --- resize -----------------------------------------------------------------------------------------------------------


@each_family
@pytest.mark.parametrize("tied", [True, False])
def test_a_larger_vocabulary_adds_rows_from_the_seed(tmp_path, family, tied):
    """The file's rows stay, the further ones are those of a start from the seed; decoder and bias follow."""
    architecture = attrs.evolve(FAMILIES[family], tie_word_embeddings=tied)
    stored = write(tmp_path, architecture, words(20))
    model, tensors, report = load(tmp_path, architecture, words(26), 26, resize=True)
    expected = fresh(architecture, words(26), 26)
    of_tokens = {name for name, tensor in stored.items() if tensor.shape[0] == 20}
    assert set(report.resized) == of_tokens
    assert len(of_tokens) == {True: 2, False: 4 if family in ("bert", "roberta") else 3}[tied]
    assert table_of(family) in of_tokens
    for name in of_tokens:
        assert torch.equal(tensors[name], torch.cat([stored[name], expected[name][20:]])), name
    assert report.new == report.unused == report.notes == ()
    assert set(report.loaded) == tensors.keys() - of_tokens
    assert all(torch.equal(tensors[name], stored[name]) for name in report.loaded)
    assert (model.head.decoder.weight is model.backbone.input_embeddings) == tied


@each_family
def test_a_smaller_vocabulary_leaves_the_last_rows_out(tmp_path, family):
    """Table and bias are the file's first rows, in a language model and in a classifier."""
    stored = write(tmp_path, FAMILIES[family], words(20))
    for outputs in (words(15), CLASSES):
        _, tensors, report = load(tmp_path, FAMILIES[family], outputs, 15, resize=True)
        assert table_of(family) in report.resized
        assert all(torch.equal(tensors[name], stored[name][:15]) for name in report.resized)
        assert len(report.resized) == (1 if outputs is CLASSES else 2)


@each_family
@pytest.mark.parametrize("rows", [19, 21])
def test_other_rows_need_the_rule(tmp_path, family, rows):
    """Both numbers are said, and the rule that permits it; nothing else is loaded either."""
    write(tmp_path, FAMILIES[family], words(20))
    message = rf"vocabulary has 20 rows in the file and {rows} in the model \({table_of(family)}\).*resize = true"
    with pytest.raises(InputError, match=message):
        load(tmp_path, FAMILIES[family], words(rows), rows)


def test_a_rule_to_resize_what_fits_changes_nothing(tmp_path):
    """As many rows as the file: everything comes whole, and there is nothing to say."""
    stored = write(tmp_path, FAMILIES["bert"], words(20))
    _, tensors, report = load(tmp_path, FAMILIES["bert"], words(20), resize=True)
    assert report.resized == report.notes == ()
    assert all(torch.equal(tensors[name], stored[name]) for name in stored)


def test_rows_are_all_that_is_resized(tmp_path):
    """A table of another width is refused whatever the rule says."""
    write(tmp_path, FAMILIES["bert"], words(20))
    wider = attrs.evolve(FAMILIES["bert"], hidden_size=12)
    with pytest.raises(InputError, match=r"has shape \[20, 8\], the model's .* \[26, 12\]"):
        load(tmp_path, wider, words(26), 26, resize=True)


def test_a_decoder_that_contradicts_the_table_is_refused_in_any_size(tmp_path):
    """Case 20: both are in the file and differ; resizing doesn't hide it."""
    stored = write(tmp_path, FAMILIES["bert"], words(20))
    stored["cls.predictions.decoder.weight"] = stored[table_of("bert")] + 1
    save_file(stored, tmp_path / weights.WEIGHTS)
    for rows in (20, 26):
        with pytest.raises(InputError, match=r"decoder\.weight differ.*tie_word_embeddings = false"):
            load(tmp_path, FAMILIES["bert"], words(rows), rows, resize=True)


# --- first_layers -----------------------------------------------------------------------------------------------------


@each_family
def test_the_first_layers_of_a_deeper_file_are_taken(tmp_path, family):
    """With the rule the rest is unused; without it the message names the rule."""
    stored = write(tmp_path, FAMILIES[family], words(20))
    shallow = attrs.evolve(FAMILIES[family], **{LAYERS[family]: 2})
    with pytest.raises(InputError, match=r"more layers than the model, .*\.2\..* first_layers = true"):
        load(tmp_path, shallow, words(20))
    _, tensors, report = load(tmp_path, shallow, words(20), first_layers=True)
    assert set(report.unused) == stored.keys() - tensors.keys()
    assert all(".2." in name for name in report.unused)
    assert report.new == report.notes == ()
    assert all(torch.equal(tensors[name], stored[name]) for name in tensors)


def test_the_first_layers_of_a_file_without_prefix_are_taken(tmp_path):
    """The encoder alone, as its own class saves it, with a second digit among the layers' numbers."""
    deep = attrs.evolve(FAMILIES["bert"], num_hidden_layers=12)
    stored = {name.removeprefix("bert."): tensor for name, tensor in write(tmp_path, deep, CLASSES).items()}
    save_file(stored, tmp_path / weights.WEIGHTS)
    _, tensors, report = load(tmp_path, attrs.evolve(deep, num_hidden_layers=10), CLASSES, first_layers=True)
    assert {name.split(".")[2] for name in report.unused} == {"10", "11"}
    assert torch.equal(
        tensors["bert.encoder.layer.9.output.dense.weight"], stored["encoder.layer.9.output.dense.weight"]
    )


@pytest.mark.parametrize(
    "name", ["bert.encoder.layer.1.adapter.weight", "bert.encoder.norm.weight", "bert.extra.3.bias"]
)
def test_first_layers_lets_nothing_else_go(tmp_path, name):
    """What is left over and is of no further layer is refused as ever."""
    stored = write(tmp_path, FAMILIES["bert"], words(20))
    save_file(stored | {name: torch.ones(3)}, tmp_path / weights.WEIGHTS)
    shallow = attrs.evolve(FAMILIES["bert"], num_hidden_layers=2)
    with pytest.raises(InputError, match=rf"1 of the file's have no place in the model \({name}\).*allow_unused"):
        load(tmp_path, shallow, words(20), first_layers=True)


def test_first_layers_adds_none(tmp_path):
    """More layers than the file has need another rule."""
    write(tmp_path, FAMILIES["bert"], words(20))
    deep = attrs.evolve(FAMILIES["bert"], num_hidden_layers=4)
    with pytest.raises(InputError, match=r"16 of the model's.*layer\.3.*allow_new"):
        load(tmp_path, deep, words(20), first_layers=True)


# --- positions --------------------------------------------------------------------------------------------------------


def longer(family, more=9):
    architecture = FAMILIES[family]
    return attrs.evolve(architecture, max_position_embeddings=architecture.max_position_embeddings + more)


@each_with_positions
def test_positions_can_be_repeated(tmp_path, family):
    """Position p has the row of p modulo the file's number of positions; rows of no position stay in front."""
    stored = write(tmp_path, FAMILIES[family], words(20))[positions_of(family)]
    _, tensors, report = load(tmp_path, longer(family), words(20), positions="repeat")
    first = RESERVED[family]
    expected = [*range(first), *(first + position % 6 for position in range(15))]
    assert torch.equal(tensors[positions_of(family)], stored[expected])
    assert report.resized == (positions_of(family),)
    assert report.new == report.unused == report.notes == ()


@each_with_positions
def test_positions_can_be_drawn_apart(tmp_path, family):
    """Each channel is a line through the file's positions, as numpy draws it, from its first to its last."""
    stored = write(tmp_path, FAMILIES[family], words(20))[positions_of(family)]
    _, tensors, _ = load(tmp_path, longer(family), words(20), positions="interpolate")
    table, first = tensors[positions_of(family)], RESERVED[family]
    places = np.linspace(0, 5, 15)
    expected = np.stack([np.interp(places, range(6), channel) for channel in stored[first:].T.numpy()], axis=1)
    np.testing.assert_allclose(table[first:].numpy(), expected, rtol=1e-6, atol=1e-7)
    assert torch.equal(table[: first + 1], stored[: first + 1])
    assert torch.equal(table[-1], stored[-1])


@each_with_positions
def test_positions_can_be_added_from_the_seed(tmp_path, family):
    """The file's rows stay, the further ones are those of a start from the seed."""
    stored = write(tmp_path, FAMILIES[family], words(20))[positions_of(family)]
    _, tensors, _ = load(tmp_path, longer(family), words(20), positions="new")
    expected = fresh(longer(family), words(20))[positions_of(family)]
    assert torch.equal(tensors[positions_of(family)], torch.cat([stored, expected[len(stored) :]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_positions_of_any_precision_become_float32(tmp_path, dtype):
    """A mean of two rows isn't rounded to the file's precision."""
    stored = write(tmp_path, FAMILIES["bert"], words(20))
    save_file({name: tensor.to(dtype) for name, tensor in stored.items()}, tmp_path / weights.WEIGHTS)
    _, tensors, _ = load(tmp_path, longer("bert", 5), words(20), positions="interpolate")
    table, rows = tensors[positions_of("bert")], stored[positions_of("bert")].to(dtype).double()
    assert table.dtype == torch.float32
    torch.testing.assert_close(table[1].double(), (rows[0] + rows[1]) / 2, rtol=0, atol=1e-7)


@each_with_positions
def test_longer_positions_need_a_rule_that_says_what_they_are(tmp_path, family):
    """Both numbers of rows are said, and the choices there are."""
    rows = FAMILIES[family].max_position_embeddings
    write(tmp_path, FAMILIES[family], words(20))
    message = (
        rf'position table has {rows} rows in the file and {rows + 9} .* positions = "repeat", "interpolate" or "new"'
    )
    with pytest.raises(InputError, match=message):
        load(tmp_path, longer(family), words(20))


@each_with_positions
@pytest.mark.parametrize("rule", [None, "repeat", "interpolate", "new"])
def test_a_shorter_position_table_is_refused(tmp_path, family, rule):
    """No rule is for that: shorter texts fit into the file's table."""
    write(tmp_path, FAMILIES[family], words(20))
    with pytest.raises(InputError, match=r"need no shorter table, only a task\.max_length"):
        load(tmp_path, longer(family, -1), words(20), positions=rule)


# --- reinit_head ------------------------------------------------------------------------------------------------------


@each_family
@pytest.mark.parametrize("outputs", [CLASSES, words(20)], ids=["classifier", "language model"])
def test_a_head_can_start_anew_though_it_fits(tmp_path, family, outputs):
    """It is as from the seed, the file's is unused; the rest is the file's, BERT's pooler and a tied table too."""
    stored = write(tmp_path, FAMILIES[family], outputs)
    _, tensors, report = load(tmp_path, FAMILIES[family], outputs, reinit_head=True)
    expected = fresh(FAMILIES[family], outputs)
    assert report.new == report.unused
    assert set(report.new).isdisjoint(["bert.pooler.dense.weight", table_of(family)])
    assert (
        len(report.new)
        == {
            "bert": 2 if outputs is CLASSES else 5,
            "roberta": 4 if outputs is CLASSES else 5,
            "distilbert": 4 if outputs is CLASSES else 5,
            "modernbert": 4 if outputs is CLASSES else 3,
        }[family]
    )
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected[name] if name in report.new else stored[name]), name


def test_a_head_for_more_labels_starts_anew(tmp_path):
    """Three labels into two, of a head whose dense layer would fit: all of it starts anew."""
    write(tmp_path, FAMILIES["roberta"], CLASSES)
    two = Outputs(size=2, labels=("no", "yes"))
    with pytest.raises(InputError, match=r"reinit_head = true"):
        load(tmp_path, FAMILIES["roberta"], two)
    _, tensors, report = load(tmp_path, FAMILIES["roberta"], two, reinit_head=True)
    expected = fresh(FAMILIES["roberta"], two)
    assert len(report.new) == 4
    assert all(torch.equal(tensors[name], expected[name]) for name in report.new)


def test_a_file_without_a_head_has_nothing_to_start_anew(tmp_path):
    """The classifier is new with the rule as without it."""
    write(tmp_path, FAMILIES["bert"], words(20))
    with_rule, without = (load(tmp_path, FAMILIES["bert"], CLASSES, reinit_head=rule)[2] for rule in (True, False))
    assert with_rule == without


# --- labels -----------------------------------------------------------------------------------------------------------


def config_with(folder, **values):
    (folder / "config.json").write_text(json.dumps(weights.read_config(folder) | values))


def classes(*labels):
    return Outputs(size=len(labels), labels=labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (("food", "animal", "person"), r'to keep the head write task\.labels = \["animal", "food", "person"\], else'),
        (("animal", "food"), r'to keep the head write task\.labels = \["animal", "food", "person"\], else'),
        (("animal", "dish", "person"), r"call the labels as it does, or write"),
        (("animal", "food", "person", "plant"), r'"plant"\]; write'),
    ],
    ids=["another order", "one fewer", "another name", "one more"],
)
def test_a_head_for_other_labels_is_refused(tmp_path, labels, message):
    """Both lists are said, what keeps the head if anything does, and what starts it anew."""
    write(tmp_path, FAMILIES["bert"], CLASSES)
    pattern = rf'config\.json: its head predicts \["animal", "food", "person"\].*{message}.*reinit_head = true'
    with pytest.raises(InputError, match=pattern):
        load(tmp_path, FAMILIES["bert"], classes(*labels))
    assert load(tmp_path, FAMILIES["bert"], classes(*labels), reinit_head=True)[2].notes == ()


def test_labels_do_not_count_where_a_part_of_the_head_is_anothers(tmp_path):
    """A language model's dense layer serves a ModernBERT's classifier, whatever labels its config.json has."""
    write(tmp_path, FAMILIES["modernbert"], words(20))
    config_with(tmp_path, id2label={"0": "no", "1": "yes"}, label2id=None)
    report = load(tmp_path, FAMILIES["modernbert"], CLASSES)[2]
    assert report.new == ("classifier.weight", "classifier.bias")
    assert report.notes == ()


def test_labels_count_only_where_the_head_is_loaded(tmp_path):
    """The encoder of a classifier serves a task with other labels if the head has other names."""
    stored = write(tmp_path, FAMILIES["bert"], CLASSES)
    save_file(
        {name.replace("classifier", "score"): tensor for name, tensor in stored.items()}, tmp_path / weights.WEIGHTS
    )
    assert load(tmp_path, FAMILIES["bert"], classes("no", "yes"))[2].new == ("classifier.weight", "classifier.bias")


@pytest.mark.parametrize("id2label", [{str(number): f"LABEL_{number}" for number in range(3)}, None])
def test_labels_without_names_are_taken_in_order(tmp_path, id2label):
    """Transformers' LABEL_0, LABEL_1, … fit any names, as if there were none, and a sentence says so."""
    write(tmp_path, FAMILIES["bert"], CLASSES)
    config_with(tmp_path, id2label=id2label, label2id=None)
    (note,) = load(tmp_path, FAMILIES["bert"], classes("c", "a", "b"))[2].notes
    assert note.endswith("they are taken in this order: c, a, b")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_labels": 2}, r"num_labels is 2, but .* 3"),
        ({"id2label": None, "label2id": None, "num_labels": 2}, r"speaks of 2 labels, but the head is one for 3; mend"),
        ({"label2id": {"animal": 1, "food": 0, "person": 2}}, r"animal.*label2id"),
        (
            {"id2label": {"0": "animal", "1": "food"}, "label2id": None},
            r"speaks of 2 labels, but the head is one for 3",
        ),
        ({"id2label": {"0": "animal", "2": "food", "3": "person"}}, r"id2label"),
        ({"id2label": ["animal", "food", "person"]}, r"id2label"),
    ],
)
def test_a_config_that_contradicts_itself_or_the_head_is_refused(tmp_path, values, message):
    """The key is named, and both ways on: mend it, or leave the head."""
    write(tmp_path, FAMILIES["bert"], CLASSES)
    config_with(tmp_path, **values)
    with pytest.raises(InputError, match=rf"config\.json: .*{message}.*reinit_head = true"):
        load(tmp_path, FAMILIES["bert"], CLASSES)
    assert len(load(tmp_path, FAMILIES["bert"], CLASSES, reinit_head=True)[2].new) == 2


# --- heads of the same shape for something else -----------------------------------------------------------------------

NUMBERS = Outputs(size=2)
PAIR = classes("no", "yes")
TASKS = {
    "sequence_classification": PAIR,
    "multi_label_classification": PAIR,
    "regression": NUMBERS,
    "token_classification": PAIR,
    "question_answering": NUMBERS,
}
"""Heads of two outputs each."""


@pytest.mark.parametrize(
    ("family", "first", "second", "message"),
    [
        ("bert", "sequence_classification", "regression", "one of a classifier, this task's one for numbers"),
        ("bert", "regression", "multi_label_classification", "one for numbers, this task's one of a classifier"),
        ("bert", "sequence_classification", "token_classification", "that of a BertForSequenceClassification, this"),
        ("modernbert", "question_answering", "token_classification", "that of a ModernBertForQuestionAnswering, this"),
        ("modernbert", "sequence_classification", "question_answering", "this task's that of a ModernBertForQuestion"),
    ],
)
def test_a_head_for_something_else_is_refused(tmp_path, family, first, second, message):
    """Two labels, two numbers, a start and an end: every tensor would fit, and every answer be wrong."""
    write(tmp_path, FAMILIES[family], TASKS[first], task=first)
    with pytest.raises(InputError, match=rf"config\.json: its head is .*{message}.*reinit_head = true"):
        load(tmp_path, FAMILIES[family], TASKS[second], task=second)
    assert len(load(tmp_path, FAMILIES[family], TASKS[second], task=second, reinit_head=True)[2].new) >= 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("sequence_classification", "multi_label_classification"),
        ("regression", "regression"),
        ("question_answering", "question_answering"),
    ],
)
def test_a_head_for_the_same_is_loaded(tmp_path, first, second):
    """One label or several are told by the same logits."""
    write(tmp_path, FAMILIES["bert"], TASKS[first], task=first)
    assert load(tmp_path, FAMILIES["bert"], TASKS[second], task=second)[2].new == ()


def test_nothing_is_told_of_a_head_that_config_is_silent_about(tmp_path):
    """Neither a class nor a problem nor names: it may be a regression's, and with names it is none."""
    write(tmp_path, FAMILIES["bert"], PAIR)
    config_with(tmp_path, architectures=None, problem_type=None, id2label=None, label2id=None)
    assert load(tmp_path, FAMILIES["bert"], NUMBERS, task="regression")[2].new == ()
    config_with(tmp_path, id2label={"0": "no", "1": "yes"})
    with pytest.raises(InputError, match="one of a classifier"):
        load(tmp_path, FAMILIES["bert"], NUMBERS, task="regression")


# --- rules that do nothing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "note"),
    [
        ({"first_layers": True}, "architecture.load.first_layers does nothing"),
        ({"positions": "repeat"}, "architecture.load.positions does nothing"),
        ({"allow_new": ("classifer.*",)}, 'architecture.load.allow_new: nothing that is new matches "classifer.*"'),
        (
            {"allow_unused": ("*.adapter.*",)},
            'architecture.load.allow_unused: nothing that is unused matches "*.adapter.*"',
        ),
    ],
)
def test_a_rule_without_effect_is_told(tmp_path, rules, note):
    """Its author expects something of it."""
    write(tmp_path, FAMILIES["bert"], words(20))
    (told,) = load(tmp_path, FAMILIES["bert"], CLASSES, **rules)[2].notes
    assert told.startswith(note)


# --- token types ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2])
def test_token_types_of_a_family_without_them_are_refused(tmp_path, rows):
    """A file with such a table is another family's: the tensor is named."""
    stored = write(tmp_path, FAMILIES["distilbert"], words(20))
    name = "distilbert.embeddings.token_type_embeddings.weight"
    save_file(stored | {name: torch.ones(rows, 8)}, tmp_path / weights.WEIGHTS)
    with pytest.raises(InputError, match=rf"1 of the file's have no place in the model \({name}\)"):
        load(tmp_path, FAMILIES["distilbert"], words(20))


def test_more_token_types_than_the_family_has_are_refused(tmp_path):
    """A RoBERTa has one; a file with two isn't cut, its config.json can say two."""
    one = attrs.evolve(FAMILIES["roberta"], type_vocab_size=1)
    write(tmp_path, FAMILIES["roberta"], words(20))
    with pytest.raises(InputError, match=r"table of token types has 2 rows in the file and 1 .*type_vocab_size"):
        load(tmp_path, one, words(20))


# --- what has to be initialised ---------------------------------------------------------------------------------------


def test_only_what_the_file_does_not_fill_is_initialised(tmp_path):
    """It is asked for once, before a value is copied: new and resized tensors, none that the file has whole."""
    write(tmp_path, FAMILIES["bert"], words(20))
    architecture = attrs.evolve(FAMILIES["bert"], load=LoadRules(resize=True))
    model = made(architecture, CLASSES, 26)
    before = {name: tensor.clone() for name, tensor in model.tensors().items()}
    asked = []

    def ask(names):
        asked.append(names)
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.tensors().items())

    context = build.load_context(model, architecture, CLASSES, task=task_of(CLASSES))
    report = weights.load(tmp_path, model.parameters_by_name(), context, ask)
    assert asked == [{*report.new, *report.resized}]
    assert len(report.resized) == 1
