"""What a checkpoint of a run holds, and how a run takes it back: the same parts, the same state, to the bit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rtx_core import checkpoint, state
from rtx_core.errors import InputError
from rtx_core.evaluation import shown_tensors
from rtx_core.loop import NOT_SAVED_AS_PARTS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    import torch

    from rtx_core.build import Training
    from rtx_core.checkpoint import Checkpoint
    from rtx_core.config.pipeline import DataSettings


SHOWN = "evaluated"
"""The file of the weights that are measured, beside ``model``, from which training goes on: only where a part has two
modes and they differ."""


def save(training: Training, checkpoints: Path) -> Path:
    """Commit a checkpoint of this moment.

    :raises RunError: the disk is full or fails; earlier checkpoints are untouched.
    """
    run = training.run
    tensors, tree = _optimizer_state(training)
    parts_tensors: dict[str, torch.Tensor] = {}
    parts: dict[str, Any] = {}
    for name, part in _stateful(training).items():
        parts[name], found = state.encode(name, part.state_dict())
        parts_tensors.update(found)
    document = {
        "run": state.encode("run", run.state_dict())[0],
        "plan": state.encode("plan", fixed_plan(training))[0],
        "optimizer": tree,
        "parts": parts,
    }
    files = {"model": training.model.tensors(), "optimizer": tensors, "parts": parts_tensors}
    shown = shown_tensors(training)
    if shown is not None:
        files[SHOWN] = shown
    return checkpoint.commit(checkpoints, run.step, files, {"state": document})


def kept_tensors(saved: Checkpoint) -> dict[str, torch.Tensor]:
    """The weights that were measured when a checkpoint was taken, which are those that a run keeps."""
    return saved.tensors(SHOWN if saved.holds_tensors(SHOWN) else "model")


def restore(training: Training, saved: Checkpoint) -> None:
    """Put a freshly built run where a checkpoint was taken.

    :raises InputError: the run has another part, setting or data than the checkpoint's.
    """
    document = saved.document("state")
    _refuse_other_plan(state.decode(document["plan"], {}), fixed_plan(training))
    training.model.load_tensors(saved.tensors("model"))
    _load_optimizer_state(training, state.decode(document["optimizer"], _in_own_memory(saved.tensors("optimizer"))))
    tensors = _in_own_memory(saved.tensors("parts"))
    stateful = _stateful(training)
    if stateful.keys() != document["parts"].keys():
        lost = sorted(document["parts"].keys() ^ stateful.keys())
        raise InputError(f"can't resume: {lost[0]} has a state in one of run and checkpoint, but not in both")
    for name, part in stateful.items():
        part.load_state_dict(state.decode(document["parts"][name], tensors))
    training.run.load_state_dict(state.decode(document["run"], {}))


def _in_own_memory(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies where torch would have put them: those of a file stand at odd addresses, where some kernels sum in another
    order (``torch.dot`` on the CPU does), and a resumed run would leave the bits of one that was not interrupted.
    """
    return {name: tensor.clone() for name, tensor in tensors.items()}


def saved_settings(saved: Checkpoint) -> dict[str, Any]:
    """The settings with which a checkpoint was made, by dotted key."""
    settings: dict[str, Any] = state.decode(saved.document("state")["plan"], {})["settings"]
    return settings


def fixed_plan(training: Training) -> dict[str, Any]:
    """What must not change between a checkpoint and what goes on from it: parts, settings, data."""
    run = training.run
    return {
        "components": {
            path: f"{chosen.kind}.{chosen.name} of {chosen.distribution}"
            for path, chosen in run.pipeline.chosen.items()
        },
        "settings": _without_places(run.pipeline.resolved, _places_of_data(run.pipeline.data)),
        "data": dict(training.prepared.records.fingerprints),
        "tokenizer": training.prepared.fingerprint,
        "threads": run.threads,
    }


_PLACES = {"path", "from_pretrained"}
"""Where things are may change, if what they hold does not; the same goes for what data are read from."""
_FREE = {"run.name", "run.device", "data.lint", "training.workers", "training.eval_batch_size", "training.threads"}
"""These change no result, but for the device; of threads the number that was used is compared."""


def _places_of_data(data: DataSettings) -> set[str]:
    """The dotted settings that hold paths, or lists of them."""
    settings = (keys[:-1] if isinstance(keys[-1], int) else keys for keys, _ in data.files())
    return {"".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)[1:] for keys in settings}


