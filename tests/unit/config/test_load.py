"""What may be left out, what belongs together, and a file in which everything is wrong."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from rtx_core.config import load, run_name


def test_a_valid_pipeline_has_every_part(loaded, base):
    """What is left out is the task's own, the architecture's own, or of defaults.toml."""
    pipeline = loaded(base)
    assert pipeline.run.name == "pipeline"
    assert {key: chosen.name for key, chosen in pipeline.chosen.items() if "." not in key} == {
        "task": "sequence_classification",
        "architecture": "bert",
        "tokenizer": "wordpiece",
        "loss": "cross_entropy",
        "optimizer": "adamw",
        "scheduler": "linear",
        "strategy": "single",
    }
    assert list(pipeline.metrics) == ["accuracy", "f1"]
    assert list(pipeline.callbacks) == ["metrics", "progress", "checkpoint", "clip_grad_norm", "amp"]
    assert (pipeline.callbacks["clip_grad_norm"].max_norm, str(pipeline.scheduler.warmup)) == (1.0, "6%")
    assert pipeline.head == pipeline.architecture.native_head("sequence_classification")
    assert pipeline.monitor == "eval/loss"


def test_the_name_is_the_files(folder, registry, base):
    """Without ``[run] name`` it is the file's name without .toml, dots and all."""
    (folder / "a.b.toml").write_text(base, "utf-8")
    assert load(folder / "a.b.toml", registry=registry, working_directory=folder).run.name == "a.b"


def test_the_name_can_be_had_alone(folder, base):
    """Before any plugin is looked for, the name is known from --set, the file, or the file's name."""
    file = folder / "first.toml"
    file.write_text(base, "utf-8")
    assert run_name(file) == "first"
    assert run_name(file, sets=["run.name=third"]) == "third"
    file.write_text(base + '[run]\nname = "second"\n', "utf-8")
    assert run_name(file) == "second"


# --- model ------------------------------------------------------------------------------------------------------------


def test_a_preset_lies_below_the_tables_own_fields(loaded, base):
    """Sizes come from the preset, single fields on top of it win."""
    architecture = loaded(base.replace('preset = "tiny"', 'preset = "mini"\nnum_hidden_layers = 1')).architecture
    assert (architecture.hidden_size, architecture.num_hidden_layers) == (256, 1)


PRETRAINED = '[architecture]\nfrom_pretrained = "{}"\n'


@pytest.fixture
def fine_tuning(base):
    """The pipeline with weights instead of a type, and without a tokenizer of its own."""

    def text(source="models/small", more=""):
        start, _, rest = base.partition("[tokenizer]")
        _, _, end = rest.partition("[optimizer]")
        return f"{start}{PRETRAINED.format(source)}{more}[optimizer]{end}"

    return text


def test_weights_bring_their_settings(loaded, fine_tuning, pretrained, folder):
    """With ``from_pretrained`` type and fields come from config.json, the tokenizer from the same folder."""
    pretrained(hidden_size=24, num_attention_heads=3, model_type="bert", unknown=1, classifier_dropout=None)
    pipeline = loaded(fine_tuning(more="num_attention_heads = 4\n"))
    assert (pipeline.architecture.hidden_size, pipeline.architecture.num_attention_heads) == (24, 4)
    assert str(pipeline.architecture.from_pretrained) == str(folder / "models/small")
    assert pipeline.tokenizer.path == pipeline.architecture.from_pretrained
    assert (pipeline.chosen["architecture"].name, pipeline.chosen["tokenizer"].name) == ("bert", "pretrained")
    assert str(pipeline.origins["architecture.hidden_size"]) == "config.json of models/small"


def test_a_preset_lies_above_config_json(loaded, fine_tuning, pretrained):
    """A field is looked for in the table, then in the preset, then in config.json, then in the component's defaults."""
    pretrained(num_hidden_layers=5, layer_norm_eps=1e-5)
    architecture = loaded(fine_tuning(more='preset = "tiny"\nintermediate_size = 8\n')).architecture
    found = (architecture.intermediate_size, architecture.num_hidden_layers, architecture.layer_norm_eps)
    assert found == (8, 2, 1e-5)
    assert architecture.hidden_act == "gelu"


def test_weights_of_a_run(loaded, fine_tuning, pretrained):
    """``run:NAME`` is the kept model of that run in the working directory."""
    pretrained("runs/first/model", hidden_size=10)
    assert loaded(fine_tuning("run:first")).architecture.hidden_size == 10


