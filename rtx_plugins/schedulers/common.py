"""What schedulers share: rules for fields that several of them have."""

from __future__ import annotations

import attrs

RATIO = attrs.validators.and_(attrs.validators.ge(0.0), attrs.validators.le(1.0))
"""A share of the peak rate, or a factor that never raises it: in [0, 1]."""

MOMENTUM = attrs.validators.and_(attrs.validators.ge(0.0), attrs.validators.lt(1.0))
"""Momentum or beta1: in [0, 1)."""
