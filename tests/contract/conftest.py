"""What contract tests share: targets of each kind, and components of which the required fields are known here."""

import attrs
import pytest
import torch

from rtx_core import Length, SpanRole, TextRole
from rtx_plugins.tasks.span_rows import rows_of_text

EXAMPLES = {"match": ("*.bias",), "lr": 0.05, "every": Length.parse("1 step")}
"""A value for a required field, by its name."""


@pytest.fixture
def settings():
    """A component with examples for required fields, and defaults for the others."""

    def make(cls, **fields):
        required = {field.name for field in attrs.fields(cls) if field.init and field.default is attrs.NOTHING}
        unknown = sorted(required - EXAMPLES.keys() - fields.keys())
        if unknown:
            pytest.skip(
                f"{cls.__name__} needs {unknown[0]}, for which there is no example in tests/contract/conftest.py"
            )
        return cls(**{name: EXAMPLES[name] for name in required - fields.keys()}, **fields)

    return make


@pytest.fixture
def targets_of():
    """Targets of a kind, made of classes of which negative ones are ignored.

    Of embeddings every two rows are a pair, and an ignored row belongs to nobody. Of spans every class becomes two
    rows for a loss, a sequence of two tokens; for a metric every two rows are a text and what answers it.
    """

    def make(kind, classes, *, by):
        rows, ignored = torch.arange(len(classes)), classes < 0
        if kind == "class":
            return classes
        if kind == "embedding":
            roles = (rows % 2).masked_fill(ignored, TextRole.NEGATIVE)
            return torch.stack([roles, rows, torch.zeros_like(rows)], dim=1)
        if kind == "span":
            if by == "loss":
                return _sequences_of_two(classes)
            answers = torch.tensor([SpanRole.REFERENCE, 0, 0, 0, 1])
            return torch.from_numpy(rows_of_text("bc")).where((rows % 2 == 0).unsqueeze(1), answers)
        values = torch.nn.functional.one_hot(classes.clamp_min(0), 4).float()
        if kind == "values":
            values = values * 3.5 - rows.unsqueeze(1) / 7.0
        return values.masked_fill(ignored.unsqueeze(1), torch.nan)

    return make


def _sequences_of_two(classes):
    """The answer starts at the first token where the class is even, and ends at the second."""
    places = torch.tensor([0, 1]).repeat(len(classes))
    classes = classes.repeat_interleave(2)
    ignored = classes < 0
    starts = (classes % 2 == places).long().masked_fill(ignored, -1)
    return torch.stack([places, starts, places.masked_fill(ignored, -1), places, places + 1], dim=1)