@pytest.mark.parametrize(
    "case",
    [
        ("models/none", {}, "no folder "),
        (
            "hub:org/name",
            {},
            "hub:org/name is not in the cache yet; config, tokenizer and weights are looked at when it",
        ),
        ("run:none", {}, 'run "none" has kept no model here'),
        ("models/small", {"model_type": "zebra"}, 'config.json has model_type "zebra", and no such architecture'),
        ("models/small", {"model_type": None}, "config.json names no model_type, so the type must be written; type "),
        ("models/small", {"hidden_size": "wide"}, 'expected an integer, got "wide"'),
    ],
)
def test_weights_that_cannot_be_used_are_one_problem(problems, fine_tuning, pretrained, case):
    """A missing folder, config.json or architecture is said once, also where the tokenizer would come from there."""
    source, config, message = case
    pretrained(**config)
    (problem,) = problems(fine_tuning(source))
    assert problem.message.startswith(message)


def test_config_json_must_be_there_and_be_json(problems, fine_tuning, pretrained):
    """A config.json that is missing or malformed is named with its error."""
    file = pretrained() / "config.json"
    for text, message in (("{", f"{file} is not JSON: "), ("[]", f"{file} holds no JSON object")):
        file.write_text(text, "utf-8")
        (problem,) = problems(fine_tuning())
        assert problem.message.startswith(message)
    file.unlink()
    (problem,) = problems(fine_tuning())
    assert problem.message == f"there is no {file}"


def test_the_rest_of_the_table_is_checked_without_the_weights(lines, fine_tuning):
    """Where the type is written, a source that can't be had does not hide another mistake."""
    found = lines(fine_tuning("hub:org/name", 'type = "bert"\nhidden_sise = 3\n'))
    assert [line.split(": ")[1] for line in found] == ["architecture.from_pretrained", "architecture.hidden_sise"]


def test_the_head_that_is_written_wins(loaded, base):
    """``[head]`` takes the place of the architecture's own."""
    pipeline = loaded(base + '[head]\ntype = "linear"\n')
    assert pipeline.chosen["head"].name == "linear"
    assert type(pipeline.head).__name__ == "Linear"


def test_the_tasks_head_is_the_last_resort(loaded, base):
    """Where the architecture has no head of its own for a task, the task's default is taken, and recorded."""
    text = base.replace('type = "sequence_classification"\ntext = "text"\nlabel = "label"', 'type = "toy"')
    pipeline = loaded(text)
    assert pipeline.architecture.native_head("toy") is None
    assert pipeline.chosen["head"].name == pipeline.resolved["head"]["type"] == "linear"
    assert str(pipeline.origins["head"]) == "default of task.toy"
    assert pipeline.metrics == {}


def test_a_loss_without_a_type_is_the_tasks(loaded, base):
    """``[loss]`` may set fields of the task's own loss."""
    assert loaded(base + "[loss]\nlabel_smoothing = 0.1\n").loss.label_smoothing == 0.1


def test_a_tokenizer_is_needed_without_weights(lines, base):
    """Without ``from_pretrained`` the table can't be left out."""
    assert lines(base.replace('[tokenizer]\ntype = "wordpiece"\nvocab_size = 100\n', "")) == [
        "pipeline.toml:1:1: tokenizer: missing table; it can only be left out with from_pretrained in [architecture]"
    ]


# --- data -------------------------------------------------------------------------------------------------------------


def test_the_data_table_gives_defaults_to_sets_of_its_type(loaded, folder, base):
    """Keys of ``[data]`` hold for the tables below it, unless one says otherwise or is of another type."""
    (folder / "test.csv").write_text("text,label\na,x\n", "utf-8")
    text = base.replace('type = "jsonl"', 'type = "jsonl"\nlimit = 5')
    text = text.replace('files = ["eval.jsonl"]', 'files = ["eval.jsonl"]\nlimit = 1')
    pipeline = loaded(text + '[data.test]\ntype = "csv"\nfiles = ["test.csv"]\n')
    assert (pipeline.data.train.limit, pipeline.data.eval[""].limit, pipeline.data.test.limit) == (5, 1, None)


