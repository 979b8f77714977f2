"""Losses with settings of their own, in a run: the cases' figures hold however the step is cut."""

import math

import pytest

LN2 = pytest.approx(math.log(2), rel=1e-6)
CHUNKS = ["loss.type=cross_entropy", "loss.chunk_size=2"]
FOCAL = ["loss.type=focal", "loss.gamma=0.0"]
MOVED = pytest.approx([-0.1, 0.1], abs=1e-6)


def words(*tags):
    return {"words": ["abcdef"[i % 6] for i in range(len(tags))], "tags": [str(tag) for tag in tags]}


@pytest.mark.parametrize("loss", [CHUNKS, FOCAL])
@pytest.mark.parametrize("micro_batch_size", [1, 2])
def test_every_token_counts_alike(train, loss, micro_batch_size):
    """2 tokens of label 0 and 6 of label 1: bias (−0.1, +0.1) and loss ln 2, in one piece or two (case 1)."""
    sets = [*loss, f"training.micro_batch_size={micro_batch_size}"]
    outcome = train(
        [words(0, 0), words(1, 1, 1, 1, 1, 1)], task="token_classification", sets=sets, extra="[callbacks.zero_head]\n"
    )
    assert outcome.parameter("classifier.bias").tolist() == MOVED
    assert outcome.rows[0]["train/loss"] == LN2


@pytest.mark.parametrize("loss", [CHUNKS, FOCAL])
@pytest.mark.parametrize("micro_batch_size", [2, 4])
def test_class_weights_are_of_the_whole_step(train, loss, micro_batch_size):
    """Weights [1, 3] and labels 0, 0, 1, 1: bias (−0.1, +0.1) and loss ln 2, in one piece or two (case 2)."""
    sets = [
        *loss,
        "loss.class_weights=[1.0, 3.0]",
        "training.batch_size=4",
        f"training.micro_batch_size={micro_batch_size}",
    ]
    records = [{"text": text, "label": label} for text, label in zip("abcd", "0011", strict=True)]
    outcome = train(records, sets=sets, extra="[callbacks.zero_head]\n")
    assert outcome.parameter("classifier.bias").tolist() == MOVED
    assert outcome.rows[0]["train/loss"] == LN2


def test_a_piece_without_a_masked_word_is_no_obstacle_to_chunks(train):
    """Texts of one word of which little is masked: steps without a target make no update, none is NaN (case 6)."""
    sets = [*CHUNKS, "training.duration=6 steps", "training.batch_size=4", "training.micro_batch_size=1"]
    outcome = train([{"text": text} for text in "abcd"], task="masked_lm", sets=sets)
    losses = [row["train/loss"] for row in outcome.rows]
    skipped = [row.get("skipped") == "no_targets" for row in outcome.rows]
    assert [loss is None for loss in losses] == skipped
    assert outcome.watch.run.updates == skipped.count(False) > 0
    assert 0.0 in outcome.watch.weights
    assert all(math.isfinite(loss) for loss in losses if loss is not None)


def test_a_factor_for_the_other_kind_of_targets_is_refused(train, tmp_path):
    """``alpha`` with classes ends the start in one line, and no folder is left."""
    from rtx_core import InputError

    with pytest.raises(InputError, match="loss.alpha: this task has classes"):
        train([{"text": "a", "label": "0"}] * 2, sets=[*FOCAL, "loss.alpha=0.25"], output=tmp_path / "refused")
    assert not (tmp_path / "refused" / "metrics.jsonl").exists()
