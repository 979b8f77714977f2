"""``[architecture.load]`` and what must fit together, from the command line: what works, and the line that refuses."""

from __future__ import annotations

import json
import shutil

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file

JOB = """\
[task]
type = "sequence_classification"
max_length = 16
[data]
type = "jsonl"
[data.train]
files = ["train.jsonl"]
[architecture]
from_pretrained = "weights"
[optimizer]
lr = 1e-3
[training]
duration = "2 steps"
batch_size = 4
threads = 1
"""
FROM_SCRATCH = JOB.replace(
    'from_pretrained = "weights"',
    'type = "roberta"\nhidden_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = 2\nintermediate_size = 16\n'
    'max_position_embeddings = 18\n[tokenizer]\ntype = "bpe"\nvocab_size = 300',
)
TABLE = "bert.embeddings.word_embeddings.weight"
POSITIONS = "bert.embeddings.position_embeddings.weight"


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A working directory with a pipeline that starts from ``weights``, the kept model of a small run."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "runs" / "colours" / "model", tmp_path / "weights")
    shutil.copy(trained / "train.jsonl", tmp_path)
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


@pytest.fixture
def call(rtx, place):
    """Call a command on the pipeline with these ``--set``."""

    def on_job(command, *sets):
        return rtx(command, "job.toml", *(word for text in sets for word in ("--set", text)))

    return on_job


@pytest.fixture
def refused(call, place):
    """Run the pipeline, which must be refused before anything is created; its line on stderr."""

    def line(*sets):
        done = call("run", *sets)
        assert (done.status, done.out) == (2, "")
        assert not (place / "runs").exists()
        said = [line for line in done.err.splitlines() if not line.startswith(("training: ", "note: "))]
        assert len(said) == 1
        return said[0].replace(f"{place}/", "")

    return line


@pytest.fixture
def ran(call, place):
    """Run the pipeline, which must succeed: the line about weights in its log, its kept tensors, and its warnings."""

    def outcome(*sets):
        done = call("run", *sets)
        assert done.status == 0, done.err
        run = place / "runs" / "job"
        log = (run / "log.txt").read_text(encoding="utf-8")
        (line,) = [line for line in log.splitlines() if line.startswith("weights")]
        return line, load_file(run / "model" / "model.safetensors"), done.err

    return outcome


def stored(place):
    return load_file(place / "weights" / "model.safetensors")


def store(place, tensors, **config):
    save_file(tensors, place / "weights" / "model.safetensors")
    file = place / "weights" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))


