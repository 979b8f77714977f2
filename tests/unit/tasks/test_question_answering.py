"""Questions and texts in windows, where answers start and end in them, and the answer that logits give."""

import itertools

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors
from tokenizers.decoders import ByteLevel

from rtx_core import Batch, DataError, InputError, Outputs
from rtx_core.components import SpanRole
from rtx_plugins.tasks.question_answering import QuestionAnswering
from rtx_plugins.tasks.span_rows import END, FIRST, LAST, PLACE, START, rows_of_text, text_of_rows
from rtx_plugins.tasks.spans_of_answers import best_answer

SMALL = {"max_question_length": 3, "stride": 1}


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: the task's part, for training data of which some have no answer, unless told."""

    def build(max_length=16, unanswered=1, **settings):
        outputs = Outputs(size=2, counts=(3, unanswered))
        return QuestionAnswering(**(SMALL | settings)).build(
            tokenizer, outputs, max_length=max_length, special_tokens=special_tokens
        )

    return build


@pytest.fixture
def asked(record):
    """A function: a record."""

    def make(context, answers=(), question="a b"):
        return record(question=question, context=context, answers=answers)

    return make


@pytest.fixture
def windows_of(tokenizer):
    """A function: the tokens of each window of a sample, and its rows."""

    def split(sample):
        tokens = [tokenizer.id_to_token(number) for number in sample.input_ids.tolist()]
        bounds = [0, *np.cumsum(sample.sequence_lengths)]
        return [(tokens[start:stop], sample.targets[start:stop]) for start, stop in itertools.pairwise(bounds)]

    return split


def marked(rows):
    """Where a window's answer starts and ends."""
    return np.flatnonzero(rows[:, START] == 1).tolist(), np.flatnonzero(rows[:, END] == 1).tolist()


# --- what a record says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answers",
    [
        {"text": ["c d", "d"], "answer_start": [6, 8]},
        [{"text": "c d", "start": 6}, {"text": "d", "start": 8}],
        [{"text": "c d", "answer_start": 6}, {"text": "d", "answer_start": 8}],
    ],
    ids=["a table of SQuAD", "a list", "a file of SQuAD"],
)
def test_answers_are_read_in_each_form(part, asked, answers):
    """Both right answers become rows with their characters, whichever way they are written."""
    (sample,) = part().samples([asked("ab ab c d", answers)])
    rows = sample.targets[sample.targets[:, PLACE] == SpanRole.REFERENCE]
    assert rows[:, FIRST:].tolist() == [[6, 9], [8, 9]]


def test_a_plain_answer_is_looked_for(part, asked):
    """It stands where it first occurs, and that it occurs again is noted once."""
    built = part()
    (sample, _) = built.samples([asked("c d ab c d", "c d"), asked("ab c", "c")])
    rows = sample.targets[sample.targets[:, PLACE] == SpanRole.REFERENCE]
    assert rows[:, FIRST:].tolist() == [[0, 3]]
    assert built.notes() == ["1 answers occur more than once in their context; the first place was taken"]
    assert built.notes() == []