def _without_places(values: Mapping[str, Any], places: Collection[str], prefix: str = "") -> dict[str, Any]:
    """Dotted settings without those that may change."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        if key in _PLACES or path in places or path in _FREE:
            continue
        if isinstance(value, dict):
            flat.update(_without_places(value, places, f"{path}."))
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for index, item in enumerate(value):
                flat.update(_without_places(item, places, f"{path}[{index}]."))
        else:
            flat[path] = value
    return flat


def _refuse_other_plan(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for path in sorted(before["components"].keys() | now["components"].keys()):
        was, is_now = before["components"].get(path, "nothing"), now["components"].get(path, "nothing")
        if was != is_now:
            raise InputError(f"can't resume: {path} was {was}, now it is {is_now}; use the same parts, or --new")
    pairs = {
        path: (_setting(before["settings"], path), _setting(now["settings"], path))
        for path in sorted(before["settings"].keys() | now["settings"].keys())
    }
    changed = [
        f"{path} was {_in_toml(was)}, now it is {_in_toml(is_now)}"
        for path, (was, is_now) in pairs.items()
        if was != is_now
    ]
    if changed:
        raise InputError(f"can't resume: {'; '.join(changed)}; set it back (also by --set), or --new")
    for name in sorted(before["data"].keys() | now["data"].keys()):
        if before["data"].get(name) != now["data"].get(name):
            raise InputError(f"can't resume: the contents of data.{name} changed since the checkpoint")
    if before["tokenizer"] != now["tokenizer"]:
        raise InputError("can't resume: the tokenizer is another than the checkpoint's")
    if before["threads"] != now["threads"]:
        raise InputError(
            f"can't resume: the run had {before['threads']} threads, now {now['threads']}, which would change bits; "
            f"write [training] threads = {before['threads']}"
        )


def _setting(settings: Mapping[str, Any], path: str) -> Any:
    """The value of a dotted key; a table is on unless it says otherwise."""
    return settings.get(path, True if path.endswith(".enabled") else None)


def _in_toml(value: Any) -> str:
    """A setting as a person writes it."""
    return "left out" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _stateful(training: Training) -> dict[str, Any]:
    return {
        name: part
        for name, part in training.parts.items()
        if name not in NOT_SAVED_AS_PARTS and hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
    }


def _names_in_order(training: Training) -> list[str]:
    """Parameter names in the order in which torch numbers them in an optimizer's state."""
    names = {id(p): name for name, p in training.model.parameters_by_name().items()}
    return [names[id(p)] for group in training.run.optimizer.param_groups for p in group["params"]]


def _optimizer_state(training: Training) -> tuple[dict[str, torch.Tensor], Any]:
    """The optimizer's state by parameter names instead of numbers."""
    names = _names_in_order(training)
    whole = training.run.optimizer.state_dict()
    by_name = {
        **whole,
        # torch numbers parameters; under another key an optimizer keeps what belongs to none of them.
        "state": {names[key] if isinstance(key, int) else key: values for key, values in whole["state"].items()},
        "param_groups": [
            {**group, "params": [names[number] for number in group["params"]]} for group in whole["param_groups"]
        ],
    }
    tree, tensors = state.encode("optimizer", by_name)
    return tensors, tree


def _load_optimizer_state(training: Training, by_name: dict[str, Any]) -> None:
    optimizer = training.run.optimizer
    names = _names_in_order(training)
    if names != [name for group in by_name["param_groups"] for name in group["params"]]:
        raise InputError("can't resume: the optimizer of the checkpoint has other parameters than this model")
    numbers = {name: number for number, name in enumerate(names)}
    optimizer.load_state_dict(
        {
            **by_name,
            "state": {numbers.get(key, key): values for key, values in by_name["state"].items()},
            "param_groups": [
                {**group, "params": [numbers[name] for name in group["params"]]} for group in by_name["param_groups"]
            ],
        }
    )
    parameters = training.model.parameters_by_name()
    for key, saved in by_name["state"].items():
        owner = parameters.get(key, key)
        if owner in optimizer.state:
            optimizer.state[owner] = _uncast(optimizer.state[owner], saved)


def _uncast(loaded: Any, saved: Any) -> Any:
    """What an optimizer loaded, with the types that were saved.

    ``torch.optim.Optimizer.load_state_dict`` casts every tensor of a parameter's state to the parameter's dtype (a sum
    in float64, a quantised average) and turns a string into the text of a generator. A value of which the optimizer
    itself made something else stays.
    """
    match saved:
        case dict() if isinstance(loaded, dict) and loaded.keys() == saved.keys():
            return {key: _uncast(loaded[key], value) for key, value in saved.items()}
        case list() | tuple() if type(loaded) is type(saved) and len(loaded) == len(saved):
            return type(saved)(_uncast(*pair) for pair in zip(loaded, saved, strict=True))
        case str():
            return saved
    if hasattr(saved, "dtype") and hasattr(loaded, "dtype") and loaded.dtype != saved.dtype:
        return saved.to(loaded.device)
    return loaded
