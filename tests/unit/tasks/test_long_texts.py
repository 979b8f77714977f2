"""Texts that are longer than a sequence: windows as transformers cuts them, head and tail, and what is made of them."""

import numpy as np
import pytest
import torch

from rtx_core import Batch, InputError, Outputs
from rtx_plugins.tasks.multi_label_classification import MultiLabelClassification
from rtx_plugins.tasks.regression import Regression
from rtx_plugins.tasks.sequence_classification import SequenceClassification
from rtx_plugins.tasks.token_classification import TokenClassification

CLASSES = Outputs(size=2, labels=("neg", "pos"), counts=(1, 1))
TAGS = Outputs(size=2, labels=("N", "O"), counts=(1, 1))
LETTERS = "a b c d " * 5


@pytest.fixture
def part(tokenizer, special_tokens):
    """A function: a task's part."""

    def build(task, outputs=CLASSES, max_length=8):
        return task.build(tokenizer, outputs, max_length=max_length, special_tokens=special_tokens)

    return build


def sequences(sample):
    """The ids of each sequence."""
    return [row.tolist() for row in np.split(sample.input_ids, np.cumsum(sample.sequence_lengths)[:-1])]


def windows(**settings):
    return SequenceClassification(long_text="windows", **settings)


# --- whole texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_length", "stride"), [(8, 0), (8, 1), (8, 5), (16, 4), (5, 2), (3, 0), (64, 20)])
def test_windows_are_those_of_transformers(part, record, theirs, random_words, max_length, stride):
    """On 200 random texts: ids and lengths of every window, each with the text's target at its first token."""
    texts = [" ".join(words) for words in random_words(200, seed=6)]
    expected = theirs(
        texts, truncation=True, max_length=max_length, stride=stride, return_overflowing_tokens=True, padding=False
    )
    cut = [[] for _ in texts]
    for text, ids in zip(expected["overflow_to_sample_mapping"], expected["input_ids"], strict=True):
        cut[text].append(ids)
    built = part(windows(stride=stride), max_length=max_length)
    for sample, ids in zip(built.samples([record(text=t, label="pos") for t in texts]), cut, strict=True):
        assert sequences(sample) == ids
        assert sample.target_positions.tolist() == np.cumsum([0, *map(len, ids)])[:-1].tolist()
        assert sample.targets.tolist() == [1] * len(ids)
    assert built.notes() == []


def test_windows_share_a_quarter_unless_it_is_written(part, record):
    """Of 8 tokens of text the next window repeats 2."""
    (sample,) = part(windows(), max_length=10).samples([record(text=LETTERS, label="pos")])
    assert [len(ids) - 2 for ids in sequences(sample)] == [8, 8, 8]
    assert sequences(sample)[0][-3:-1] == sequences(sample)[1][1:3]


def test_head_and_tail_of_512_tokens_are_those_of_the_paper(part, record, tokens_of):
    """Sun et al. 2019 keep the first 128 and the last 382 tokens of a text."""
    built = part(SequenceClassification(long_text="head_tail"), max_length=512)
    middle = "c " * 90
    (sample,) = built.samples([record(text="a " * 128 + middle + "b " * 382, label="pos")])
    assert tokens_of(sample) == ["[CLS]", *["a"] * 128, *["b"] * 382, "[SEP]"]
    assert (sample.lengths, sample.target_positions.tolist()) == ((), [0])
    assert built.notes() == ["1 text shortened to head and tail"]


@pytest.mark.parametrize(
    ("long_text", "note"),
    [
        ("truncate", ["1 text cut at max_length"]),
        ("head_tail", ["1 text shortened to head and tail"]),
        ("windows", []),
    ],
)
def test_a_text_that_fits_is_left_as_it_is(part, record, tokens_of, long_text, note):
    """Six tokens of text fit into 8; with a seventh the notes say what was lost."""
    built = part(SequenceClassification(long_text=long_text))
    (sample,) = built.samples([record(text="a b c d a b", label="neg")])
    assert tokens_of(sample) == ["[CLS]", "a", "b", "c", "d", "a", "b", "[SEP]"]
    assert (sample.lengths, built.notes()) == ((), [])
    list(built.samples([record(text="a b c d a b c", label="neg")]))
    assert built.notes() == note