@pytest.mark.parametrize("answers", ["", [], (), {"text": [], "answer_start": []}])
def test_no_answer_can_be_written(part, asked, answers):
    """An empty list or text: no row of an answer, and the first token is where it starts and ends."""
    (sample,) = part().samples([asked("ab c d", answers)])
    assert (sample.targets[:, PLACE] != SpanRole.REFERENCE).all()
    assert marked(sample.targets[: len(sample.input_ids)]) == ([0], [0])


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([{"text": "c", "start": 4}], r'the context has the text "d" at character 4, not the text "c"; it stands at 2'),
        ([{"text": "x", "start": 2}], r'has the text "c" at character 2, not the text "x"; it does not occur in it'),
        ([{"text": "d", "start": 9}], r'has an empty text at character 9, not the text "d"; it stands at 4'),
        ([{"text": "d", "start": -1}], r'has an empty text at character -1, not the text "d"; it stands at 4'),
        ("x", r'the text "x" does not occur in the context'),
        (None, r"expected \{.*; got null"),
        ({"text": ["c"], "answer_start": []}, r"expected \{.*; got the object"),
        ([{"text": "c"}], r"expected \{.*; got the object"),
        ([{"text": "", "start": 0}], r"expected \{.*; got the object"),
        ([{"text": "c", "start": True}], r"expected \{.*; got the object"),
        (["c"], r'expected \{.*; got the text "c"'),
        (3, r"expected \{.*; got the number 3"),
    ],
)
def test_a_bad_answer_is_an_error_with_its_place(part, asked, answers, message):
    """File, line, column and what is wrong, in encoding and when outputs are counted."""
    for read in (lambda rows: list(part().samples(rows)), lambda rows: QuestionAnswering().outputs(rows, 25)):
        with pytest.raises(DataError, match=rf'^data.jsonl:7: column "answers": ?.*{message}'):
            read([asked("a c d", answers)])


def test_a_record_without_answer_is_refused_where_the_task_says_so(asked):
    """``no_answer = false`` is a promise about the data."""
    with pytest.raises(DataError, match='^data.jsonl:7: column "answers" has no answer, and task.no_answer is false$'):
        QuestionAnswering(no_answer=False).outputs([asked("a")], 25)


def test_outputs_are_start_and_end(asked):
    """Two, with how many questions have an answer and how many none."""
    records = [asked("a c", "c"), asked("a c"), asked("a c", "a")]
    assert QuestionAnswering().outputs(records, 25) == Outputs(size=2, counts=(2, 1))


def test_a_column_has_one_role():
    """Question, context and answers are three columns."""
    task = QuestionAnswering(question="q", context="q", answers="q")
    assert [field for field, _ in task.check()] == ["context", "answers"]
    assert QuestionAnswering().columns(targets=True) == ("question", "context", "answers")
    assert QuestionAnswering().columns(targets=False) == ("question", "context")


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_length", "stride"), [(12, 0), (12, 3), (17, 5), (64, 20)])
def test_windows_equal_those_of_transformers(part, asked, theirs, random_words, max_length, stride):
    """200 random pairs are cut as transformers cuts them where it truncates the second text alone."""
    questions = [" ".join(words[:2]) for words in random_words(200, seed=5)]
    contexts = [" ".join(words) for words in random_words(200, seed=6)]
    fitting = [pair for pair in zip(questions, contexts, strict=True) if len(theirs(pair[0])["input_ids"]) <= 6]
    assert len(fitting) > 80
    expected = theirs(
        *map(list, zip(*fitting, strict=True)), truncation="only_second", max_length=max_length, stride=stride,
        return_overflowing_tokens=True,
    )  # fmt: skip
    built = part(max_length, max_question_length=4, stride=stride)
    samples = list(built.samples(asked(context, question=question) for question, context in fitting))
    pieces = [np.split(sample.input_ids, np.cumsum(sample.sequence_lengths)[:-1]) for sample in samples]
    assert [piece.tolist() for own in pieces for piece in own] == expected["input_ids"]
    types = [np.split(sample.token_types, np.cumsum(sample.sequence_lengths)[:-1]) for sample in samples]
    assert [piece.tolist() for own in types for piece in own] == expected["token_type_ids"]
    assert built.notes() == []


def test_each_window_knows_where_the_answer_is(part, asked, windows_of):
    """Windows of 4 tokens of text with 1 in common: the answer in one, across a border in none, in the rest [CLS]."""
    context = "a b c d a b c d"
    expected = {
        "d a": [("[CLS]", "[CLS]"), ("d", "a"), ("[CLS]", "[CLS]")],  # a b c d | d a b c | c d
        "c": [("c", "c"), ("[CLS]", "[CLS]"), ("[CLS]", "[CLS]")],
        "c d a": [("[CLS]", "[CLS]")] * 3,
        "a b c d a b c d": [("[CLS]", "[CLS]")] * 3,
    }
    for answer, tokens in expected.items():
        (sample,) = part(9).samples([asked(context, answer)])
        windows = windows_of(sample)
        assert [window[4:-1] for window, _ in windows] == [[*"abcd"], [*"dabc"], [*"cd"]]
        assert [(w[s], w[e]) for w, rows in windows for (s,), (e,) in [marked(rows)]] == tokens


