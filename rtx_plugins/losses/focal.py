"""Cross-entropy in which what is right already counts little (Lin et al. 2017, arXiv:1708.02002)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from rtx_core import Loss, hookimpl
from rtx_plugins.losses.common import Factors, class_weights_of, numbers_from_zero

if TYPE_CHECKING:
    from rtx_core import Outputs
    from rtx_core.components import TargetKind
    from rtx_plugins.losses.focal_part import FocalPart


@attrs.frozen(kw_only=True)
class Focal(Loss):
    """−(1 − p)^``gamma`` · log p, p the probability of the right class or of what each label is.

    The mean is over the targets of classes, or over the entries of labels; ignored ones are left out.
    """

    target_kinds: ClassVar[tuple[TargetKind, ...]] = ("class", "labels")

    gamma: float = attrs.field(default=2.0, validator=attrs.validators.ge(0.0))
    """The larger, the less a target counts that is right with some certainty; 0 is cross-entropy."""
    class_weights: Factors | None = attrs.field(default=None, validator=attrs.validators.optional(numbers_from_zero))
    """Of classes: how much a target of each counts, as ``class_weights`` of ``cross_entropy``. None: all count 1."""
    alpha: float | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.and_(attrs.validators.ge(0.0), attrs.validators.le(1.0))),
    )
    """Of labels: how much one counts that is there, in [0, 1]; one that isn't counts 1 − ``alpha``. The paper has 0.25.
    None: both count 1."""

    def build(self, outputs: Outputs) -> FocalPart:
        """The part for these outputs.

        :raises InputError: ``class_weights`` doesn't fit the labels, or a label to balance never occurs.
        """
        from rtx_plugins.losses.focal_part import FocalPart

        return FocalPart(class_weights_of(self.class_weights, outputs), self.alpha, self.gamma)


@hookimpl
def loss() -> dict[str, type[Loss]]:
    """Offer it as ``focal``."""
    return {"focal": Focal}