def test_several_evaluation_sets(loaded, base):
    """Tables below ``[data.eval]`` are sets by name, in their order; the first one's loss is the monitor."""
    text = base.replace(
        '[data.eval]\nfiles = ["eval.jsonl"]\n',
        '[data.eval.b]\nfiles = ["eval.jsonl"]\n[data.eval.a]\nfiles = ["other.jsonl"]\n',
    )
    pipeline = loaded(text)
    assert list(pipeline.data.eval) == ["b", "a"]
    assert pipeline.monitor == "eval/b/loss"
    assert pipeline.chosen["data.eval.a"].name == "jsonl"
    assert loaded(text, "training.monitor=eval/a/accuracy").monitor == "eval/a/accuracy"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            'type = "jsonl"',
            'type = "jsonl"\nsplit = { eval = 0.1 }',
            "8:18: data.split.eval: there is a [data.eval] too; keep one of the two",
        ),
        (
            'type = "jsonl"',
            'type = "jsonl"\nsplit = { test = 1.0 }',
            "8:18: data.split.test: must be < 1.0, got 1.0",
        ),
        (
            'type = "jsonl"',
            'type = "jsonl"\nsplit = { stratify = true }',
            "8:9: data.split: takes nothing; give eval or test a share, as split = { eval = 0.1 }",
        ),
        (
            '[data.train]\nfiles = ["train.jsonl"]\n',
            "",
            "6:1: data.train: missing table; it says where the records are",
        ),
        (
            'type = "jsonl"\n[data.train]',
            '[data.train]\ntype = "jsonl"',
            "10:1: data.eval.type: missing; it names the data: arrow, conll, csv, datasets, jsonl, ",
        ),
        ("files = [", "weight = 2\nfiles = [", "9:1: data.train.weight: unknown key; "),
        ("eval.jsonl", "gone.jsonl", "11:10: data.eval.files[0]: no such file: "),
        ("eval.jsonl", "gone/*.jsonl", "11:10: data.eval.files[0]: no file matches "),
    ],
)
def test_data_that_cannot_be_read(lines, base, old, new, expected):
    """A set that is described twice, not at all, or whose files aren't there is one problem at its place."""
    (line,) = lines(base.replace(old, new, 1))
    assert line.startswith(f"pipeline.toml:{expected}")


def test_a_split_takes_the_place_of_tables(loaded, lines, base):
    """Without [data.eval] a split gives evaluation data, which may be monitored; shares may not take everything."""
    text = base.replace('[data.eval]\nfiles = ["eval.jsonl"]\n', "")
    assert (
        loaded(text, "data.split={ eval = 0.2, test = 0.1 }", "training.monitor=eval/accuracy").data.split.eval == 0.2
    )
    (line,) = lines(text, "data.split={ eval = 0.6, test = 0.5 }")
    assert line == "--set: data.split: takes 0.6 and 0.5 of the records, which leaves none to train on"
    in_file = text.replace("[data.train]", "split = { eval = 0.1 }\n[data.train]")
    (line,) = lines(in_file, "data.split.eval=0")
    assert line == "--set: data.split.eval: takes nothing; give eval or test a share, as split = { eval = 0.1 }"


def test_files_are_looked_for_once_all_else_is_right(lines, base, folder):
    """A missing file is not reported beside mistakes in the text; a folder is no file, a glob that matches is one."""
    text = base.replace("train.jsonl", "gone.jsonl")
    assert len(lines(text)) == 1
    (line,) = lines(text.replace("lr = 5e-4", "lr = 0"))
    assert "optimizer.lr" in line
    (line,) = lines(base.replace("train.jsonl", "."))
    assert "is a folder; name its files" in line
    os.mkfifo(folder / "pipe.jsonl")
    (line,) = lines(base.replace("train.jsonl", "pipe.jsonl"))
    assert line.endswith("pipe.jsonl is no regular file; it is read more than once, which a pipe can't be")
    (line,) = lines(base.replace("train.jsonl", f"{'a' * 300}.jsonl"))
    assert line.endswith(f"{'a' * 300}.jsonl: {os.strerror(errno.ENAMETOOLONG)}")
    assert lines(base.replace("train.jsonl", "t*.jsonl")) == []


# --- callbacks, metrics, commands -------------------------------------------------------------------------------------


