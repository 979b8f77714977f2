"""What a wrong key or name was probably meant to be.

Known are near names, keys that belong to another table, and the spellings of other tools. A third party's module is
never loaded to make a suggestion; those of rtx-transformers are, once there is an error.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

import attrs

from rtx_core.components import KINDS, Command
from rtx_core.config import shapes
from rtx_core.config.pipeline import DataSettings, PluginSettings, RunSettings, TrainingSettings
from rtx_core.errors import PluginError
from rtx_core.registry import OURS, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rtx_core.registry import Chosen, Registry


@attrs.frozen
class Known:
    """How rtx writes what another tool has under another name."""

    table: str
    key: str
    example: str | None = None
    """A value, where the unit or the form differs."""

    @property
    def assignment(self) -> str:
        """What to write in the table."""
        return self.key if self.example is None else f"{self.key} = {self.example}"


def _all(target: Known, *names: str) -> dict[str, Known]:
    return dict.fromkeys(names, target)


# transformers' TrainingArguments and scripts, Lightning's Trainer, Axolotl, and what people write by habit.
OTHER_TOOLS: dict[str, Known] = {
    **_all(Known("optimizer", "lr"), "learning_rate", "max_lr", "peak_lr", "base_lr", "init_lr"),
    **_all(Known("optimizer", "type"), "optim", "optimizer_type"),
    **_all(Known("optimizer", "betas", "[0.9, 0.999]"), "adam_beta1", "adam_beta2", "beta1", "beta2"),
    **_all(Known("optimizer", "eps"), "adam_epsilon", "epsilon"),
    **_all(Known("optimizer", "weight_decay"), "wd", "l2"),
    **_all(Known("scheduler", "type"), "lr_scheduler", "lr_scheduler_type", "schedule", "scheduler_type"),
    **_all(Known("scheduler", "warmup", '"6%"'), "warmup_ratio", "warmup_proportion", "warmup_fraction"),
    **_all(Known("scheduler", "warmup", '"500 steps"'), "warmup_steps", "num_warmup_steps", "lr_warmup_steps"),
    **_all(
        Known("training", "duration", '"3 epochs"'),
        *("num_train_epochs", "num_epochs", "max_epochs", "n_epochs", "epochs"),
    ),
    **_all(
        Known("training", "duration", '"1000 steps"'),
        *("max_steps", "num_steps", "total_steps", "train_steps", "num_training_steps", "max_train_steps"),
    ),
    **_all(Known("training", "batch_tokens"), "tokens_per_batch", "max_tokens", "max_tokens_per_batch"),
    **_all(Known("training", "micro_batch_size", '"auto"'), "auto_find_batch_size", "auto_scale_batch_size"),
    **_all(Known("training", "packing", '"best_fit"'), "sample_packing", "pack_sequences", "pack_samples"),
    **_all(Known("training", "sampler", '"balanced"'), "balanced_sampler", "weighted_sampler", "class_balanced"),
    **_all(Known("training", "batch_size"), "train_batch_size", "global_batch_size", "effective_batch_size"),
    **_all(
        Known("training", "micro_batch_size"),
        *("per_device_train_batch_size", "per_gpu_train_batch_size", "device_batch_size"),
    ),
    **_all(Known("training", "eval_batch_size"), "per_device_eval_batch_size", "val_batch_size"),
    **_all(
        Known("training", "eval_every", '"1 epoch"'),
        *("evaluation_strategy", "eval_strategy", "eval_steps", "eval_interval", "val_check_interval"),
        *("check_val_every_n_epoch", "evals_per_epoch"),
    ),
    **_all(Known("training", "eval_at_start", "true"), "eval_on_start"),
    **_all(
        Known("training", "monitor", '"eval/loss"'),
        *("metric_for_best_model", "load_best_model_at_end", "greater_is_better"),
    ),
    **_all(Known("training", "workers"), "dataloader_num_workers", "num_workers", "preprocessing_num_workers"),
    **_all(Known("training", "deterministic", "true"), "full_determinism"),
    **_all(Known("run", "name"), "run_name", "output_dir", "experiment_name"),
    **_all(Known("run", "seed"), "random_seed", "data_seed", "manual_seed"),
    **_all(Known("run", "device"), "accelerator", "use_cpu", "no_cuda"),
    **_all(
        Known("task", "max_length"),
        *("max_seq_length", "max_seq_len", "sequence_len", "model_max_length", "block_size", "seq_len"),
    ),
    **_all(Known("task", "text"), "text_column", "text_column_name", "text_field", "dataset_text_field"),
    **_all(Known("task", "label"), "label_column", "label_column_name", "label_field"),
    **_all(Known("task", "labels"), "label_names", "classes", "class_names"),
    **_all(Known("task", "labels", '["no", "yes"]'), "num_labels", "num_classes"),
    **_all(Known("task", "mask_probability"), "mlm_probability", "mask_ratio", "mask_prob"),
    **_all(
        Known("data.train", "files", '["train.jsonl"]'),
        *("train_file", "train_files", "data_files", "file", "path", "paths", "filename", "dataset_path"),
    ),
    **_all(
        Known("data.eval", "files", '["eval.jsonl"]'),
        "validation_file",
        "eval_file",
        "val_file",
        "eval_files",
        "val_files",
    ),
    **_all(
        Known("architecture", "from_pretrained"),
        *(
            "model_name_or_path",
            "base_model",
            "pretrained_model_name_or_path",
            "model_name",
            "pretrained",
            "checkpoint",
        ),
    ),
    **_all(Known("architecture", "num_hidden_layers"), "num_layers", "n_layers", "n_layer", "layers"),
    **_all(Known("architecture", "num_attention_heads"), "num_heads", "n_heads", "n_head", "heads"),
    **_all(Known("architecture", "hidden_size"), "d_model", "n_embd", "embed_dim", "hidden_dim"),
    **_all(Known("architecture", "intermediate_size"), "d_ff", "ffn_dim", "dim_feedforward"),
    **_all(Known("architecture", "hidden_dropout_prob"), "dropout", "dropout_rate"),
    **_all(Known("architecture", "max_position_embeddings"), "max_positions", "n_positions", "n_ctx"),
    **_all(Known("tokenizer", "path"), "tokenizer_name", "tokenizer_path", "tokenizer_name_or_path"),
    **_all(Known("loss", "label_smoothing"), "label_smoothing_factor"),
    **_all(Known("loss", "class_weights"), "class_weight", "loss_weights"),
    **_all(
        Known("callbacks.clip_grad_norm", "max_norm"),
        *("max_grad_norm", "gradient_clip_val", "gradient_clipping", "grad_clip", "clip_grad"),
    ),
    **_all(Known("callbacks.amp", "dtype", '"bf16"'), "bf16", "fp16", "precision", "mixed_precision", "torch_dtype"),
    **_all(
        Known("callbacks.checkpoint", "every", '"1 epoch"'),
        *("save_steps", "save_strategy", "save_interval", "saves_per_epoch", "checkpoint_every"),
    ),
    **_all(Known("callbacks.checkpoint", "keep_last"), "save_total_limit", "max_checkpoints"),
    **_all(Known("callbacks.metrics", "every", '"10 steps"'), "logging_steps", "log_every_n_steps", "logging_strategy"),
    **_all(Known("callbacks.early_stopping", "patience"), "early_stopping_patience"),
    **_all(Known("callbacks.early_stopping", "min_delta"), "early_stopping_threshold"),
}

_ACCUMULATION = dict.fromkeys(
    ("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum_steps", "accumulation_steps"),
    "accumulation follows from batch_size and micro_batch_size in [training]",
)

OTHER_TABLES = {
    "model": "architecture",
    "trainer": "training",
    "train": "training",
    "train_args": "training",
    "training_arguments": "training",
    "dataset": "data",
    "datasets": "data",
    "optim": "optimizer",
    "lr_scheduler": "scheduler",
    "schedule": "scheduler",
    "criterion": "loss",
    "objective": "loss",
    "evaluation": "metrics",
    "eval": "data.eval",
    "test": "data.test",
    "validation": "data.eval",
    "logging": "callbacks",
    "plugin": "plugins",
    "distributed": "strategy",
}
"""Names of top-level tables by habit, and ours."""

OTHER_NAMES = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_hf": "adamw",
    "adam_w": "adamw",
    "linear_with_warmup": "linear",
    "cosine_with_warmup": "cosine",
    "constant_with_warmup": "warmup",
    "text_classification": "sequence_classification",
    "classification": "sequence_classification",
    "sentiment_analysis": "sequence_classification",
    "ner": "token_classification",
    "named_entity_recognition": "token_classification",
    "tagging": "token_classification",
    "mlm": "masked_lm",
    "fill_mask": "masked_lm",
    "masked_language_modeling": "masked_lm",
    "clm": "causal_lm",
    "text_generation": "causal_lm",
    "language_modeling": "causal_lm",
    "json": "jsonl",
    "jsonlines": "jsonl",
    "tsv": "csv",
    "txt": "text",
    "auto": "pretrained",
    "auto_tokenizer": "pretrained",
    "bert_tokenizer": "wordpiece",
    "byte_level_bpe": "bpe",
    "roberta_tokenizer": "bpe",
    "sentencepiece": "unigram",
    "load_from_disk": "datasets",
    "load_dataset": "datasets",
    "ddp_spawn": "ddp",
    "crossentropy": "cross_entropy",
    "ce": "cross_entropy",
    "acc": "accuracy",
    "f1_score": "f1",
    "ppl": "perplexity",
    "gradient_clipping": "clip_grad_norm",
    "model_checkpoint": "checkpoint",
    "mixed_precision": "amp",
}
"""Names of components in other tools, and ours."""

_PREFIX = 3
"""The fewest letters that a cut-off name may have."""

_VALIDATION = ("val", "valid", "validation", "dev")


@attrs.frozen
class Suggestion:
    """What to say about an unknown key."""

    message: str
    meant: str | None = None
    """The key of the same table that was probably meant."""
    replacement: str | None = None
    """What to write for the key, where the value can stay."""


class Suggestions:
    """Looks for what was meant, in the settings that there are."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def key(self, key: str, own: Sequence[str], table: str) -> Suggestion:
        """For an unknown key of a table.

        :param own: the keys that the table has.
        :param table: the table's dotted name; empty for the top level.
        """
        if key in _ACCUMULATION:
            return Suggestion(_ACCUMULATION[key])
        other = OTHER_TOOLS.get(key)
        if other is not None and other.key in own and f"{table}.".startswith(f"{other.table}."):
            if other.example is not None:
                return Suggestion(f"write {other.assignment}", other.key)
            return Suggestion(f'did you mean "{other.key}"?', other.key, other.key)
        meant = self._in_table(key, own, table)
        if meant is not None:
            return Suggestion(f'did you mean "{meant}"?', meant, meant)
        elsewhere = self._elsewhere(key, table)
        if elsewhere is not None:
            return Suggestion(elsewhere)
        words = f"{'keys' if table else 'tables'} are {', '.join(own)}"
        return Suggestion(words if own else "this table has no keys")

    def table(self, name: str, own: Sequence[str], commands: Sequence[str]) -> Suggestion:
        """For an unknown key of the top level.

        :param own: the tables that a pipeline has.
        :param commands: the commands that may have a table.
        """
        command = nearest(name, commands, most=1)
        if command is not None:
            return Suggestion(f'did you mean "{command}"?', command, command)
        return self.key(name, own, "")

    def near(self, word: str, options: Collection[str]) -> str | None:
        """The option that a misspelt word means: the same but for case and hyphens, nearly the same, or cut short."""
        plain = {option.lower().replace("-", "_"): option for option in options}
        written = word.lower().replace("-", "_")
        if written in plain:
            return plain[written]
        found = nearest(written, plain)
        if found is None and len(written) >= _PREFIX:
            longer = [option for option in plain if option.startswith(written)]
            found = longer[0] if len(longer) == 1 else None
        return None if found is None else plain[found]

    def name(self, kind: str, name: str, error: PluginError) -> tuple[str, str | None]:
        """What to say about a component that can't be had, and the name that was probably meant.

        :param error: why the registry refused it.
        """
        known = self._registry.names(kind)
        if name in known or ":" in name:
            return " ".join(str(error).split()), None
        other = OTHER_NAMES.get(name.lower().replace("-", "_"))
        meant = other if other in known else self.near(name, known)
        if meant is None:
            return " ".join(str(error).split()), None
        return f'no {kind} "{name}" is installed; did you mean "{meant}"?', meant

    def _in_table(self, key: str, own: Sequence[str], table: str) -> str | None:
        """The key of this table that is near. One letter off is always near, more only for what is no key elsewhere."""
        close = nearest(key, own, most=1)
        if close is not None:
            return close
        if table == "data" and key in _VALIDATION:
            return "eval"
        if key in OTHER_TOOLS or self._tables_with(key):
            return None
        habit = None if table else OTHER_TABLES.get(self.near(key, OTHER_TABLES) or "")
        return habit if habit in own else self.near(key, own)

    def _elsewhere(self, key: str, table: str) -> str | None:
        """Where a key belongs that this table has not."""
        if not table and key in OTHER_TABLES:
            return f"write [{OTHER_TABLES[key]}]"
        if key in OTHER_TOOLS:
            return f"write {OTHER_TOOLS[key].assignment} in [{OTHER_TOOLS[key].table}]"
        for likely in (key, nearest(key, self._keys, most=1) or key):
            for found in self._tables_with(likely):
                # Sources of data are all alike: that the others have the key is no help.
                alike = found.startswith("data.") and table.startswith("data.")
                if found != table and not alike:
                    return f'"{likely}" belongs in [{found}]'
        return None

    def _tables_with(self, key: str) -> list[str]:
        return self._keys.get(key, [])

    @functools.cached_property
    def _keys(self) -> dict[str, list[str]]:
        """Every key that rtx-transformers has, and the tables that have it, the most general first."""
        found: dict[str, list[str]] = {}
        for table, cls in self._tables():
            for field in shapes.settable(cls):
                if table not in found.setdefault(field.name, []):
                    found[field.name].append(table)
        return found

    def _tables(self) -> Iterator[tuple[str, type]]:
        yield from (("training", TrainingSettings), ("run", RunSettings), ("data", DataSettings))
        yield ("plugins", PluginSettings)
        named = {"metric": "metrics", "callback": "callbacks"}
        kinds = [kind for kind, base in KINDS.items() if base is not Command]
        tables = {kind: {"data": "data.train"}.get(kind, kind) for kind in kinds if kind not in named}
        yield from ((table, KINDS[kind]) for kind, table in tables.items())
        for kind in (*tables, *named):
            for chosen in self.ours(kind):
                yield (tables.get(kind) or f"{named[kind]}.{chosen.name}"), chosen.component

    def ours(self, kind: str) -> Iterator[Chosen]:
        """The components of rtx-transformers, pinned so that another distribution's replacement is not loaded instead.

        A part that can't be had is reported where it is used; here it only has nothing to say.
        """
        with contextlib.suppress(PluginError):
            for name in self._registry.ours(kind):
                with contextlib.suppress(PluginError):
                    yield self._registry.find(kind, f"{OURS}:{name}")
