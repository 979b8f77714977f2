"""Words with tags of a scheme: what is validated and counted, and the entities of an answer."""

import math

import pytest
import torch
from seqeval.metrics.sequence_labeling import get_entities

from rtx_core import DataError, Outputs
from rtx_plugins.tasks.token_classification import TokenClassification

NAMES = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
TAGGED = Outputs(size=5, labels=NAMES, counts=(1, 1, 1, 1, 1), scheme="IOB2")


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part with tags of IOB2."""

    def build(max_length=16, outputs=TAGGED, **settings):
        task = TokenClassification(scheme="IOB2", **settings)
        return task.build(tokenizer, outputs, max_length=max_length, special_tokens=special_tokens)

    return build


def logits_of(names):
    """Logits that predict these tags, each with probability 1/2."""
    row = torch.tensor([NAMES.index(name) for name in names], dtype=torch.int64)
    return torch.nn.functional.one_hot(row, 5) * math.log(4.0)


def test_the_scheme_is_kept_with_the_tags(record):
    """Tags are those of the training data, sorted, and the outputs say how they make up entities."""
    records = [record(words=["a", "b"], tags=["O", "B-PER"]), record(words=["c"], tags=["I-PER"])]
    assert TokenClassification(scheme="IOB2").outputs(records, 25) == Outputs(
        size=3, labels=("B-PER", "I-PER", "O"), counts=(1, 1, 1), scheme="IOB2"
    )
    assert TokenClassification(scheme="plain").outputs(records, 25).scheme is None


@pytest.mark.parametrize(
    ("scheme", "tag", "forms"),
    [
        ("IOB2", "E-PER", "B-LABEL or I-LABEL"),
        ("IOB2", "PER", "B-LABEL or I-LABEL"),
        ("IOBES", "L-PER", "B-LABEL, I-LABEL, E-LABEL or S-LABEL"),
    ],
)
def test_a_tag_of_another_scheme_is_an_error_with_its_place(record, scheme, tag, forms):
    """A prefix that the scheme doesn't have is refused with file, line and what may stand there."""
    records = [record(words=["a", "b"], tags=["O", tag])]
    message = f'^data.jsonl:7: column "tags": "{tag}" is no tag in {scheme}; expected O, {forms}$'
    with pytest.raises(DataError, match=message):
        TokenClassification(scheme=scheme).outputs(records, 25)


def test_tags_that_continue_nothing_are_learnt_and_counted(part, record):
    """An I- without its B- keeps its class; the notes say how many there are, once."""
    built = part()
    (sample,) = built.samples([record(words=["a", "b", "c", "d"], tags=["I-PER", "I-PER", "O", "I-LOC"])])
    assert sample.targets.tolist() == [3, 3, 4, 2]
    assert built.notes() == ["2 tags continue an entity that has not begun; each is read as its beginning"]
    assert built.notes() == []


@pytest.mark.parametrize(
    "names",
    ["B-PER I-PER O B-LOC", "I-PER I-PER B-PER I-LOC", "O I-LOC O I-PER", "B-PER B-PER I-PER I-PER", "O O O O"],
)
def test_entities_are_those_of_seqeval(part, record, names):
    """Whether or not the predicted tags keep to the scheme; start and end count words."""
    names = names.split()
    (answer,) = part().answers([record(words=["a", "b", "c", "d"])], [logits_of(names)], scores=False)
    assert answer["prediction"] == names
    expected = [{"start": start, "end": end + 1, "label": label} for label, start, end in get_entities(names)]
    assert answer["entities"] == expected


def test_an_entitys_score_is_the_mean_of_its_words(part, record):
    """Probabilities 1/2 and 1/4 of the two tags that were predicted make 3/8."""
    rows = logits_of(["B-PER", "I-PER", "O"]).float()
    rows[1] = 0.0
    rows[1, 3] = math.log(4.0 / 3.0)
    (answer,) = part().answers([record(words=["a", "b", "c"])], [rows], scores=True)
    assert answer["entities"] == [{"start": 0, "end": 2, "label": "PER", "score": pytest.approx(0.375, abs=1e-7)}]


def test_a_word_that_is_not_seen_is_outside(part, record):
    """Its tag is O, also where O is none of the training data's, and it has no entity."""
    outputs = Outputs(size=2, labels=("B-PER", "I-PER"), counts=(9, 1), scheme="IOB2")
    (answer,) = part(3, outputs).answers([record(words=["a", "b"])], [torch.tensor([[1.0, 0.0]])], scores=True)
    assert answer["prediction"] == ["B-PER", "O"]
    assert [(entity["start"], entity["end"]) for entity in answer["entities"]] == [(0, 1)]


def test_plain_tags_have_no_entities(tokenizer, special_tokens, record):
    """Without a scheme the answer is the tags alone."""
    outputs = Outputs(size=5, labels=NAMES)
    built = TokenClassification().build(tokenizer, outputs, max_length=16, special_tokens=special_tokens)
    assert built.answers([record(words=["a"])], [logits_of(["B-PER"])], scores=False) == [{"prediction": ["B-PER"]}]