def test_callbacks_are_called_in_the_order_of_the_file(loaded, base):
    """Defaults that the file does not mention come first, what the file writes takes its place in the file."""
    text = base + (
        "[callbacks.typed]\n[callbacks.amp]\n[callbacks.stop]\ntype = 'early_stopping'\npatience = 1\n"
        "[callbacks.metrics]\nevery = '2 steps'\n"
    )
    assert list(loaded(text).callbacks) == [
        "progress",
        "checkpoint",
        "clip_grad_norm",
        "typed",
        "amp",
        "stop",
        "metrics",
    ]


def test_what_is_off_is_still_checked(loaded, lines, base):
    """``enabled = false`` takes a part out of the pipeline, not out of the check."""
    text = base + "[callbacks.typed]\nenabled = false\n[metrics.accuracy]\nenabled = false\n"
    pipeline = loaded(text)
    assert "typed" not in pipeline.callbacks
    assert list(pipeline.metrics) == ["f1"]
    (line,) = lines(text.replace("[callbacks.typed]", "[callbacks.typed]\ncount = 'x'"))
    assert "callbacks.typed.count" in line


def test_metrics_add_to_the_tasks_own(loaded, base):
    """The task's own come first; a table of the same name sets one's fields."""
    pipeline = loaded(
        base + "[metrics.matrix]\n[metrics.micro]\ntype = 'f1'\naverage = 'micro'\n[metrics.f1]\naverage = 'weighted'\n"
    )
    assert list(pipeline.metrics) == ["accuracy", "f1", "matrix", "micro"]
    assert pipeline.metrics["f1"].average == "weighted"


def test_two_metrics_with_one_name_are_refused(lines, base):
    """Of two metrics that write one value the second is named."""
    assert lines(base + "[metrics.again]\ntype = 'f1'\n") == [
        'pipeline.toml:27:10: metrics.again: gives "f1_macro", as does [metrics.f1]'
    ]


def test_a_table_of_a_commands_name_holds_its_settings(loaded, lines, base):
    """Such a table is checked as that command's, and is an unknown key where there is no such command."""
    pipeline = loaded(base + "[search]\ntrials = 3\n")
    assert pipeline.commands["search"].trials == 3
    (line,) = lines(base + "[search]\ntrails = 3\n")
    assert 'search.trails: unknown key; did you mean "trials"?' in line
    (line,) = lines(base + "[sweep]\ntrials = 3\n")
    assert line.startswith("pipeline.toml:27:2: sweep: unknown table; ")


def test_the_format_is_known(loaded, lines, base):
    """``format = 1`` may stand at the top; a later one is refused."""
    assert loaded("format = 1\n" + base).resolved["format"] == 1
    assert lines("format = 2\n" + base) == [
        "pipeline.toml:1:10: format: this rtx reads format 1, got 2; a newer one may be needed"
    ]


def test_plugins_are_settled_first(lines, base):
    """What ``[plugins]`` asks for must be there; each entry that isn't is a problem at its place."""
    (line,) = lines(base + '[plugins]\nrequire = ["acme-rtx>=9"]\n')
    assert line == 'pipeline.toml:28:12: plugins.require[0]: "acme-rtx" is not installed'
    several = '[plugins]\nrequire = ["one", "two"]\nprefer = { "optimizer.adamw" = "three" }\nblock = ["four"]\n'
    assert [line.partition(";")[0] for line in lines(base + several)] == [
        'pipeline.toml:28:12: plugins.require[0]: "one" is not installed',
        'pipeline.toml:28:19: plugins.require[1]: "two" is not installed',
        'pipeline.toml:29:32: plugins.prefer."optimizer.adamw": "three" has no optimizer.adamw',
        'pipeline.toml:30:10: plugins.block[0]: no plugins of "four" are installed',
    ]
    (line,) = lines(base + '[plugins]\nblock = "acme"\n')
    assert line == 'pipeline.toml:28:9: plugins.block: expected a list of text, got "acme"; write ["acme"]'
    blocked = lines(base + '[plugins]\nblock = ["rtx-transformers"]\n')
    assert any(
        "optimizer.adamw is only supplied by rtx-transformers, which [plugins] block rules out" in line
        for line in blocked
    )


def test_what_is_blocked_is_installed(lines, base):
    """A distribution of which no plugins are installed is probably misspelt, so it is a problem."""
    (line,) = lines(base + '[plugins]\nblock = ["rtx-transformer"]\n')
    assert line == (
        'pipeline.toml:28:10: plugins.block[0]: no plugins of "rtx-transformer" are installed; '
        'did you mean "rtx-transformers"?'
    )
    (line,) = lines(base, 'plugins.block=["none"]')
    assert line.startswith('--set: plugins.block[0]: no plugins of "none" are installed; those with plugins are ')


