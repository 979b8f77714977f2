"""Runs whose epochs are cut by tokens, sorted by length, packed, or drawn by label."""

from collections import Counter

import pytest
import tomli

from rtx_core import InputError

TEXTS = [{"text": " ".join("abcdef"[: i % 6 + 1]), "label": str(i % 2)} for i in range(40)]
LENGTHS = [i % 6 + 3 for i in range(40)]  # with [CLS] and [SEP]
BY_TOKENS = ("training.batch_size=unset", "training.batch_tokens=50")
PACKED = ("task.max_length=16",)


def ids_of(outcome):
    """The samples of each step, for runs of one piece a step; one with several sequences comes once."""
    return [list(dict.fromkeys(ids)) for ids in outcome.watch.ids]


def drawn(outcome):
    return Counter(i for ids in ids_of(outcome) for i in ids)


# --- by tokens --------------------------------------------------------------------------------------------------------


def test_a_run_by_tokens_has_the_steps_of_its_tokens(train):
    """An epoch of T tokens has T / batch_tokens steps, rounded up; lengths agree, and each sample comes once."""
    steps = -(-sum(LENGTHS) // 50)
    outcome = train(TEXTS, sets=[*BY_TOKENS, "training.duration=2 epochs"])
    assert [row["epoch"] for row in outcome.rows] == pytest.approx(
        [s / steps for s in range(1, 2 * steps + 1)], abs=1e-6
    )
    assert drawn(outcome) == dict.fromkeys(range(40), 2)
    assert outcome.rows[-1]["tokens"] == 2 * sum(LENGTHS)
    horizon = outcome.watch.run.horizon
    assert (horizon.steps("40 samples"), horizon.steps(f"{sum(LENGTHS)} tokens")) == (steps, steps)
    assert f"2 epochs = {2 * steps} steps of about 50 tokens · {steps} an epoch" in outcome.said


def test_a_step_by_tokens_does_not_depend_on_its_cut(train):
    """As one piece or in pieces of two: the same loss."""
    settings = [*BY_TOKENS, "training.duration=4 steps"]
    whole = train(TEXTS, sets=settings)
    pieces = train(TEXTS, sets=[*settings, "training.micro_batch_size=2"])
    assert len(pieces.watch.ids) > len(whole.watch.ids) == 4
    assert [row["train/loss"] for row in pieces.rows] == pytest.approx(
        [row["train/loss"] for row in whole.rows], rel=1e-6
    )
    assert "in about 4 micro-batches" in pieces.said  # of about 8 samples


@pytest.mark.parametrize(
    "settings",
    [
        [*BY_TOKENS, "training.workers=1"],
        ["training.batch_size=5", "training.group_by_length=3"],
        ["training.batch_size=4", "training.sampler=balanced"],
    ],
)
def test_such_runs_go_on_to_the_same_bits(train, tmp_path, settings):
    """Stopped within an epoch and resumed: the same losses, of the same samples."""
    settings = [*settings, "training.duration=3 epochs"]
    whole = train(TEXTS, sets=settings)
    begun = train(TEXTS, sets=settings, output=tmp_path / "begun", steps=5)
    seen = begun.watch.ids
    resumed = train(TEXTS, sets=settings, output=begun.folder, resume=True)
    assert seen + resumed.watch.ids == whole.watch.ids
    assert [row["train/loss"] for row in resumed.rows] == [row["train/loss"] for row in whole.rows]


def test_fewer_tokens_a_step_than_a_sample_has_are_refused(train):
    """Some steps would be empty; the error says what would do."""
    message = r"training\.batch_tokens: 4 tokens a step are fewer than a sample has on average \(5\.4\d*\).*at least 6$"
    with pytest.raises(InputError, match=message):
        train(TEXTS, sets=["training.batch_size=unset", "training.batch_tokens=4"])


# --- by length --------------------------------------------------------------------------------------------------------


def test_grouped_by_length_a_step_has_samples_of_about_one_length(train):
    """With a window of the whole epoch each step's lengths are neighbours, and each sample comes once."""
    outcome = train(TEXTS, sets=["training.batch_size=8", "training.group_by_length=5", "training.duration=1 epoch"])
    assert drawn(outcome) == dict.fromkeys(range(40), 1)
    assert max(max(LENGTHS[i] for i in ids) - min(LENGTHS[i] for i in ids) for ids in ids_of(outcome)) <= 2


# --- packed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", ["best_fit", "concat"])
def test_a_packed_run_learns_from_every_token_once(train, packing):
    """An epoch has all tokens in fewer samples of at most 16; header and resolved.toml say so."""
    settings = [*PACKED, f"training.packing={packing}", "training.duration=1 epoch"]
    outcome = train(TEXTS, task="masked_lm", sets=settings)
    assert outcome.rows[-1]["tokens"] == sum(LENGTHS)
    samples = outcome.watch.run.horizon.samples_per_epoch
    assert samples >= -(-sum(LENGTHS) // 16)
    assert drawn(outcome) == dict.fromkeys(range(samples), 1)
    assert f"40 training · {sum(LENGTHS)} tokens an epoch" in outcome.said
    assert f"packed into {samples} samples of 16, {sum(LENGTHS) / (16 * samples):.1%} full" in outcome.said
    assert tomli.loads((outcome.folder / "resolved.toml").read_text())["training"]["packing"] == packing


def test_nothing_of_one_document_reaches_another(train):
    """In a packed batch every document is a sequence, with positions from 0."""
    outcome = train(TEXTS, task="masked_lm", sets=[*PACKED, "training.packing=best_fit", "training.duration=1 epoch"])
    lengths = sorted(length for batch in outcome.watch.batches for length in batch.lengths)
    assert lengths == sorted(LENGTHS)
    for batch in outcome.watch.batches:
        assert batch.positions.tolist() == [place for length in batch.lengths for place in range(length)]


def test_packing_changes_no_loss(train):
    """All tokens masked, all texts in one step: packed or not, every token is predicted from its own document alone."""
    settings = ["task.mask_probability=1.0", "task.replace={ mask = 1.0, random = 0.0 }", "training.duration=3 steps"]
    settings += [*PACKED, "training.batch_size=unset", "training.batch_tokens=100000"]
    losses = {}
    for packing in ("none", "best_fit"):
        outcome = train(TEXTS, task="masked_lm", sets=[*settings, f"training.packing={packing}"])
        losses[packing] = [row["train/loss"] for row in outcome.rows]
    assert losses["best_fit"] == pytest.approx(losses["none"], rel=1e-6)


def test_a_packed_run_goes_on_to_the_same_bits(train, tmp_path):
    """Packed by tokens a step, stopped and resumed."""
    settings = [*PACKED, *BY_TOKENS, "training.packing=best_fit", "training.duration=2 epochs"]
    whole = train(TEXTS, task="masked_lm", sets=settings)
    begun = train(TEXTS, task="masked_lm", sets=settings, output=tmp_path / "begun", steps=3)
    resumed = train(TEXTS, task="masked_lm", sets=settings, output=begun.folder, resume=True)
    assert [row["train/loss"] for row in resumed.rows] == [row["train/loss"] for row in whole.rows]


# --- by label ---------------------------------------------------------------------------------------------------------

RARE = [{"text": "a b", "label": "1" if i % 10 == 0 else "0"} for i in range(41)]  # 5 of 41


def test_a_balanced_epoch_has_every_label_equally_often(train):
    """41 samples of 2 labels are 42 draws, 21 of each; the 5 rare ones come 4 or 5 times."""
    outcome = train(RARE, sets=["training.batch_size=6", "training.sampler=balanced", "training.duration=1 epoch"])
    assert len(outcome.rows) == 7
    labels = Counter(t for batch in outcome.watch.batches for t in batch.targets.tolist())
    assert labels == {0: 21, 1: 21}
    counts = Counter(i for ids in outcome.watch.ids for i in ids)
    assert {counts[i] for i in range(0, 41, 10)} == {4, 5}


def test_a_label_without_samples_cannot_be_balanced(train):
    """The label is named."""
    sets = ["training.sampler=balanced", 'task.labels=["0", "1", "rare"]']
    with pytest.raises(
        InputError, match=r'training\.sampler: "balanced" draws .* the label "rare" has no training sample'
    ):
        train(RARE, sets=sets)


def test_samples_with_several_labels_cannot_be_balanced(train):
    """Said before the first batch: sentences have a label for each word."""
    rows = [{"words": ["a", "b"], "tags": ["0", "1"]}]
    with pytest.raises(InputError, match=r'training\.sampler: "balanced" .* but sample 0 has several'):
        train(rows, task="token_classification", sets=["training.sampler=balanced"])
