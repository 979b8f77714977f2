"""Prodigy: Adam that estimates its own rate (Mishchenko & Defazio 2024, arXiv:2306.06101, algorithm 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rtx_core import Optimizer, hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from rtx_core import ParameterGroup


@attrs.frozen(kw_only=True)
class Prodigy(Optimizer):
    """Adam whose rate is the estimated distance d from the start to a solution."""

    lr: float = attrs.field(default=1.0, validator=attrs.validators.gt(0.0))
    """Factor of the estimated rate; 1 unless the estimate is known to be off."""
    betas: tuple[float, float] = attrs.field(
        default=(0.9, 0.999),
        validator=attrs.validators.deep_iterable([attrs.validators.ge(0.0), attrs.validators.lt(1.0)]),
    )
    """Decay rates of the running averages of the gradient and of its square, each in [0, 1). The estimate forgets with
    the root of the second."""
    eps: float = attrs.field(default=1e-8, validator=attrs.validators.gt(0.0))
    """Times d, added to the root of the second average."""
    d0: float = attrs.field(default=1e-6, validator=attrs.validators.gt(0.0))
    """The first estimate of d; well below the true distance."""
    d_coef: float = attrs.field(default=1.0, validator=attrs.validators.gt(0.0))
    """Factor of each new estimate: 0.5 or 2 train more carefully or more boldly."""
    growth_rate: float | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.gt(1.0)))
    """How many times larger d may get from one update to the next, after its first growth; None: as it comes."""

    def check(self) -> Iterator[tuple[str, str]]:
        """One estimate serves all parameters, so none has a rate of its own."""
        if self.layer_lr_decay is not None:
            yield "layer_lr_decay", "prodigy estimates one rate for all layers; leave it out"
        if any(rule.lr is not None for rule in self.groups):
            yield "groups", "prodigy estimates one rate for all parameters; leave lr out of the rules"

    def build(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """The optimizer over the groups."""
        from acme_rtx.prodigy_part import ProdigyPart

        return ProdigyPart(
            [group.options() for group in groups],
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            d0=self.d0,
            d_coef=self.d_coef,
            growth_rate=self.growth_rate,
        )


@hookimpl
def optimizer() -> dict[str, type[Optimizer]]:
    """Offer it as ``prodigy``."""
    return {"prodigy": Prodigy}
