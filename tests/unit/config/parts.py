"""Components that use every type and every rule a field may have; loaded as with ``--plugin``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from rtx_core import Callback, Command, InputPath, Interval, Length, Metric, Scheduler, Source, Task, hookimpl

if TYPE_CHECKING:
    from rtx_core import Batch

at_most_one = attrs.validators.le(1.0)


@attrs.frozen(kw_only=True)
class Rule:
    match: tuple[str, ...]
    factor: float = attrs.field(default=1.0, validator=[attrs.validators.ge(0.0), attrs.validators.lt(10.0)])


@attrs.frozen(kw_only=True)
class Typed(Callback):
    # The checker alone knows this import: a class variable must not hinder.
    last: ClassVar[Batch]

    flag: bool = False
    count: int = 1
    rate: float = 1.0
    word: str = "w"
    mode: Literal["fast", "slow"] = "fast"
    maybe: int | None = None
    many: tuple[int, ...] = ()
    pair: tuple[float, float] = (0.0, 1.0)
    table: Mapping[str, float] = attrs.field(factory=dict)
    length: Length = attrs.field(factory=lambda: Length.parse("1 epoch"))
    every: Interval = attrs.field(factory=lambda: Interval.parse("1 epoch"))
    path: InputPath | None = None
    source: Source | None = None
    rule: Rule | None = None
    rules: tuple[Rule, ...] = ()
    either: int | Literal["auto"] = 1
    text: str | tuple[str, str] = "a"
    anything: Any = None
    inner: Scheduler | None = None
    inners: tuple[Scheduler, ...] = ()
    unbounded: float = attrs.field(default=math.inf, metadata={"finite": False})


@attrs.frozen(kw_only=True)
class Ruled(Callback):
    low: float = attrs.field(default=0.0, validator=attrs.validators.ge(0.0))
    high: float = attrs.field(default=1.0)
    odd: int = attrs.field(
        default=1, validator=attrs.validators.and_(attrs.validators.ge(0), attrs.validators.in_([1, 3]))
    )
    code: str = attrs.field(default="A", validator=attrs.validators.matches_re("[A-Z]+"))
    names: tuple[str, ...] = attrs.field(default=("x",), validator=attrs.validators.min_len(1))
    shares: tuple[float, ...] = attrs.field(default=(), validator=attrs.validators.deep_iterable(at_most_one))
    weights: Mapping[str, float] = attrs.field(
        factory=dict, validator=attrs.validators.deep_mapping(value_validator=at_most_one)
    )
    limit: float | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.gt(0.0)))

    @high.validator
    def _above_low(self, _: object, value: float) -> None:
        if value < self.low:
            raise ValueError(f"must not be below low, which is {self.low}")

    def check(self) -> Iterable[tuple[str, str]]:
        if self.code == "BAD":
            yield "code", "is not allowed with this odd"
            yield "odd", "is not allowed with this code"


@attrs.frozen(kw_only=True)
class Unresolved(Callback):
    batch: Batch | None = None


@attrs.frozen(kw_only=True)
class Unknown(Callback):
    values: set[int] = attrs.field(factory=set)


@attrs.frozen(kw_only=True)
class Chain(Scheduler):
    parts: tuple[Scheduler, ...] = ()


@attrs.frozen(kw_only=True)
class Matrix(Metric):
    def names(self) -> Mapping[str, Any]:
        return {"matrix": None, "spread": "min"}


@attrs.frozen(kw_only=True)
class Toy(Task):
    default_loss = "cross_entropy"
    default_head = "linear"


@attrs.frozen(kw_only=True)
class Search(Command):
    trials: int
    parameters: Mapping[str, Any] = attrs.field(factory=dict)


@hookimpl
def callback() -> dict[str, type[Callback]]:
    return {"typed": Typed, "ruled": Ruled, "unresolved": Unresolved, "unknown": Unknown}


@hookimpl
def scheduler() -> dict[str, type[Scheduler]]:
    return {"chain": Chain}


@hookimpl
def metric() -> dict[str, type[Metric]]:
    return {"matrix": Matrix}


@hookimpl
def task() -> dict[str, type[Task]]:
    return {"toy": Toy}


@hookimpl
def command() -> dict[str, type[Command]]:
    return {"search": Search}
