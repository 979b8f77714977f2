"""Optimizers in whole runs: rates by name, what run.json says, and decay."""

import pytest
import torch

TEXTS = [{"text": "abcdef"[i], "label": "01"[i % 2]} for i in range(6)]


def test_rates_that_differ_are_in_the_rows(train):
    """Rate 0.1, rule 0.05, half the rate for each layer down, linear over 2 steps: each rate by its name."""
    rule = '{ match = ["classifier.bias"], lr = 0.05 }'
    sets = [
        *("training.duration=2 steps", "scheduler.type=linear", "optimizer.layer_lr_decay=0.5"),
        f"optimizer.groups=[{rule}]",
    ]
    rows = train(TEXTS, sets=sets).rows
    found = [{key: row[key] for key in row if key == "lr" or key.startswith("lr/")} for row in rows]
    peaks = {"lr": 0.1, "lr/groups.0": 0.05, "lr/bert.encoder.layer.0": 0.05, "lr/bert.embeddings": 0.025}
    assert found == [pytest.approx({name: peak * factor for name, peak in peaks.items()}) for factor in (1.0, 0.5)]


def test_a_run_of_one_rate_names_no_other(train):
    """Then there is ``lr`` alone, and run.json says which implementation updated the weights."""
    outcome = train(TEXTS)
    assert [key for key in outcome.rows[0] if key.startswith("lr")] == ["lr"]
    assert outcome.record["implementations"] == {"optimizer": "torch.optim.AdamW, fused"}


def test_decay_shrinks_matrices_and_leaves_norms_and_biases(train):
    """Case 13 in a run whose gradients are 0, lr 0.1, decay 0.1: matrices and tables × 0.99, the rest as it was."""
    # Logits of 200 and −200 for a class that is right: the softmax is 1 and 0 in float32.
    settings = {"extra": "[callbacks.zero_head]\nbias = [200.0, -200.0]\n"}
    records = [{"text": "a", "label": "0"}, {"text": "b", "label": "0"}]
    decayed = train(records, sets=["optimizer.weight_decay=0.1"], **settings)
    plain = train(records, sets=["optimizer.weight_decay=0.0"], **settings)
    assert all(not gradient.any() for gradient in decayed.watch.gradients.values())
    for name, parameter in decayed.watch.run.model.parameters_by_name().items():
        before = plain.parameter(name)
        factor = 1.0 if name.endswith("bias") or "LayerNorm" in name else 0.99
        torch.testing.assert_close(parameter.detach(), before * factor, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd", "adafactor", "muon"])
def test_a_run_with_each_optimizer_goes_on_to_the_same_bits(train, kind, tmp_path):
    """Stopped after 2 of 5 steps and resumed, the model is that of the run in one go."""
    sets = [f"optimizer.type={kind}", "optimizer.lr=0.01", "training.duration=5 steps"]
    sets += ["optimizer.momentum=0.9"] if kind == "sgd" else []
    folder = tmp_path / "resumed"
    train(TEXTS, sets=sets, output=folder, steps=2)
    resumed, straight = train(TEXTS, sets=sets, output=folder, resume=True), train(TEXTS, sets=sets)
    for name, parameter in straight.watch.run.model.parameters_by_name().items():
        assert torch.equal(resumed.parameter(name), parameter)
    assert straight.record["implementations"]["optimizer"].startswith("torch.optim.")
