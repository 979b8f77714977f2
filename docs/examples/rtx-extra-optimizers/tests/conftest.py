"""A weight with an optimizer, and gradients for it."""

import pytest
import torch

from rtx_core import ParameterGroup


@pytest.fixture
def gradients():
    """Forty different gradients of a 4 × 3 matrix, over several orders of magnitude."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 3, generator=generator, dtype=torch.float64) * 10.0 ** (-(i % 4)) for i in range(40)]


@pytest.fixture
def started():
    """A weight in float64, and the optimizer that a component builds over it."""

    def start(component):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3))
        group = ParameterGroup(
            parameters={"w": weight}, lr=component.lr, weight_decay=component.weight_decay, layer=None, role="matrix"
        )
        return weight, component.build([group])

    return start
