"""Where chance comes from: every random number is a pure function of the run's seed and of what it is for.

No random state is ever saved, because none is carried from one step to the next.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, purpose: str, *numbers: int) -> int:
    """A 63-bit seed for one purpose, the same on every machine and in every process.

    :param purpose: a name such as ``"dropout"`` that keeps uses of the same numbers apart.
    """
    text = "\0".join((str(seed), purpose, *map(str, numbers)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """A numpy generator (Philox) seeded by :func:`derive`."""
    return np.random.Generator(np.random.Philox(key=derive(seed, purpose, *numbers)))