def test_windows_of_labels_and_numbers_have_the_texts_targets(part, record):
    """Rows of several labels and of standardised numbers are repeated for each window."""
    labelled = part(MultiLabelClassification(long_text="windows"))
    (sample,) = labelled.samples([record(text=LETTERS, label=["pos"])])
    assert sample.targets.tolist() == [[0.0, 1.0]] * len(sample.lengths)
    number = part(Regression(long_text="windows"), Outputs(size=1, center=(1.0,), scale=(2.0,)))
    (sample,) = number.samples([record(text=LETTERS, target=4.0)])
    assert sample.targets.tolist() == [[1.5]] * len(sample.lengths)
    assert (sample.targets.dtype, len(sample.lengths)) == (np.float32, 4)


def test_merged_logits_are_the_mean_of_the_windows(part):
    """One row for each text, in order, with its target; texts of one window stay as they are."""
    logits = torch.tensor([[1.0, 2.0], [3.0, 6.0], [0.0, 1.0], [5.0, 5.0], [6.0, 5.0], [7.0, 5.0]])
    samples, targets = torch.tensor([4, 4, 2, 9, 9, 9]), torch.tensor([1, 1, 0, 1, 1, 1])
    merged, kept, numbers = part(windows()).merged(logits, targets, samples)
    assert merged.tolist() == [[2.0, 4.0], [0.0, 1.0], [6.0, 5.0]]
    assert (kept.tolist(), numbers.tolist()) == ([1, 0, 1], [4, 2, 9])
    nothing = part(windows()).merged(logits[:0], targets[:0], samples[:0])
    assert [len(rows) for rows in nothing] == [0, 0, 0]
    assert part(SequenceClassification()).merged(logits, targets, samples) == (logits, targets, samples)


def test_an_answer_is_of_the_mean_of_the_windows(part, record):
    """Two windows for one label, one much more strongly for the other."""
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 9.0]])
    assert part(windows()).answers([record(text=LETTERS)], [rows], scores=False) == [{"prediction": "pos"}]


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        ({"stride": 3}, {"stride": 'only windows share tokens; write long_text = "windows" too, or leave it out'}),
        (
            {"stride": 3, "long_text": "head_tail"},
            {"stride": 'only windows share tokens; write long_text = "windows" too, or leave it out'},
        ),
        (
            {"stride": 64, "long_text": "windows", "max_length": 64},
            {"stride": "windows of 64 tokens (max_length) can't share 64"},
        ),
        (
            {"text": ("a", "b"), "long_text": "windows"},
            {"long_text": '"windows" is for one text; of a pair the longer one is cut, so leave it out'},
        ),
        ({"long_text": "windows", "stride": 0, "max_length": 64}, {}),
        ({"long_text": "head_tail"}, {}),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, problems):
    """``check`` says which field, before anything is read."""
    assert dict(SequenceClassification(**settings).check()) == problems


@pytest.mark.parametrize("task", [windows(stride=6), TokenClassification(long_text="windows", stride=6)])
def test_a_stride_that_leaves_no_room_is_refused(part, task):
    """Beside two special tokens a window of 8 holds 6 tokens, so the next would begin where it did."""
    with pytest.raises(InputError, match="^task.stride: windows hold 6 tokens of a text and can't share 6$"):
        part(task)


# --- words ------------------------------------------------------------------------------------------------------------


def seen_at(sample):
    """The token at each target, the window that it is in, and how many tokens of text that has before and after it."""
    lengths = np.array(sample.sequence_lengths)
    starts = lengths.cumsum() - lengths
    window = np.searchsorted(starts, sample.target_positions, side="right") - 1
    before = sample.target_positions - starts[window] - 1
    return window, before, lengths[window] - 3 - before


