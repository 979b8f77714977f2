"""RoBERTa (Liu et al. 2019, arXiv:1907.11692): BERT's layers; other positions, tokens and heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs
from attrs.validators import ge

from rtx_core import Architecture, Head, SpecialTokens, hookimpl
from rtx_plugins.architectures.bert import Bert
from rtx_plugins.architectures.common.heads import DenseClassifier, LanguageModelling
from rtx_plugins.architectures.common.hugging_face import LANGUAGE, PROBLEM_TYPES, table_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

_PUBLISHED = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
"""What the published models have in place of ``RobertaConfig``'s defaults."""


@attrs.frozen(kw_only=True)
class Roberta(Bert):
    """BERT with positions that start behind the padding token's; defaults are those of ``transformers.RobertaConfig``.

    The positions of a sequence are pad_token_id + 1, pad_token_id + 2, ….
    """

    model_type: ClassVar[str | None] = "roberta"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        size: {**Bert.presets[size], **_PUBLISHED} for size in ("base", "large")
    }
    hf_classes: ClassVar[Mapping[str | None, str]] = {
        None: "RobertaModel",
        "masked_lm": "RobertaForMaskedLM",
        "causal_lm": "RobertaForCausalLM",
        "question_answering": "RobertaForQuestionAnswering",
        "token_classification": "RobertaForTokenClassification",
        **dict.fromkeys(PROBLEM_TYPES, "RobertaForSequenceClassification"),
    }
    special_tokens: ClassVar[SpecialTokens] = SpecialTokens(
        pad="<pad>",
        unk="<unk>",
        cls="<s>",
        sep="</s>",
        mask="<mask>",
        pair_separators=2,
        pair_token_type=0,
    )

    max_position_embeddings: int = attrs.field(default=512, validator=ge(1))
    """Rows of the position table; the first pad_token_id + 1 of them belong to no token."""
    pad_token_id: int = attrs.field(default=1, validator=ge(0))
    """Token whose embedding starts at 0 and is not trained, and the position in front of the first."""

    def check(self) -> Iterable[tuple[str, str]]:
        """Sizes that must fit each other."""
        yield from super().check()
        if self.usable_positions < 1:
            yield (
                "max_position_embeddings",
                f"{self.max_position_embeddings} rows leave no position behind pad_token_id, {self.pad_token_id}",
            )

    @property
    def usable_positions(self) -> int:
        """The longest sequence that fits."""
        return self.max_position_embeddings - self.pad_token_id - 1

    def build(self, vocab_size: int) -> torch.nn.Module:
        """The backbone.

        :raises InputError: the vocabulary is larger than the token table that the settings ask for.
        """
        from rtx_plugins.architectures.roberta.model import RobertaBackbone

        return RobertaBackbone(self, table_rows(self, vocab_size))

    def native_head(self, task: str) -> Head | None:
        """The head of ``transformers``' class for the task; None where it has none."""
        if task in PROBLEM_TYPES:
            return DenseClassifier(
                activation="tanh",
                dropout=self.head_dropout,
                drops_input=True,
                initializer_range=self.initializer_range,
            )
        return super().native_head(task)

    @property
    def language_head(self) -> Head:
        """The head over the vocabulary; its activation is GELU whatever that of the layers is."""
        return LanguageModelling(
            hidden_act="gelu",
            layer_norm_eps=self.layer_norm_eps,
            initializer_range=self.initializer_range,
            tie_word_embeddings=self.tie_word_embeddings,
            second_bias=True,
        )

    def hf_names(self, task: str | None) -> Sequence[tuple[str, str]]:
        """Pairs (our prefix, Hugging Face's prefix), the first match wins."""
        backbone = ("backbone.", "roberta.")
        if task in LANGUAGE:
            return (backbone, ("head.norm.", "lm_head.layer_norm."), ("head.", "lm_head."))
        if task in PROBLEM_TYPES:
            return (backbone, ("head.classifier.", "classifier.out_proj."), ("head.", "classifier."))
        if task in ("token_classification", "question_answering"):
            return (backbone, ("head.", ""))
        return (backbone,)


@hookimpl
def architecture() -> dict[str, type[Architecture]]:
    """Offer it as ``roberta``."""
    return {"roberta": Roberta}
