"""Embeddings end to end: what a step's loss is, what an evaluation finds, and the kept model in transformers."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional

from rtx_core import InputError, Record, inference
from rtx_core.registry import Registry

PAIRS = [
    *[("a b", "c"), ("b a", "d"), ("c", "c d"), ("d e", "e"), ("e f", "f f"), ("f", "a a")],
    *[("a b", "e e e"), ("b", "c"), ("d d", "a b")],  # an anchor twice, a positive twice, a positive that is an anchor
]
ROWS = [{"anchor": anchor, "positive": positive} for anchor, positive in PAIRS]
STEP = ("training.batch_size=9", "training.duration=1 step", "optimizer.lr=1e-3")


def cosines(run):
    """The texts of the first step with their roles, and the cosine of each two of their embeddings."""
    pieces = {id(batch): batch for batch in run.watch.batches}.values()  # each is seen twice
    features = functional.normalize(torch.cat([batch.cache.features for batch in pieces]).double(), dim=1)
    return torch.cat([batch.targets for batch in pieces]).tolist(), features @ features.T


def by_hand(targets, scores, *, without_duplicates):
    """The mean over the anchors of −log softmax at temperature 0.05, exponential by exponential."""
    total = 0.0
    for row, (role, anchor, _) in enumerate(targets):
        if role != 0:
            continue
        positive, denominator = targets[row + 1][1], 0.0
        for other, (other_role, text, _) in enumerate(targets):
            asked = targets[other - 1][1] if other_role == 1 else None
            equal = text in (anchor, positive) or asked == anchor
            if other_role == 0 or (without_duplicates and equal and other != row + 1):
                continue
            denominator += math.exp(scores[row][other] / 0.05)
        total -= scores[row][row + 1] / 0.05 - math.log(denominator)
    return total / sum(role == 0 for role, _, _ in targets)


@pytest.mark.parametrize("micro", [9, 4, 1])
@pytest.mark.parametrize("without_duplicates", [False, True])
def test_the_loss_of_a_step_is_that_by_hand(train, without_duplicates, micro):
    """For every cut of 9 pairs of which some share texts; ``no_duplicates_in_batch`` leaves those out."""
    setting = f"training.no_duplicates_in_batch={str(without_duplicates).lower()}"
    run = train(ROWS, task="embedding", sets=(*STEP, setting, f"training.micro_batch_size={micro}"))
    targets, scores = cosines(run)
    assert len(targets) == 18
    expected = by_hand(targets, scores.tolist(), without_duplicates=without_duplicates)
    assert run.rows[0]["train/loss"] == pytest.approx(expected, rel=1e-5)
    other = by_hand(targets, scores.tolist(), without_duplicates=not without_duplicates)
    assert abs(other - expected) > 0.1


def test_hard_negatives_and_sizes_make_other_losses(train):
    """Both reach the loss of a run: a negative adds to every anchor's denominator, a size adds a loss."""
    plain = train(ROWS, task="embedding", sets=STEP).rows[0]["train/loss"]
    hard = [{**row, "wrong": ["f e d", "e d"]} for row in ROWS]
    with_negatives = train(hard, task="embedding", sets=(*STEP, "task.negative=wrong")).rows[0]["train/loss"]
    extra = '[loss]\ntype = "in_batch_contrastive"\nsizes = [8, 4]\n'
    cut = train(ROWS, task="embedding", sets=STEP, extra=extra).rows[0]["train/loss"]
    assert with_negatives > plain + 0.5
    assert cut > plain + 0.5


