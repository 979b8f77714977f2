"""Pairs, triplets and an evaluation's queries and documents as samples; prompts, lengths and roles; embeddings out."""

import attrs
import pytest
import torch

from rtx_core import DataError, InputError, Outputs, Record, TextRole
from rtx_plugins.tasks.embedding import Embedding, MaxLengths, Prompts, identity_of

A, P, N = TextRole.ANCHOR, TextRole.POSITIVE, TextRole.NEGATIVE


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part."""

    def build(max_length=16, **settings):
        task = Embedding(**settings)
        return task.build(tokenizer, task.outputs([], 25), max_length=max_length, special_tokens=special_tokens)

    return build


@pytest.fixture
def document():
    """A function: a document of an evaluation."""
    return lambda text, number: Record({"role": TextRole.DOCUMENT, "text": text, "number": number}, "corpus.jsonl", 1)


@pytest.fixture
def query():
    """A function: a query of an evaluation with its judgments."""

    def make(text, number, *judgments):
        values = {"role": TextRole.QUERY, "text": text, "number": number, "judgments": judgments}
        return Record(values, "queries.jsonl", 1)

    return make


def sequences(sample, tokens):
    """The tokens of each sequence, joined."""
    tokens, start, found = iter(tokens), 0, []
    for length in sample.sequence_lengths:
        found.append(" ".join(next(tokens) for _ in range(length)))
        start += length
    assert start == len(sample.input_ids)
    return found


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_the_texts_of_a_record_are_sequences_of_one_sample(part, record, tokens_of):
    """Each stands for itself between special tokens, its target at its first token: role, identity, nothing."""
    (sample,) = part(negative="wrong").samples([record(anchor="a b", positive="c", wrong=["d d d", "a"])])
    assert sequences(sample, tokens_of(sample)) == [
        "[CLS] a b [SEP]",
        "[CLS] c [SEP]",
        "[CLS] d d d [SEP]",
        "[CLS] a [SEP]",
    ]
    assert sample.lengths == (4, 3, 5, 3)
    assert sample.target_positions.tolist() == [0, 4, 7, 12]
    texts = [(A, "a b"), (P, "c"), (N, "d d d"), (N, "a")]
    assert sample.targets.tolist() == [[role, identity_of(text), 0] for role, text in texts]
    assert sample.token_types.tolist() == [0] * 15


@pytest.mark.parametrize(
    ("columns", "expected"),
    [({}, []), ({"wrong": None}, []), ({"wrong": ""}, []), ({"wrong": []}, []), ({"wrong": "d"}, ["d"])],
)
def test_a_record_may_have_no_negative(part, record, columns, expected):
    """No column, null, an empty cell or an empty list is none; a text is one."""
    (sample,) = part(negative="wrong").samples([record(anchor="a", positive="b", **columns)])
    assert sample.targets[2:].tolist() == [[N, identity_of(text), 0] for text in expected]


def test_identities_tell_texts_apart():
    """63 bits that depend on the text alone; prompts and roles change nothing."""
    texts = [f"text {number}" for number in range(2000)] + ["", " ", "é", "e\u0301"]
    identities = {identity_of(text) for text in texts}
    assert len(identities) == len(texts)
    assert 2**62 < max(identities) < 2**63
    assert min(identities) >= 0


def test_prompts_stand_before_the_texts_of_their_role(part, record, document, query, tokens_of):
    """Those of negatives are the positives' unless they have their own; a query has the anchor's, a document the
    positive's.
    """
    records = [record(anchor="b", positive="b", wrong="b"), query("b", 0, (0, 1)), document("b", 0)]
    samples = list(part(negative="wrong", prompts=Prompts(anchor="a ", positive="c ")).samples(records))
    assert [text for sample in samples for text in sequences(sample, tokens_of(sample))] == [
        f"[CLS] {text} [SEP]" for text in ("a b", "c b", "c b", "a b", "c b")
    ]
    assert len(set(samples[0].targets[:, 1].tolist())) == 1
    (own,) = part(negative="wrong", prompts=Prompts(positive="c ", negative="")).samples(records[:1])
    assert sequences(own, tokens_of(own)) == ["[CLS] b [SEP]", "[CLS] c b [SEP]", "[CLS] b [SEP]"]
    texts = Embedding(negative="wrong", prompts=Prompts(anchor="a ")).texts(records[0])
    assert list(texts) == ["a b", "b", "b"]


def test_every_role_has_its_own_length(part, record, document, query):
    """A table by role; what is cut is counted, the prompt included; without a table all have one length."""
    lengths = MaxLengths(anchor=4, positive=6)
    texts = {"anchor": "a " * 9, "positive": "b " * 9, "wrong": "c " * 9}
    task = part(negative="wrong", max_length=6, prompts=Prompts(anchor="a a a "))
    task = attrs.evolve(task.task, max_length=lengths).build(
        task.tokenizers[A], Outputs(size=0), max_length=6, special_tokens=None
    )
    samples = list(task.samples([record(**texts), query("a " * 9, 0, (0, 1)), document("a " * 9, 0)]))
    assert [sample.sequence_lengths for sample in samples] == [(4, 6, 6), (4,), (6,)]
    assert list(task.notes()) == ["5 texts cut at max_length"]
    assert list(task.notes()) == []
    (sample,) = part(max_length=7).samples([record(**texts)])
    assert sample.lengths == (7, 7)


def test_the_longest_length_counts():
    """What the architecture must have room for."""
    assert Embedding(max_length=MaxLengths(anchor=64, positive=256)).longest == 256
    assert Embedding(max_length=MaxLengths(anchor=64, positive=32, negative=128)).longest == 128
    assert Embedding(max_length=99).longest == 99
    assert Embedding().longest is None


# --- an evaluation's queries and documents ----------------------------------------------------------------------------


def test_judgments_stand_where_their_query_does(part, query, document):
    """A row for each at the query's position; a document's target is its number."""
    asked, found = part().samples([query("a b", 3, (7, 2), (1, 0)), document("c", 7)])
    assert asked.target_positions.tolist() == [0, 0, 0]
    assert asked.targets.tolist() == [
        [TextRole.QUERY, 3, 0],
        [TextRole.JUDGMENT, 7, 2],
        [TextRole.JUDGMENT, 1, 0],
    ]
    assert found.targets.tolist() == [[TextRole.DOCUMENT, 7, 0]]
    assert (asked.lengths, found.lengths) == ((), ())


def test_queries_without_a_relevant_document_are_left_out_and_counted(part, query, document):
    """Neither those that nobody judged, nor those for which everything was found wrong."""
    records = [document("a", 0), query("a", 0), query("b", 1, (0, 0)), query("c", 2, (0, 1))]
    task = part()
    samples = list(task.samples(records))
    assert [sample.targets[0].tolist() for sample in samples] == [[TextRole.DOCUMENT, 0, 0], [TextRole.QUERY, 2, 0]]
    assert list(task.notes()) == ["2 queries have no relevant document and are left out"]


def test_an_evaluation_is_nothing_to_learn_from(document):
    """Training records that are queries and documents are refused."""
    with pytest.raises(InputError, match="^data.train: corpus.jsonl holds queries and documents for an evaluation"):
        Embedding().outputs([document("a", 0)], 25)


def test_a_column_of_negatives_that_no_record_has_is_an_error(record):
    """One in a thousand is enough; none at all is a mistake in the name."""
    with pytest.raises(InputError, match='no training record has a column "wrong"; the first has "anchor", "positive"'):
        Embedding(negative="wrong").outputs([record(anchor="a", positive="b")] * 2, 25)
    records = [record(anchor="a", positive="b"), record(anchor="a", positive="b", wrong=None)]
    assert Embedding(negative="wrong").outputs(iter(records), 25) == Outputs(size=0)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_an_embedding_is_answered_of_what_is_there(part, record):
    """Of one column a list of numbers, of several an object with every role, negatives as they were written."""
    task = part(negative="wrong")
    records = [
        record(anchor="a"),
        record(positive="b", anchor=None),
        record(anchor="a", positive="b"),
        record(anchor="a", wrong="c"),
        record(anchor="a", positive="b", wrong=["c", "d"]),
        record(wrong=["c"]),
    ]
    samples = list(task.samples(records, targets=False))
    assert [len(sample.targets) for sample in samples] == [1, 1, 2, 2, 4, 1]
    rows = [torch.arange(2.0 * len(sample.targets)).reshape(-1, 2) for sample in samples]
    assert task.answers(records, rows, scores=True) == [
        {"embedding": [0.0, 1.0]},
        {"embedding": [0.0, 1.0]},
        {"embedding": {"anchor": [0.0, 1.0], "positive": [2.0, 3.0], "negative": None}},
        {"embedding": {"anchor": [0.0, 1.0], "positive": None, "negative": [2.0, 3.0]}},
        {"embedding": {"anchor": [0.0, 1.0], "positive": [2.0, 3.0], "negative": [[4.0, 5.0], [6.0, 7.0]]}},
        {"embedding": {"anchor": None, "positive": None, "negative": [[0.0, 1.0]]}},
    ]


def test_a_task_without_negatives_answers_without_them(part, record):
    """Two embeddings, nothing for a column that was never asked for."""
    answers = part().answers([record(anchor="a", positive="b")], [torch.arange(4.0).reshape(2, 2)], scores=False)
    assert answers == [{"embedding": {"anchor": [0.0, 1.0], "positive": [2.0, 3.0]}}]


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"anchor": "a"}, 'no column "positive"; the columns are "anchor"'),
        ({"anchor": "a", "positive": None}, 'column "positive": expected text, got null'),
        ({"anchor": 3, "positive": "b"}, 'column "anchor": expected text, got the number 3'),
        (
            {"anchor": "a", "positive": "b", "wrong": 3},
            'column "wrong": expected a text or a list of texts, got the nu',
        ),
        ({"anchor": "a", "positive": "b", "wrong": ["c", None]}, 'column "wrong": expected a text or a list of texts'),
    ],
)
def test_bad_record_is_an_error_with_its_place(part, record, values, message):
    """What is missing or no text is said in one line that begins with its place."""
    with pytest.raises(DataError) as caught:
        list(part(negative="wrong").samples([record(**values)]))
    assert str(caught.value).startswith(f"data.jsonl:7: {message}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text": "a"}, 'no column "anchor"; the columns are "text"'),
        ({"anchor": None}, 'column "anchor": expected text, got null'),
    ],
)
def test_prediction_needs_one_of_the_columns(part, record, values, message):
    """A record without any text is an error there too."""
    with pytest.raises(DataError) as caught:
        list(part().samples([record(**values)], targets=False))
    assert str(caught.value) == f"data.jsonl:7: {message}"


def test_roles_have_columns_of_their_own():
    """A text that belongs to itself is refused by ``check``."""
    assert [field for field, _ in Embedding(positive="anchor").check()] == ["positive"]
    assert [field for field, _ in Embedding(negative="positive").check()] == ["negative"]
    assert list(Embedding(negative="wrong").check()) == []


def test_a_length_leaves_room():
    """As for every task, alone and in the table."""
    for settings in ({"max_length": 1}, {"max_length": 0}):
        with pytest.raises(ValueError, match="must be >= 2"):
            Embedding(**settings)
    with pytest.raises(ValueError, match="'anchor' must be >= 2"):
        MaxLengths(anchor=1, positive=8)