@pytest.mark.parametrize(("max_length", "stride"), [(8, 0), (8, 1), (8, 3), (8, 5), (12, 7)])
def test_each_word_has_one_target_where_it_has_most_context(part, record, max_length, stride):
    """50 words of one token: each once, in order, and in no other window is its shorter side longer."""
    built = part(TokenClassification(long_text="windows", stride=stride), TAGS, max_length)
    tags = ["N" if number % 3 else "O" for number in range(50)]
    (sample,) = built.samples([record(words=["a"] * 50, tags=tags)])
    assert [TAGS.labels[k] for k in sample.targets.tolist()] == tags
    room, (window, before, after) = max_length - 2, seen_at(sample)
    place = window * (room - stride) + before
    assert place.tolist() == list(range(50))
    count = len(sample.sequence_lengths)
    ends = [min(k * (room - stride) + room, 50) for k in range(count)]
    for word in range(50):
        contexts = [
            min(word - k * (room - stride), ends[k] - 1 - word) if k * (room - stride) <= word < ends[k] else -1
            for k in range(count)
        ]
        assert min(before[word], after[word]) == max(contexts)
    assert built.notes() == []


@pytest.mark.parametrize(("max_length", "stride"), [(5, 0), (6, 1), (8, 3), (10, 7), (64, 8)])
def test_random_words_are_seen_once(part, record, random_words, max_length, stride):
    """Of 200 random lists of words of many tokens each: every word that has a token, in order, at its first one."""
    texts = random_words(200, seed=5)
    whole = part(TokenClassification(), TAGS, 1000)
    built = part(TokenClassification(long_text="windows", stride=stride), TAGS, max_length)
    records = [record(words=w, tags=["O", "N"] * (len(w) // 2) + ["O"] * (len(w) % 2)) for w in texts]
    for one, many in zip(whole.samples(records), built.samples(records), strict=True):
        assert many.targets.tolist() == one.targets.tolist()
        assert many.input_ids[many.target_positions].tolist() == one.input_ids[one.target_positions].tolist()
        assert max(many.sequence_lengths) <= max_length
        window, before, _ = seen_at(many)
        place = window * (max_length - 2 - stride) + before
        assert place.tolist() == (one.target_positions - 1).tolist()
    assert built.words_cut == 0


def test_positions_restart_in_each_window(part, record):
    """A record is one sample of several sequences, each of which a model reads alone."""
    built = part(TokenClassification(long_text="windows", stride=0), TAGS, 5)
    batch = Batch.of(list(built.samples([record(words=["a"] * 7, tags=["O"] * 7)])), [4])
    assert batch.lengths == (5, 5, 3)
    assert batch.positions.tolist() == [*range(5), *range(5), *range(3)]
    assert batch.target_samples.tolist() == [4] * 7


def test_words_of_windows_are_answered_in_order(part, record):
    """Each word gets its own tag, whichever window it was seen in."""
    built = part(TokenClassification(long_text="windows", stride=2), TAGS, 6)
    tags = ["N", "O", "O", "N", "O", "N", "N", "O", "O"]
    given = record(words=["a", "unbelievably", "b", "", "c", "d", "unably", "a", "b"], tags=tags)
    (sample,) = built.samples([given])
    rows = torch.nn.functional.one_hot(torch.tensor(sample.targets), 2).float()
    (answer,) = built.answers([given], [rows], scores=False)
    assert answer["prediction"] == [*tags[:3], "O", *tags[4:]]


def test_lists_of_many_words_are_encoded_in_parts(part, record):
    """Of 2,500 words, some without tokens, every one keeps its tag."""
    built = part(TokenClassification(long_text="windows"), TAGS, 64)
    tags = ["N" if number % 7 < 3 else "O" for number in range(2500)]
    words = ["" if number % 11 == 5 else "unably" if number % 2 else "a" for number in range(2500)]
    (sample,) = built.samples([record(words=words, tags=tags)])
    expected = [TAGS.labels.index(tag) for word, tag in zip(words, tags, strict=True) if word]
    assert sample.targets.tolist() == expected
    assert built.words_empty == words.count("")