def test_a_size_beyond_the_model_is_refused_before_the_run_has_a_folder(train, tmp_path):
    """H is 8 here."""
    extra = '[loss]\ntype = "in_batch_contrastive"\nsizes = [16]\n'
    with pytest.raises(InputError, match="^loss.sizes: 16 is more than the 8 numbers of an embedding"):
        train(ROWS, task="embedding", sets=STEP, extra=extra, output=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_step_of_one_pair_needs_a_negative(train):
    """Alone a positive can't be told from anything: its loss is 0 whatever the model is. With a negative it is not."""
    single = (*STEP, "training.batch_size=1")
    with pytest.raises(InputError, match=r"^training.batch_size: a step of 1 has no other texts .*\(task.negative\)"):
        train(ROWS, task="embedding", sets=single)
    hard = [{**row, "wrong": "f e d"} for row in ROWS]
    assert train(hard, task="embedding", sets=(*single, "task.negative=wrong")).rows[0]["train/loss"] > 0.1


# --- evaluation -------------------------------------------------------------------------------------------------------


def learnable(count, seed):
    """An anchor of two letters and a positive of one of them, so that there is something to find."""
    draw = np.random.default_rng(seed)
    letters = [draw.choice(list("abcdef"), 3) for _ in range(count)]
    return [{"anchor": f"{one} {two} {two}", "positive": f"{two} {three} {two}"} for one, two, three in letters]


def test_pairs_are_evaluated_at_the_start_and_get_better(train):
    """The untrained model's figures stand in the row of step 0; each evaluation's loss is that of whole steps."""
    run = train(
        learnable(64, 0),
        task="embedding",
        evaluation=learnable(20, 1),
        sets=(
            *("training.batch_size=16", "training.duration=12 epochs", "optimizer.lr=0.02"),
            *("training.eval_every=12 epochs", "training.eval_at_start=true", "training.monitor=eval/ndcg@10"),
        ),
    )
    first, last = (row for row in run.rows if "eval/loss" in row)
    assert {"eval/loss", "eval/recall@10", "eval/mrr@10", "eval/ndcg@10"} <= first.keys()
    assert first["step"] == 0
    assert last["eval/loss"] < first["eval/loss"] - 0.3
    assert last["eval/ndcg@10"] > first["eval/ndcg@10"]
    assert run.record["best"]["value"] == last["eval/ndcg@10"]


@pytest.mark.parametrize("size", [1, 3, 50])
def test_an_evaluation_does_not_depend_on_how_it_is_cut(train, size):
    """The loss is that of groups of ``batch_size`` in the order of the file, here 8, 8 and 4."""
    held_out = learnable(20, 2)
    run = train(
        ROWS,
        task="embedding",
        evaluation=held_out,
        sets=("training.batch_size=8", "training.duration=1 step", f"training.eval_batch_size={size}"),
    )
    trained = inference.load(run.folder, Registry.discover())
    records = [Record(row, "eval", line) for line, row in enumerate(held_out, start=1)]
    found = torch.stack(trained.logits(records)).double()  # [20, 2, E]
    total = 0.0
    for anchors, positives in ((group[:, 0], group[:, 1]) for group in found.split(8)):
        total += functional.cross_entropy(
            anchors @ positives.T / 0.05, torch.arange(len(anchors)), reduction="sum"
        ).item()
    assert run.rows[-1]["eval/loss"] == pytest.approx(total / 20, rel=1e-5)


# --- queries, a corpus and judgments ----------------------------------------------------------------------------------

RETRIEVAL = """\
[data.eval]
type = "retrieval"
queries = "{folder}/queries.jsonl"
corpus = "{folder}/corpus.jsonl"
relevant = "{folder}/qrels.tsv"
"""


def write_retrieval(folder, count=12, seed=3):
    """A query for each of some documents, one of them without a judgment."""
    folder.mkdir()
    rows = learnable(count, seed)
    texts = {"queries": [row["anchor"] for row in rows], "corpus": [row["positive"] for row in rows]}
    for name, own in texts.items():
        lines = [json.dumps({"_id": f"{name[0]}{number}", "text": text}) for number, text in enumerate(own)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    judgments = [f"q{number}\tc{number}\t1" for number in range(count - 1)]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judgments]) + "\n")
    return texts