@pytest.mark.parametrize("table", ["task", "data", "architecture", "training"])
def test_a_required_table_is_missed(problems, base, table):
    """A table that is required and isn't there is one problem at the beginning of the file."""
    start = base.index(f"[{table}]")
    end = base.find("\n[", base.index("\n\n", start) if table != "training" else len(base))
    found = problems(base[:start] + (base[end + 1 :] if end > 0 else ""))
    assert [problem.path for problem in found] == [table]
    assert str(found[0].place) == "pipeline.toml:1:1"


def test_an_empty_file_says_all_that_is_needed(problems):
    """Each required table and the rate is named."""
    assert sorted(problem.path for problem in problems("")) == [
        "architecture",
        "data",
        "optimizer.lr",
        "task",
        "tokenizer",
        "training",
    ]


# --- rules between tables ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignments", "path", "message"),
    [
        (
            ("training.duration=10 steps", "scheduler.warmup=12 steps"),
            "scheduler.warmup",
            "a warm-up of 12 steps is longer than the run of 10 steps",
        ),
        (
            ("training.duration=1 epoch", "scheduler.warmup=1.5 epochs"),
            "scheduler.warmup",
            "a warm-up of 1.5 epochs is longer than the run of 1 epoch",
        ),
        (("scheduler.warmup=101%",), "scheduler.warmup", "a warm-up of 101% is longer than the run of 3 epochs"),
        (("training.duration=0 steps",), "training.duration", "must be longer than 0"),
        (
            ("training.duration=10%",),
            "training.duration",
            "\"10%\" is a share of the run, so it can't be the run's length",
        ),
        (("training.eval_every=0 steps",), "training.eval_every", "must be longer than 0"),
        (
            ("training.micro_batch_size=9",),
            "training.micro_batch_size",
            "9 is more than the batch_size of 8; a step is cut into micro-batches",
        ),
        (("training.micro_batch_size=0",), "training.micro_batch_size", "must be >= 1, got 0"),
        (
            ("training.micro_batch_size=all",),
            "training.micro_batch_size",
            'expected an integer or "auto", got "all"',
        ),
        (
            ("training.batch_tokens=4096",),
            "training.batch_tokens",
            "a step has so many tokens or sequences, but there is a batch_size of 8 too; keep one of them",
        ),
        (
            ("training.batch_size=unset",),
            "training.batch_size",
            "missing; a step needs it, or batch_tokens",
        ),
        (
            ("training.batch_size=unset", "training.batch_tokens=9", "training.group_by_length=4"),
            "training.group_by_length",
            "sorts batches of batch_size sequences; with batch_tokens leave it out",
        ),
        (("training.group_by_length=0",), "training.group_by_length", "must be >= 1, got 0"),
        (
            ("training.packing=concat",),
            "training.packing",
            "is for tasks that learn from text alone (masked_lm, causal_lm); this one's samples have their own targets",
        ),
        (
            ("run.name=../evil",),
            "run.name",
            'must be a name without / or \\, not ending in a dot or space, got "../evil"',
        ),
        (("run.device=banana",), "run.device", 'must be auto, cpu, cuda, cuda:N or mps, got "banana"'),
        (
            ("training.batch_size=99999999999999999999",),
            "training.batch_size",
            "must be <= 2147483648, got 99999999999999999999",
        ),
        (("data.folds=2147483648",), "data.folds", "must be <= 1000, got 2147483648"),
        (("training.threads=5000",), "training.threads", "must be <= 1024, got 5000"),
        (("training.workers=1000000",), "training.workers", "must be <= 1024, got 1000000"),
        (("tokenizer.vocab_size=2147483648",), "tokenizer.vocab_size", "must be <= 16777216, got 2147483648"),
        (
            ("training.duration=1e99 epochs",),
            "training.duration",
            '"1e99 epochs" is too long; the longest is 2**53 epochs',
        ),
    ],
)
def test_lengths_and_sizes_fit_each_other(problems, base, assignments, path, message):
    """What can be told from the file alone is refused with both numbers (case 7: the warm-up)."""
    (problem,) = problems(base, *assignments)
    assert (problem.path, problem.message) == (path, message)