def add_tokens(place, *tokens):
    """Give the weights' tokenizer more tokens than their table has rows; how many it has now."""
    file = str(place / "weights" / "tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(file)
    tokenizer.add_tokens(list(tokens))
    tokenizer.save(file)
    return tokenizer.get_vocab_size()


# --- the rules in a run -----------------------------------------------------------------------------------------------


def test_a_tokenizer_with_more_tokens_resizes_the_table(refused, ran, rtx, place):
    """Case 22: refused with both numbers; with the rule the table follows the tokenizer, and the kept model answers."""
    rows = len(stored(place)[TABLE])
    tokens = add_tokens(place, "reddish", "blueish", "greenish")
    assert tokens == rows + 3
    line = refused()
    assert line.startswith(f"the tokenizer has {tokens} tokens, but the token table has only {rows} rows ")
    assert line.endswith("write [architecture.load] resize = true to add a row for each further token")

    line, kept, said = ran("architecture.load.resize=true")
    whole = len(stored(place)) - 1
    assert line == f"weights  {whole} tensors from weights, 1 resized ({TABLE}), 0 new, 0 unused"
    assert kept[TABLE].shape == (tokens, 16)
    assert said.count("does nothing") == 0
    assert json.loads((place / "runs/job/model/config.json").read_text())["vocab_size"] == tokens
    answered = rtx("predict", "runs/job", "--text", "a reddish thing")
    assert answered.status == 0, answered.err
    assert rtx("run", "job.toml", "--set", "architecture.load.resize=true", "--resume").status == 0


def test_a_table_larger_than_the_vocabulary_works(ran, place):
    """Case 22, the reverse: without the rule it stays, with the rule it gets the tokenizer's rows."""
    tensors = stored(place)
    rows = len(tensors[TABLE])
    store(place, tensors | {TABLE: torch.cat([tensors[TABLE], torch.ones(2, 16)])}, vocab_size=rows + 2)
    assert len(ran()[1][TABLE]) == rows + 2
    shutil.rmtree(place / "runs")
    line, kept, _ = ran("architecture.load.resize=true")
    assert len(kept[TABLE]) == rows
    assert f"1 resized ({TABLE})" in line


def change_words(place, change):
    """A tokenizer in ``other`` whose vocabulary is that of the weights with other words."""
    content = json.loads((place / "weights" / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = {change.get(word, word): number for word, number in vocabulary.items()}
    (place / "other").mkdir(exist_ok=True)
    (place / "other" / "tokenizer.json").write_text(json.dumps(content))
    return vocabulary


def test_another_word_in_the_place_of_one_is_refused(refused, place):
    """Its row was trained for the other, be there more rows or not."""
    number = change_words(place, {"red": "crimson"})["red"]
    for sets in ((), ("architecture.load.resize=true",)):
        line = refused("tokenizer.type=pretrained", "tokenizer.path=other", *sets)
        assert line.startswith(
            f'tokenizer: number {number} is "crimson", but "red" in weights/tokenizer.json, which the '
        )


def test_a_free_row_may_get_a_word(ran, place):
    """BERT's vocabulary keeps some, called ``[unused7]``."""
    change_words(place, {"red": "[unused7]"})
    shutil.copy(place / "other" / "tokenizer.json", place / "weights" / "tokenizer.json")
    change_words(place, {"[unused7]": "crimson"})
    assert ", 0 new, 0 unused" in ran("tokenizer.type=pretrained", "tokenizer.path=other")[0]


def test_a_damaged_tokenizer_of_the_weights_is_refused(refused, place):
    """It isn't used, but it says which rows are whose."""
    change_words(place, {})
    (place / "weights" / "tokenizer.json").write_text("{")
    line = refused("tokenizer.type=pretrained", "tokenizer.path=other")
    assert line.startswith("weights/tokenizer.json can't be read: ")


def test_a_written_vocab_size_wins_over_the_tokenizer(ran, place):
    """``resize`` with ``architecture.vocab_size`` takes that many rows, for a vocabulary that is to grow."""
    assert len(ran("architecture.load.resize=true", "architecture.vocab_size=128")[1][TABLE]) == 128


def test_plan_knows_the_rows(call, place):
    """Rows are the tokenizer's there too, though no weights are read."""
    tokens = add_tokens(place, "reddish")
    planned = call("plan", "architecture.load.resize=true")
    assert planned.status == 0, planned.err
    encoder = sum(tensor.numel() for name, tensor in stored(place).items() if "pooler" not in name and "bert." in name)
    assert f"{encoder + 16:,}" in planned.out
    assert tokens == len(stored(place)[TABLE]) + 1


def test_the_first_layers_are_taken(refused, ran, place):
    """Fewer layers than the weights have: refused with the rule that permits it; the rest of the file is unused."""
    tensors = stored(place)
    second = {name.replace("layer.0", "layer.1"): tensor + 0 for name, tensor in tensors.items() if "layer.0" in name}
    store(place, tensors | second, num_hidden_layers=2)
    line = refused("architecture.num_hidden_layers=1")
    assert line.startswith("weights: the weights have more layers than the model, bert.encoder.layer.1.")
    assert line.endswith("write [architecture.load] first_layers = true")
    line, kept, _ = ran("architecture.num_hidden_layers=1", "architecture.load.first_layers=true")
    assert line.startswith(f"weights  {len(tensors)} tensors from weights, 0 new, {len(second)} unused (")
    assert kept.keys() == tensors.keys()


def test_positions_can_be_added(refused, ran, place):
    """A longer table needs to be told what its rows are; then longer texts fit, and the kept config says so."""
    longer = ("architecture.max_position_embeddings=24", "task.max_length=24")
    line = refused(*longer)
    assert 'or write [architecture.load] positions = "repeat", "interpolate" or "new", which says what the' in line
    line, kept, _ = ran(*longer, "architecture.load.positions=repeat")
    assert f", 1 resized ({POSITIONS}), 0 new" in line
    assert kept[POSITIONS].shape == (24, 16)
    assert json.loads((place / "runs/job/model/config.json").read_text())["max_position_embeddings"] == 24


def test_a_head_starts_anew(ran):
    """The classifier is new though the file's fits, its pooler isn't, and the file's classifier is unused."""
    line, _, _ = ran("architecture.load.reinit_head=true")
    assert line.endswith(", 2 new (classifier.weight, classifier.bias), 2 unused (classifier.weight, classifier.bias)")


def test_a_rule_that_does_nothing_is_a_warning(ran):
    """Both sentences are said before the first step."""
    _, _, said = ran("architecture.load.first_layers=true", "architecture.load.positions=new")
    assert "warning: architecture.load.first_layers does nothing: the weights have no more layers than" in said
    assert "warning: architecture.load.positions does nothing: no position table is longer than" in said


@pytest.mark.parametrize("rule", ["resize = true", "first_layers = true", 'positions = "new"', "reinit_head = true"])
def test_a_rule_without_weights_is_refused(rtx, place, rule):
    """``check`` says that it would do nothing, at its table."""
    text = f"{FROM_SCRATCH}[architecture.load]\n{rule}\n".replace("max_position", "pad_token_id = 0\nmax_position")
    (place / "job.toml").write_text(text)
    done = rtx("check", "job.toml")
    assert done.status == 2
    line = text.splitlines().index("[architecture.load]") + 1
    expected = "architecture.load: is about weights that are loaded; without from_pretrained it would do nothing"
    assert done.err.splitlines() == [f"job.toml:{line}:15: {expected}"]


@pytest.mark.parametrize("value", ["3", '"yes"'])
def test_a_rule_that_is_no_boolean_is_refused_once(rtx, place, value):
    """It is read to know the rows of the table, and again with the other rules."""
    (place / "job.toml").write_text(JOB.replace("[optimizer]", f"[architecture.load]\nresize = {value}\n[optimizer]"))
    done = rtx("check", "job.toml")
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert "architecture.load.resize: expected true or false" in line


def test_another_word_for_positions_is_refused(rtx, place):
    """The choices are listed."""
    done = rtx("check", "job.toml", "--set", "architecture.load.positions=stretch")
    assert done.status == 2
    assert "architecture.load.positions" in done.err
    assert '"interpolate"' in done.err


# --- what must fit together -------------------------------------------------------------------------------------------


def test_labels_in_another_order_are_refused(refused, ran):
    """The line that the message proposes keeps the head: nothing is new."""
    line = refused('task.labels=["warm", "cold"]')
    assert line == (
        'weights/config.json: its head predicts ["cold", "warm"], in this order, this task ["warm", "cold"]; to keep '
        'the head write task.labels = ["cold", "warm"], else write [architecture.load] reinit_head = true to start '
        "the head anew"
    )
    assert ", 0 new, 0 unused" in ran('task.labels = ["cold", "warm"]')[0]


def test_a_config_with_a_wrong_number_of_labels_is_refused(refused, place):
    """Which key contradicts which, and what to do."""
    store(place, stored(place), num_labels=3)
    line = refused()
    assert line.startswith("weights/config.json: num_labels is 3, but id2label names 2 labels; mend it")


def test_a_padding_token_that_the_model_has_elsewhere_is_refused(refused, rtx, place):
    """A trained vocabulary begins with it, RoBERTa's default is 1: the message says what to write, and that works."""
    (place / "job.toml").write_text(FROM_SCRATCH)
    assert refused() == (
        'architecture.pad_token_id: 1, but the tokenizer gives the padding token, "<pad>", number 0; write '
        "pad_token_id = 0"
    )
    assert rtx("run", "job.toml", "--set", "architecture.pad_token_id=0").status == 0


def test_weights_with_another_padding_token_than_their_tokenizer_are_refused(refused, place):
    """Case 23: of weights the tokenizer may be the wrong one."""
    store(place, stored(place), pad_token_id=3)
    line = refused()
    assert line.startswith(
        'architecture.pad_token_id: 3, but the tokenizer gives the padding token, "[PAD]", number 0; '
    )
    assert "take the tokenizer that belongs to the weights" in line


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("bert", ("hidden_size", "num_attention_heads")),
        ("roberta", ("hidden_size", "num_attention_heads")),
        ("distilbert", ("dim", "n_heads")),
        ("modernbert", ("hidden_size", "num_attention_heads")),
    ],
)
def test_heads_that_do_not_share_the_width_are_refused(rtx, place, family, sizes):
    """Every family says it in ``check``, with both numbers."""
    width, heads = sizes
    job = JOB.replace('from_pretrained = "weights"', f'type = "{family}"\n{width} = 30\n{heads} = 4')
    (place / "job.toml").write_text(f'{job}[tokenizer]\ntype = "wordpiece"\n')
    done = rtx("check", "job.toml")
    assert done.status == 2
    assert f"architecture.{width}: 30 can't be shared equally by 4 attention heads" in done.err