def test_an_answer_in_two_windows_is_learnt_in_both(part, asked, windows_of):
    """Where neighbours share it."""
    (sample,) = part(9).samples([asked("a b c d a b c d", [{"text": "d", "start": 6}])])
    assert [marked(rows) for _, rows in windows_of(sample)] == [([7], [7]), ([4], [4]), ([0], [0])]


def test_an_answer_takes_the_tokens_that_it_overlaps(part, asked, windows_of):
    """Part of a piece is the whole piece; pieces beside it are not."""
    (sample,) = part().samples([asked("in unbelievably a", [{"text": "elie", "start": 6}])])
    ((tokens, rows),) = windows_of(sample)
    assert tokens[4:9] == ["in", "un", "##believ", "##ably", "a"]
    assert marked(rows) == ([6], [6])


def test_rows_hold_places_and_words(part, asked, windows_of):
    """Places count from 0 in each window; pieces have the characters of their word, other tokens none."""
    (sample,) = part(9).samples([asked("in unbelievably a", "in")])
    (_, rows), (tokens, second) = windows_of(sample)
    assert rows[:, PLACE].tolist() == list(range(9))
    assert rows[:, FIRST].tolist() == [-1] * 4 + [0, 3, 3, 3, -1]
    assert rows[:, LAST].tolist() == [-1] * 4 + [2, 15, 15, 15, -1]
    # The second window begins inside the word, and still knows where it began.
    assert tokens[4:-1] == ["##ably", "a"]
    assert second[:, FIRST:].tolist() == [[-1, -1]] * 4 + [[3, 15], [16, 17], [-1, -1]]


def test_a_sample_carries_its_text(part, asked):
    """Behind the tokens, at the last one's position: right answers and the whole context, whatever is in it."""
    context = "字 😀 á\u0301 \u200d\x00 " + "in New York, " * 20 + "\x00"
    (sample,) = part(9).samples([asked(context, "New York")])
    tokens = len(sample.input_ids)
    assert text_of_rows(sample.targets) == context
    assert (sample.target_positions[tokens:] == tokens - 1).all()
    assert (sample.target_positions[:tokens] == np.arange(tokens)).all()
    assert (sample.targets[tokens:, PLACE] < 0).all()
    assert (sample.targets.dtype, sample.target_positions.dtype) == (np.int64, np.int32)
    assert sample.lengths == () or sum(sample.lengths) == tokens


