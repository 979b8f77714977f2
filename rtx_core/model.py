"""The model as one module, its public names, and the module of model and loss that a strategy wraps."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import attrs
import torch
from torch import nn

from rtx_core import chance
from rtx_core.errors import InputError
from rtx_core.registry import built

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from rtx_core.components import Architecture, Head, LossPart
    from rtx_core.samples import Batch


_NO_ROOM = ("can't allocate memory", "out of memory", "size calculation overflowed")
"""What torch says when tensors are too large: for the CPU, for a device, for 64 bits."""


class Model(nn.Module):
    """A backbone and a head. ``forward`` gives logits ``[N, K]`` at the targets' positions alone."""

    def __init__(self, backbone: nn.Module, head: nn.Module, prefixes: Sequence[tuple[str, str]]) -> None:
        """``prefixes`` pairs our prefixes of names with those of the kept model's files; the first match wins."""
        super().__init__()
        self.backbone = backbone
        self.head = head
        self._prefixes = tuple(prefixes)

    def features(self, batch: Batch) -> torch.Tensor:
        """What the head projects, ``[N, H]``."""
        features: torch.Tensor = self.head.features(self.backbone(batch), batch)  # type: ignore[operator]
        return features

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[N, K]`` of features ``[N, H]``."""
        logits: torch.Tensor = self.head.project(features)  # type: ignore[operator]
        return logits

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logits ``[N, K]``."""
        return self.project(self.features(batch))

    def public_name(self, name: str) -> str:
        """The name of one of our tensors in files, messages and patterns."""
        for ours, public in self._prefixes:
            if name.startswith(ours):
                return public + name.removeprefix(ours)
        return name

    def parameters_by_name(self) -> dict[str, nn.Parameter]:
        """Every distinct parameter by its public name; a tied one stands once, under its first name."""
        return {self.public_name(name): parameter for name, parameter in self.named_parameters()}

    def tied_names(self) -> dict[str, str]:
        """Further public names of tied parameters, each to the first."""
        first: dict[int, str] = {}
        tied: dict[str, str] = {}
        for name, parameter in self.named_parameters(remove_duplicate=False):
            public = self.public_name(name)
            if first.setdefault(id(parameter), public) != public:
                tied[public] = first[id(parameter)]
        return tied

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that a checkpoint keeps, by public name: parameters and persistent buffers, tied ones once."""
        kept: dict[str, torch.Tensor] = {name: p.detach() for name, p in self.parameters_by_name().items()}
        transient = {
            f"{prefix}.{name}" if prefix else name
            for prefix, module in self.named_modules()
            for name in module._non_persistent_buffers_set  # noqa: SLF001 - torch has no public way to ask
        }
        for name, buffer in self.named_buffers():
            if name not in transient:
                kept[self.public_name(name)] = buffer
        return kept

    def load_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the tensors of a checkpoint of the same model, in place.

        :raises InputError: names or shapes differ.
        """
        own = self.tensors()
        if own.keys() != tensors.keys():
            differing = sorted(own.keys() ^ tensors.keys())
            raise InputError(f"the checkpoint's tensors are not this model's: {', '.join(differing[:5])} differ")
        for name, tensor in own.items():
            if tensor.shape != tensors[name].shape:
                raise InputError(
                    f"{name} has shape {list(tensors[name].shape)} in the checkpoint, {list(tensor.shape)} here"
                )
            tensor.copy_(tensors[name])


def make_model(architecture: Architecture, head: Head, *, task: str, outputs: int, vocab_size: int, seed: int) -> Model:
    """Build backbone and head on the current default device, from the seed alone."""
    model = assemble(architecture, head, task=task, outputs=outputs, vocab_size=vocab_size, seed=seed)
    initialize(model, model.parameters_by_name().keys(), seed)
    return model


def assemble(architecture: Architecture, head: Head, *, task: str, outputs: int, vocab_size: int, seed: int) -> Model:
    """The same, but a module with ``initialize(name, tensor, generator)`` has any values: for a model that is filled
    from a file, :func:`initialize` has little to do. Another module keeps its own initialisation, from one seed.
    """
    with _in_memory():
        backbone = _seeded(lambda: built("architecture", "", architecture.build, vocab_size), seed, "backbone")
    head_module = _seeded(lambda: built("head", "", head.build, architecture.hidden_size, outputs), seed, "head")
    model = Model(backbone, head_module, architecture.hf_names(native_task(architecture, head, task)))
    if hasattr(head_module, "tie"):
        cast("Any", head_module).tie(cast("Any", backbone).input_embeddings)
    return model


def native_task(architecture: Architecture, head: Head, task: str) -> str | None:
    """The task, if the head is the architecture's own for it; None for another head, which transformers can't name."""
    return task if type(head) is type(architecture.native_head(task)) else None


def initialize(model: Model, names: Collection[str], seed: int) -> None:
    """Fill the named parameters from (seed, name), where their module knows how."""
    for prefix, module in (("backbone.", model.backbone), ("head.", model.head)):
        if not hasattr(module, "initialize"):
            continue
        for name, parameter in module.named_parameters():
            public = model.public_name(prefix + name)
            if public in names and not parameter.is_meta:
                generator = torch.Generator().manual_seed(chance.derive(seed, f"parameter {public}"))
                with torch.no_grad():
                    cast("Any", module).initialize(name, parameter, generator)


@contextmanager
def _in_memory() -> Iterator[None]:
    """Turn a failure to make room for a model into one line; the CPU's allocator has no error of its own."""
    try:
        yield
    except RuntimeError as error:
        if not any(words in str(error) for words in _NO_ROOM):
            raise
        raise InputError(
            "the model is larger than this machine's memory; take smaller sizes in [architecture]"
        ) from error


def _seeded(build: Any, seed: int, purpose: str) -> nn.Module:
    torch.default_generator.manual_seed(chance.derive(seed, purpose))
    return cast("nn.Module", build())


@attrs.define(eq=False)
class FeatureCache:
    """The two passes of a loss over the whole step: first features are kept, then their gradients are sent back."""

    features: torch.Tensor | None = None
    """``[N, H]``, without a graph."""
    gradients: torch.Tensor | None = None
    """``[N, H]``, of the step's loss."""


class TrainedModule(nn.Module):
    """Model and loss as one module, so that a strategy can wrap both; ``forward`` gives the summed loss of a batch."""

    def __init__(self, model: Model, loss: LossPart) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Batch) -> torch.Tensor:
        """The sum over the batch's targets, float32 scalar."""
        features = self.model.features(batch)
        cache = batch.cache
        if cache is None:
            return summed_loss(self.model, self.loss, features, batch.targets)
        if cache.gradients is None:
            cache.features = features.detach()
            return features.new_zeros((), dtype=torch.float32)
        # Its gradient with respect to the features is exactly the cached one.
        return (features * cache.gradients).sum().float()


def summed_loss(model: Model, loss: LossPart, features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss of features ``[N, H]``, by whichever of its two functions the loss has."""
    # Asked of the class: a module looks long for what it doesn't have, and builds an error's text.
    if hasattr(type(loss), "of_features"):
        return cast("Any", loss).of_features(features, model.project, targets).float()  # type: ignore[no-any-return]
    return loss.of_logits(model.project(features), targets).float()
