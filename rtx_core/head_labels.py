"""Whether a stored head predicts what a task does: the same kind of thing, the same labels, in the same order."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_UNNAMED = re.compile(r"LABEL_\d+")
"""What ``transformers`` calls a label that nobody has named."""
_SHOWN = 20
"""Labels that are listed; of more than these the number is said."""
_ANEW = "write [architecture.load] reinit_head = true to start the head anew"
_PURPOSES = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
"""How ``transformers``' classes end whose heads have tensors of the same names: in one family or another they do."""


def are_named(labels: Sequence[str]) -> bool:
    """Whether somebody gave the labels names."""
    return not all(_UNNAMED.fullmatch(label) for label in labels)


def other_purpose(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str | None:
    """What a stored head is for, if it's not what ours is, and what to do; None where it is, or nobody says.

    :param theirs: the ``config.json`` beside it.
    :param ours: that of the model.
    """
    stored, wanted = _class(theirs), _class(ours)
    if stored and wanted and stored[1] != wanted[1]:
        return f"its head is that of a {stored[0]}, this task's that of a {wanted[0]}; {_ANEW}"
    stored_regression, regression = _is_regression(theirs), _is_regression(ours)
    if None not in (stored_regression, regression) and stored_regression != regression:
        kinds = ("one of a classifier", "one for numbers")
        return f"its head is {kinds[bool(stored_regression)]}, this task's {kinds[bool(regression)]}; {_ANEW}"
    return None


def _class(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """The class that a model was saved from, and how its name ends, if its head can be taken for another's."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    purpose = name.rpartition("For")[2] if isinstance(name, str) else ""
    return (str(name), purpose) if purpose in _PURPOSES else None


def _is_regression(config: Mapping[str, Any]) -> bool | None:
    """Whether a head predicts numbers, and no labels; None where that isn't said."""
    if (problem := config.get("problem_type")) is not None:
        return bool(problem == "regression")
    names = config.get("id2label")
    # One output with a name may be a score's.
    named = isinstance(names, dict) and len(names) > 1 and are_named([str(name) for name in names.values()])
    return False if named else None


def difference(theirs: Sequence[str], ours: Sequence[str], *, writable: bool) -> str | None:
    """How a head's labels differ from those of a task, and what to do; None where they don't.

    :param theirs: of the head, in the order of its outputs.
    :param writable: whether ``task.labels`` takes the labels as they are.
    """
    if len(theirs) == len(ours) and (tuple(theirs) == tuple(ours) or not are_named(theirs)):
        return None
    if not are_named(theirs):
        return f"its head has {len(theirs)} outputs, this task {len(ours)} labels, {_shown(ours)}; {_ANEW}"
    told = f"its head predicts {_shown(theirs)}, in this order, this task {_shown(ours)}"
    if not set(ours) <= set(theirs):
        renamed = "call the labels as it does, or " if len(theirs) == len(ours) else ""
        return f"{told}; {renamed}{_ANEW}"
    keep = f"task.labels = {json.dumps(list(theirs), ensure_ascii=False)}" if writable else "task.labels in that order"
    return f"{told}; to keep the head write {keep}, else {_ANEW}"


def _shown(labels: Sequence[str]) -> str:
    """A list of labels as TOML writes it; of many only how many they are."""
    return f"{len(labels)} labels" if len(labels) > _SHOWN else json.dumps(list(labels), ensure_ascii=False)