@pytest.mark.parametrize("text", ["", "a", "x" * 31, "x" * 32, "x" * 33, "\x00" * 5, "😀" * 9])
def test_text_in_rows_comes_back(text):
    """Of any length, the empty one in a row of its own."""
    rows = rows_of_text(text)
    assert rows.shape == (max(1, -(-len(text.encode()) // 32)), 5)
    assert text_of_rows(rows) == text


def test_long_questions_are_cut(part, asked, windows_of):
    """At ``max_question_length`` tokens, and counted."""
    built = part()
    (sample,) = built.samples([asked("d", question="a b c a b c")])
    ((tokens, _),) = windows_of(sample)
    assert tokens == ["[CLS]", "a", "b", "c", "[SEP]", "d", "[SEP]"]
    assert built.notes() == ["1 question cut at max_question_length (3)"]


@pytest.mark.parametrize(("question", "context"), [("", "a"), ("a", ""), ("", "")])
def test_empty_texts_are_read(part, asked, question, context):
    """An empty question or context is one window; without text there is nothing to answer with."""
    built = part()
    (sample,) = built.samples([asked(context, question=question)])
    assert len(sample.sequence_lengths) == 1
    (answer,) = built.answers(
        [asked(context, question=question)], [torch.zeros(len(sample.input_ids), 2)], scores=False
    )
    assert answer["answer"] == (context or None)


def test_predict_needs_no_answers(part, record):
    """Every token has an ignored target, and nothing else has one."""
    (sample,) = part().samples([record(question="a", context="b c")], targets=False)
    assert sample.targets[:, START : END + 1].tolist() == [[-1, -1]] * len(sample.input_ids)


def test_an_answer_without_token_is_not_learnt(part, asked):
    """Of a lone joiner the tokenizer leaves nothing: the window is ignored, and counted."""
    built = part()
    (sample,) = built.samples([asked("a \u200d b", "\u200d")])
    assert (sample.targets[: len(sample.input_ids), START : END + 1] == -1).all()
    assert built.notes() == ["1 answers have no token and are not learnt"]


@pytest.mark.parametrize("settings", [{"stride": 10}, {"max_question_length": 12}, {"max_question_length": 14}])
def test_no_room_is_refused(part, settings):
    """Question and stride must leave a window of 16 tokens some text that is new."""
    with pytest.raises(InputError, match="task.max_length: of 16 tokens 3 special ones and a question of"):
        part(16, **settings)


@pytest.mark.parametrize(
    ("architecture", "task", "window"),
    [(512, None, (384, 64, 128)), (128, None, (128, 32, 42)), (512, 512, (512, 64, 128))],
)
def test_windows_have_berts_sizes_unless_written(tokenizer, special_tokens, architecture, task, window):
    """384 tokens, 64 of them for the question and 128 in common; smaller architectures take shares."""
    outputs = Outputs(size=2, counts=(1, 1))
    built = QuestionAnswering(max_length=task).build(
        tokenizer, outputs, max_length=architecture, special_tokens=special_tokens
    )
    assert (built.window.length, built.window.question, built.window.stride) == window


def test_byte_level_pieces_read_without_their_space(special_tokens, asked):
    """A piece that begins with a space gives an answer that does not."""
    characters = pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {token: number for number, token in enumerate([*special_tokens.names, *sorted(characters)])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    tokenizer.add_special_tokens(list(special_tokens.names))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    built = QuestionAnswering(**SMALL).build(
        tokenizer, Outputs(size=2, counts=(1, 0)), max_length=64, special_tokens=special_tokens
    )
    record = asked("né  in 😀", "😀")
    (sample,) = built.samples([record])
    logits = np.where(sample.targets[: len(sample.input_ids), START : END + 1] == 1, 9.0, 0.0)
    assert built.answers([record], [torch.tensor(logits)], scores=False) == [{"answer": "😀", "start": 7, "end": 8}]
    words = {tuple(row) for row in sample.targets[: len(sample.input_ids), FIRST:].tolist()} - {(-1, -1)}
    assert words == {(0, 2), (4, 6), (7, 8)}


# --- answers ----------------------------------------------------------------------------------------------------------


def pipelines_answer(logits, rows, longest, *, may_be_none):
    """Transformers' question-answering pipeline (4.x, top_k 1, no alignment) in plain loops: start, end and score."""
    candidates, smallest_none = [], np.inf
    bounds = np.flatnonzero(rows[:, PLACE] == 0)[1:]
    offset = 0
    for window, places in zip(np.split(logits, bounds), np.split(rows, bounds), strict=True):
        wanted = (places[:, FIRST] >= 0) | (places[:, PLACE] == 0)
        start, end = (np.where(wanted, column, -10000.0) for column in window.T)
        start, end = (np.exp(column - column.max()) / np.exp(column - column.max()).sum() for column in (start, end))
        smallest_none = min(smallest_none, start[0] * end[0])
        start[0] = end[0] = 0.0
        candidates += [
            (start[i] * end[j], offset + i, offset + j)
            for i in range(len(start))
            for j in range(i, min(i + longest, len(start)))
            if places[i, FIRST] >= 0 and places[j, FIRST] >= 0
        ]
        offset += len(window)
    score, i, j = max(candidates, key=lambda candidate: candidate[0])
    if may_be_none and smallest_none > score:
        return 0, 0, smallest_none
    return rows[i, FIRST], rows[j, LAST], score


@pytest.mark.parametrize("may_be_none", [False, True])
@pytest.mark.parametrize("longest", [1, 3, 30])
def test_the_best_answer_is_that_of_transformers_pipeline(part, asked, random_words, longest, may_be_none):
    """For 100 random texts of several windows and random logits: characters, and the score within rounding."""
    texts = [" ".join(words) for words in random_words(140, seed=8) if len(words) > 2][:100]
    chance = np.random.default_rng(3)
    nones = 0
    for sample in part(12).samples(map(asked, texts)):
        rows = sample.targets[sample.targets[:, PLACE] >= 0]
        logits = chance.normal(scale=2.0, size=(len(rows), 2))
        logits[rows[:, PLACE] == 0] += chance.normal(4.0, 4.0)
        found = best_answer(logits, rows, longest=longest, may_be_none=may_be_none)
        first, last, score = pipelines_answer(logits, rows, longest, may_be_none=may_be_none)
        assert (found.first, found.last) == (first, last)
        assert found.score == pytest.approx(score, rel=1e-12)
        nones += found.is_none
    assert (10 < nones < 90) if may_be_none else nones == 0


def test_an_answer_has_its_characters(part, asked):
    """It reads from the first word's first character to the last one's last, spaces and all."""
    built = part()
    record = asked("Anna lives  unbelievably, in New York.")
    (sample,) = built.samples([record])
    logits = torch.zeros(len(sample.input_ids), 2)
    logits[7, 0] = logits[9, 1] = 20.0  # "##believ" to ","
    (answer,) = built.answers([record], [logits], scores=True)
    assert answer.pop("score") == pytest.approx(1.0, abs=1e-6)
    assert answer == {"answer": "unbelievably,", "start": 12, "end": 25}


def test_whether_there_is_none_is_learnt_from_the_data(part, asked):
    """``auto``: only where some training record has no answer; the task may say otherwise."""
    record, none = asked("a b c"), {"answer": None, "start": None, "end": None}
    (sample,) = part().samples([record])
    logits = torch.zeros(len(sample.input_ids), 2)
    logits[0] = 5.0
    assert part(unanswered=1).answers([record], [logits], scores=False) == [none]
    assert part(unanswered=0).answers([record], [logits], scores=False) != [none]
    assert part(unanswered=0, no_answer=True).answers([record], [logits], scores=False) == [none]
    assert part(unanswered=1, no_answer=False).answers([record], [logits], scores=False) != [none]


def test_metrics_get_one_answer_for_each_sample(part, asked):
    """Of all rows those stay that are no tokens, with the characters that predict would give."""
    built = part(9)
    records = [asked("a b c d a b c d", "c d"), asked("in New York", "York"), asked("字")]
    samples = list(built.samples(records))
    batch = Batch.of(samples, [4, 7, 9])
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(len(batch.targets), 2, generator=generator)
    spans, targets, ids = built.merged(logits, batch.targets, batch.target_samples)
    assert built.predictions(spans) is spans
    assert ids.tolist() == [4, 4, 7, 7, 9]
    assert targets[:, PLACE].tolist() == [-1, -2, -1, -2, -2]
    of_each = logits.split([len(sample.targets) for sample in samples])
    answers = built.answers(
        records, [rows[: len(sample.input_ids)] for rows, sample in zip(of_each, samples, strict=True)], scores=False
    )
    expected = [[answer["start"] or 0, answer["end"] or 0] for answer in answers]
    assert spans.tolist() == [expected[0], expected[0], expected[1], expected[1], expected[2]]
