"""What a step learns from is a function of the seed alone: not of workers, of the cut, or of where a run goes on."""

from itertools import pairwise

import pytest

from rtx_core import config
from rtx_core.batches import Cutting, EqualBatches
from rtx_core.console import Console
from rtx_core.dataset import Steps
from rtx_core.order import Order
from rtx_core.prepare import prepare
from rtx_core.registry import Registry

# torch advises against more workers than cores; here they only have to be many.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

SAMPLES, BATCH, SEED = 37, 16, 5
TOTAL = 6  # two epochs of 16, 16 and 5


@pytest.fixture
def steps(tmp_path):
    """The masked steps of texts of 1 to 12 tokens, for any size of micro-batch."""
    pipeline = tmp_path / "pipeline.toml"
    pipeline.write_text(
        '[task]\ntype = "masked_lm"\nmask_probability = 0.4\n'
        '[data.train]\ntype = "text"\nfiles = ["train.txt"]\n'
        '[tokenizer]\ntype = "wordpiece"\nvocab_size = 60\n'
        '[architecture]\ntype = "bert"\npreset = "tiny"\n'
        "[optimizer]\nlr = 1e-3\n"
        f'[training]\nduration = "{TOTAL} steps"\nbatch_size = {BATCH}\n'
    )
    words = ["whale", "ship", "sea", "captain", "harpoon"]
    lines = [" ".join(words[(i * j) % 5] for j in range(1, i % 12 + 2)) for i in range(SAMPLES)]
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    with Console(quiet=True) as console:
        prepared = prepare(config.load(pipeline, registry=Registry.discover()), console=console)

    def cut(micro):
        batches = EqualBatches(order=Order(SEED, SAMPLES), size=BATCH)
        return Steps(prepared.train, prepared.task, batches, Cutting(micro_batch_size=micro), seed=SEED)

    return cut


def samples(pieces):
    """What a step holds, sample by sample: its id, its tokens, where its targets are, and which."""
    found = []
    for piece in pieces:
        bounds = piece.cu_seqlens.tolist()
        for number, (start, stop) in enumerate(pairwise(bounds)):
            inside = (piece.target_positions >= start) & (piece.target_positions < stop)
            found.append(
                (
                    int(piece.sample_ids[number]),
                    piece.input_ids[start:stop].tolist(),
                    (piece.target_positions[inside] - start).tolist(),
                    piece.targets[inside].tolist(),
                )
            )
    return found


@pytest.mark.parametrize("micro", [1, 4, 16])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_samples_and_masks_are_the_same_wherever_a_run_goes_on(steps, workers, micro):
    """Ids, their order, tokens and targets of every step equal those of one process, one piece, from the beginning."""
    expected = [samples(pieces) for pieces in steps(BATCH).iterate(0, TOTAL, 0)]
    for start in range(TOTAL + 1):
        got = [samples(pieces) for pieces in steps(micro).iterate(start, TOTAL, workers)]
        assert got == expected[start:]


def test_the_order_is_that_of_the_permutation(steps):
    """Step s of an epoch holds the samples at positions [16 s, 16 (s + 1)), shortest first; an epoch has each once."""
    seen = [[sample[0] for sample in samples(pieces)] for pieces in steps(4).iterate(0, TOTAL, 0)]
    for step, ids in enumerate(seen):
        epoch, within = divmod(step, 3)
        start = within * BATCH
        assert sorted(ids) == sorted(Order(SEED, SAMPLES).samples(epoch, start, min(start + BATCH, SAMPLES)).tolist())
    lengths = [[len(sample[1]) for sample in samples(pieces)] for pieces in steps(4).iterate(0, TOTAL, 0)]
    assert all(step == sorted(step) for step in lengths)
    for epoch in (0, 1):
        assert sorted(i for ids in seen[3 * epoch : 3 * epoch + 3] for i in ids) == list(range(SAMPLES))


def test_masks_differ_between_epochs(steps):
    """A sample is masked anew in each epoch, from the seed, the epoch and its id."""
    found = [samples(pieces) for pieces in steps(16).iterate(0, TOTAL, 0)]
    first, second = ({s[0]: s[1:] for step in found[i : i + 3] for s in step} for i in (0, 3))
    assert first.keys() == second.keys()
    assert sum(first[i] != second[i] for i in first) > SAMPLES / 2