@pytest.mark.parametrize(
    "assignments",
    [
        ("training.duration=10 steps", "scheduler.warmup=10 steps"),
        ("scheduler.warmup=100%",),
        ("training.micro_batch_size=8",),
        ("training.micro_batch_size=auto", "training.sampler=balanced", "training.group_by_length=1"),
        ("training.batch_size=unset", "training.batch_tokens=4096", "training.micro_batch_size=9"),
    ],
)
def test_lengths_and_sizes_may_be_equal(problems, base, assignments):
    """A warm-up as long as the run and a micro-batch as large as the batch are valid."""
    assert problems(base, *assignments) == []


def test_a_misspelt_size_of_a_step_is_one_problem(problems, base):
    """What is probably meant to be a step's size is not reported missing too."""
    (problem,) = problems(base.replace("batch_size = 8", "batch_sise = 8"))
    assert problem.message == 'unknown key; did you mean "batch_size"?'
    (problem,) = problems(base.replace("batch_size = 8", "tokens_per_batch = 4096"))
    assert problem.message == 'unknown key; did you mean "batch_tokens"?'


@pytest.mark.parametrize(
    ("task", "others", "message"),
    [
        ("masked_lm", {}, "this task's have none"),
        ("regression", {}, "this task's have numbers"),
        ("multi_label_classification", {}, "this task's have any number of labels each"),
        (
            "sequence_classification",
            {
                '[data.train]\nfiles = ["train.jsonl"]': "",
                "[data.eval]": "[[data.train]]\nfiles = ['a']\nweight = 1.0\n[data.eval]",
            },
            '"balanced" draws by label, but the sources of data.train have weights; keep one of the two',
        ),
    ],
)
def test_only_samples_with_one_label_can_be_balanced(problems, base, task, others, message):
    """Refused for other tasks, and beside weights of sources."""
    text = base.replace('type = "sequence_classification"', f'type = "{task}"')
    if task != "sequence_classification":
        text = text.replace('label = "label"\n', "") if task in ("masked_lm", "regression") else text
    for before, after in others.items():
        text = text.replace(before, after)
    (problem,) = problems(text, "training.sampler=balanced")
    assert problem.path == "training.sampler"
    assert problem.message.endswith(message)


@pytest.mark.parametrize(
    ("monitor", "message"),
    [
        ("eval/loss", None),
        ("eval/f1_macro", None),
        ("eval/spread", None),
        (
            "eval/acuracy",
            'no evaluation produces "eval/acuracy"; there are eval/loss, eval/accuracy, eval/f1_macro, eval/spread',
        ),
        ("accuracy", 'no evaluation produces "accuracy"; there are eval/loss, '),
        ("eval/clean/loss", 'no evaluation produces "eval/clean/loss"; there are eval/loss, '),
        ("eval/matrix", '"eval/matrix" is not a single number that gets better one way'),
    ],
)
def test_the_monitor_is_a_value_that_is_produced(problems, base, monitor, message):
    """A monitor that no evaluation gives is refused with those there are; a matrix can't be one (case 16)."""
    found = [problem.message for problem in problems(base + "[metrics.matrix]\n", f"training.monitor={monitor}")]
    assert found == [] if message is None else found[0].startswith(message)


def test_a_monitor_needs_evaluation_data(lines, base):
    """Where nothing is evaluated nothing can be monitored, and none is asked for."""
    text = base.replace('[data.eval]\nfiles = ["eval.jsonl"]\n', "")
    assert lines(text) == []
    (line,) = lines(text, "training.monitor=eval/loss")
    assert line.endswith('nothing produces "eval/loss": there is neither a [data.eval] nor a split')


@pytest.mark.parametrize("name", ["early_stopping", "reduce_on_plateau"])
def test_what_a_callback_goes_by_is_a_value_that_is_produced(problems, base, name):
    """With the names there are, at the place of the setting (case 16); a matrix has no better and worse."""
    for monitor, message in {
        "eval/accuracy": None,
        "eval/acuracy": 'no evaluation produces "eval/acuracy"; there are eval/loss, eval/accuracy, eval/f1_macro',
        "eval/matrix": '"eval/matrix" is not a single number that gets better one way',
    }.items():
        found = problems(base + "[metrics.matrix]\n", f"callbacks.{name}.monitor={monitor}")
        assert [(problem.path, problem.message.startswith(message or "")) for problem in found] == (
            [] if message is None else [(f"callbacks.{name}.monitor", True)]
        )


