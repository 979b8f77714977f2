"""The head of a class of ``transformers``, without the encoder under it.

Shapes: T tokens, N targets, H hidden size, K outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from rtx_core import InputError
from rtx_plugins.architectures.common.hugging_face import PROBLEM_TYPES
from rtx_plugins.architectures.transformers.family import built, class_for, family_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedConfig

    from rtx_core import Batch
    from rtx_plugins.architectures.transformers.heads import OriginalHead


_INSTEAD = 'take another head: [head] type = "linear"'
"""What helps where the family's class can't be used."""
_READS_MORE = {
    "question_answering": ("big_bird", "longformer", "splinter"),
    **dict.fromkeys(PROBLEM_TYPES, ("longformer",)),
}
"""Families whose class for a task looks for the question in the text, or has some tokens see farther than others."""


class OriginalHeadPart(nn.Module):
    """The class's own ``forward``, over an encoder that gives back the features as its hidden states.

    So every family's layers, their order and their names are the original's, at the targets' positions alone.
    """

    def __init__(self, settings: OriginalHead, outputs: int) -> None:
        super().__init__()
        self.of_texts = settings.task in PROBLEM_TYPES
        architecture: Any = settings.architecture
        if settings.task == "masked_lm":
            config = family_config(architecture, outputs)
        else:
            config = family_config(architecture)
            config.num_labels = outputs
        _refuse_what_reads_more(config, settings.task)
        with torch.device("meta"):  # the encoder is there already; a second one would be memory to throw away
            model: Any = built(class_for(config, settings.task), config)
        table = model.get_input_embeddings().weight
        body = getattr(model, model.base_model_prefix)
        if type(body) is not class_for(config, None):  # Funnel's class for texts leaves the upper half out
            raise InputError(f"architecture.model_type: {type(model).__name__} has another encoder; {_INSTEAD}")
        setattr(model, model.base_model_prefix, _Given(body if self.of_texts else None))
        self.model = model
        self._tied = [place for place, parameter in _places(model) if parameter is table]
        _materialize(model, but=table)

    def tie(self, table: nn.Parameter) -> None:
        """Take the token table as the decoder's weights, where the class does."""
        for module, name in self._tied:
            module.register_parameter(name, table)

    def features(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``[N, H]`` of hidden states ``[T, H]``."""
        return hidden_states.index_select(0, batch.target_positions)

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Logits ``[N, K]``. A class for texts looks at the first token of each, which is all that it is given."""
        alone = 1 if self.of_texts else 0
        answer = self.model(input_ids=features.unsqueeze(alone))
        if "start_logits" in answer:
            return torch.stack((answer.start_logits, answer.end_logits), dim=-1).squeeze(0)
        return cast("torch.Tensor", answer.logits if self.of_texts else answer.logits.squeeze(0))


def _refuse_what_reads_more(config: PreTrainedConfig, task: str) -> None:
    """A class that reads more than the hidden states of the targets would compute something else than here.

    :raises InputError: this one does.
    """
    if config.model_type in _READS_MORE.get(task, ()):
        raise InputError(
            f'architecture.model_type: the class of "{config.model_type}" for {task} can\'t be used; {_INSTEAD}'
        )
    if task == "masked_lm" and not getattr(config, "legacy", True):
        raise InputError(f"architecture.config.legacy: false is not supported for masked_lm; {_INSTEAD}")
    pooling = getattr(config, "classifier_pooling", "cls")
    if task in PROBLEM_TYPES and pooling not in ("cls", "bos"):
        raise InputError(
            f'architecture.config.classifier_pooling: "{pooling}" is not supported; write "cls" (or "bos", as the '
            f"family calls it), or {_INSTEAD}"
        )


class _Given(nn.Module):
    """In place of an encoder: its input are the hidden states. It keeps the pooler, which is for texts alone."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        pooler = getattr(encoder, "pooler", None)
        if pooler is not None:
            self.pooler = pooler
            # ALBERT's is no module of its own, but a layer for the first token, and an activation.
            self.activation = getattr(encoder, "pooler_activation", None)

    def forward(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> _Answer:
        """``[B, L, H]`` to the same, and what the pooler makes of the first tokens."""
        pooled = None
        if hasattr(self, "pooler"):
            pooled = (
                self.pooler(input_ids) if self.activation is None else self.activation(self.pooler(input_ids[:, 0]))
            )
        return _Answer(last_hidden_state=input_ids, pooler_output=pooled)


class _Answer(BaseModelOutputWithPooling):
    """All that an encoder of any family may return, of which a head reads the hidden states or the pooled ones."""

    def __getattr__(self, name: str) -> None:
        """None for what isn't there, as ``global_attentions``."""
        if name.startswith("_"):
            raise AttributeError(name)


def _places(model: nn.Module) -> Iterator[tuple[tuple[nn.Module, str], nn.Parameter]]:
    """Each parameter with the module that holds it and its name there, a shared one as often as it occurs."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            yield (module, name), parameter


def _materialize(model: Any, *, but: nn.Parameter) -> None:
    """Give a model that was built without memory its parameters on the current default device, initialised anew.

    :param but: the one that another takes the place of.
    """
    device = torch.get_default_device()
    if device.type == "meta":
        return
    made = {id(but): but}
    for (module, name), parameter in list(_places(model)):
        if id(parameter) not in made:
            made[id(parameter)] = nn.Parameter(torch.empty_like(parameter, device=device), parameter.requires_grad)
        module.register_parameter(name, made[id(parameter)])
    with torch.no_grad():
        for module in model.modules():
            model._init_weights(module)  # noqa: SLF001 - transformers has no public way for a part of a model