def test_an_evaluation_of_queries_and_documents(train, tmp_path):
    """Figures equal those of the kept model's embeddings, sorted; without pairs there is no loss."""
    texts = write_retrieval(tmp_path / "search")
    run = train(
        ROWS,
        task="embedding",
        extra=RETRIEVAL.format(folder=tmp_path / "search"),
        sets=(*STEP, "training.monitor=eval/ndcg@10", 'task.prompts={ anchor = "a " }'),
    )
    trained = inference.load(run.folder, Registry.discover())
    columns = {"queries": "anchor", "corpus": "positive"}
    queries, documents = (
        torch.cat(trained.logits([Record({columns[name]: text}, name, 1) for text in texts[name]])) for name in columns
    )
    ranks = [
        1 + int((scores > scores[number]).sum() + (scores[:number] == scores[number]).sum())
        for number, scores in enumerate((queries.double() @ documents.double().T).float()[:-1])
    ]
    row = run.rows[-1]
    assert "eval/loss" not in row  # queries and documents are no pairs
    assert row["eval/recall@10"] == pytest.approx(np.mean([rank <= 10 for rank in ranks]))
    assert row["eval/mrr@10"] == pytest.approx(np.mean([1 / rank if rank <= 10 else 0 for rank in ranks]))
    gains = [1 / math.log2(rank + 1) if rank <= 10 else 0 for rank in ranks]
    assert row["eval/ndcg@10"] == pytest.approx(np.mean(gains))
    assert "eval: 1 queries have no relevant document and are left out" in run.said


def test_a_resumed_run_takes_moved_files_but_no_changed_ones(train, tmp_path):
    """Where the three files are may change; what they hold may not."""
    sets = ("training.batch_size=3", "training.duration=4 steps", "training.monitor=eval/ndcg@10")
    write_retrieval(tmp_path / "search")
    tables = {name: RETRIEVAL.format(folder=tmp_path / name) for name in ("search", "moved")}
    first = train(ROWS, task="embedding", extra=tables["search"], sets=sets, steps=2)
    shutil.move(tmp_path / "search", tmp_path / "moved")
    again = {"task": "embedding", "extra": tables["moved"], "sets": sets, "output": first.folder, "resume": True}
    changed = tmp_path / "moved" / "qrels.tsv"
    before = changed.read_text()
    changed.write_text(before.replace("q1\tc1", "q1\tc2"))
    with pytest.raises(InputError, match="can't resume: the contents of data.eval changed"):
        train(ROWS, **again)
    changed.write_text(before)
    assert train(ROWS, **again).watch.run.step == 4


# --- the kept model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
def test_the_kept_model_gives_its_embeddings_in_transformers(train, mode):
    """``AutoModel`` on the run's ``model`` folder, pooled by the formula, and ``predict``, agree."""
    transformers = pytest.importorskip("transformers", reason="the test extra is not installed")
    run = train(ROWS, task="embedding", sets=STEP, extra=f'[head]\ntype = "pooling"\nmode = "{mode}"\n')
    texts = ["a", "b c d e f", "e e"]
    answers = inference.load(run.folder, Registry.discover()).answers([Record({"anchor": t}, "new", 1) for t in texts])
    found = torch.tensor([answer["embedding"] for answer in answers])
    tokenizer = transformers.AutoTokenizer.from_pretrained(run.folder / "model")
    model = transformers.AutoModel.from_pretrained(run.folder / "model", add_pooling_layer=False).eval()
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    pooled = {
        "mean": (states * mask).sum(1) / mask.sum(1),
        "cls": states[:, 0],
        "max": states.masked_fill(mask == 0, -torch.inf).max(1).values,
    }[mode]
    torch.testing.assert_close(found, functional.normalize(pooled, dim=1), rtol=1e-5, atol=1e-6)
    assert json.loads((run.folder / "model" / "config.json").read_text())["architectures"] == ["BertModel"]
    assert run.record["outputs"]["size"] == 0