def test_a_callback_that_goes_by_an_evaluation_needs_one(lines, base):
    """Early stopping where nothing is evaluated; switched off it may stand there."""
    text = base.replace('[data.eval]\nfiles = ["eval.jsonl"]\n', "") + "[callbacks.early_stopping]\n"
    (line,) = lines(text)
    assert line.endswith(
        "callbacks.early_stopping: goes by an evaluation, and there is neither a [data.eval] nor a split"
    )
    assert lines(text + "enabled = false\n") == []


# --- the whole --------------------------------------------------------------------------------------------------------

TWELVE = """\
[task]
type = "sequence_classification"
text = "text"
label = 3

[data]
type = "jsonl"
[data.train]
files = "train.jsonl"
[data.eval]
files = ["eval.jsonl"]

[tokenizer]
type = "wordpeice"

[architecture]
type = "bert"
preset = "tinny"

[optimizer]
learning_rate = 5e-4
betas = [0.9, 1.0]
[[optimizer.groups]]
match = ["*.bias"]
lr = nan

[training]
duration = 3
batch_size = true
warmup = "6%"
monitor = "eval/acuracy"

[callbacks]
"early_stopping" = { "patience" = 1, patince = 3 }
"""


def test_twelve_mistakes_are_reported_at_once(problems):
    """Every mistake of a file is reported with the right line and column and a suggestion, in the order of the file."""
    assert [(p.place.line, p.place.column, p.path, p.message.partition(" (")[0]) for p in problems(TWELVE)] == [
        (4, 9, "task.label", 'expected text, got 3; write "3"'),
        (9, 9, "data.train.files", 'expected a list of paths, got "train.jsonl"; write ["train.jsonl"]'),
        (14, 8, "tokenizer.type", 'no tokenizer "wordpeice" is installed; did you mean "wordpiece"?'),
        (18, 10, "architecture.preset", 'architecture.bert has no preset "tinny"; did you mean "tiny"?'),
        (21, 1, "optimizer.learning_rate", 'unknown key; did you mean "lr"?'),
        (22, 15, "optimizer.betas[1]", "must be < 1.0, got 1.0"),
        (25, 6, "optimizer.groups[0].lr", "expected a finite number, got nan"),
        (28, 12, "training.duration", 'a length needs a unit: "3 epochs" or "3 steps"?'),
        (29, 14, "training.batch_size", "expected an integer, got true"),
        (30, 1, "training.warmup", 'unknown key; "warmup" belongs in [scheduler]'),
        (
            31,
            11,
            "training.monitor",
            'no evaluation produces "eval/acuracy"; there are eval/loss, eval/accuracy, eval/f1_macro',
        ),
        (34, 38, "callbacks.early_stopping.patince", 'unknown key; did you mean "patience"?'),
    ]


def test_the_line_of_a_problem_reads_as_promised(lines, base):
    """File, line, column, key, what is wrong, and whose table it is."""
    (line,) = lines(base.replace("lr = 5e-4", "learning_rate = 5e-4"))
    place, key, message = line.split(": ", 2)
    assert (place, key) == ("pipeline.toml:22:1", "optimizer.learning_rate")
    assert message == 'unknown key; did you mean "lr"? (optimizer.adamw of rtx-transformers 0.1.0)'


def test_columns_count_characters_in_every_message(problems, base):
    """What stands before a mistake may be any text."""
    line = 'typed = { word = "ключ 😀é", count = 1.5 }'
    (problem,) = problems(f"{base}[callbacks] # é\n{line}\n")
    assert (problem.place.line, problem.place.column, problem.width) == (28, line.index("1.5") + 1, 3)


def test_checking_imports_no_torch(folder, base):
    """A pipeline is checked, and refused, without torch and transformers."""
    (folder / "pipeline.toml").write_text(base, "utf-8")
    (folder / "bad.toml").write_text(base + "zebra = 1\n", "utf-8")
    script = (
        "import sys\n"
        "from rtx_core.config import load, resolved_toml\n"
        "from rtx_core.errors import PipelineError\n"
        "from rtx_core.registry import Registry\n"
        "registry = Registry.discover()\n"
        "resolved_toml(load('pipeline.toml', registry=registry))\n"
        "try:\n    load('bad.toml', registry=registry)\n"
        "except PipelineError as error:\n    print(error)\n"
        "print(sorted({'torch', 'transformers', 'pyarrow', 'torchmetrics'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "zebra" in done.stdout
