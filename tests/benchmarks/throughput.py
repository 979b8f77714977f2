"""Training throughput and peak memory against transformers' Trainer, on the CPU in float32.

Each measurement is a process of its own; the sides take turns. Tokens are real ones: padding doesn't count. Before
that, without dropout, the losses of the first steps must agree.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workloads import WORKLOADS, write_samples, write_weights

WARM = 3
RATE, CLIP, DECAY = 1e-4, 1.0, 0.01
SIDES = {"masked_lm": ("rtx", "trainer"), "classification": ("rtx", "trainer", "trainer_grouped")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps that are counted, after 3 to warm up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", choices=("rtx", "trainer", "trainer_grouped"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(measure(arguments)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        check_losses(arguments, Path(scratch))
        compare(arguments, Path(scratch))


# --- one measurement --------------------------------------------------------------------------------------------------


def measure(arguments: argparse.Namespace) -> dict:
    """Tokens per second after the warm-up, the peak of resident memory, and the losses of all steps."""
    import torch

    torch.set_num_threads(arguments.threads)
    side = rtx if arguments.side == "rtx" else trainer
    rows, losses = side(arguments)
    (start, before), (end, after) = rows[WARM - 1], rows[-1]
    return {
        "tokens_per_second": (after - before) / (end - start),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "losses": losses,
    }


def rtx(arguments: argparse.Namespace) -> tuple[list, list]:
    """Our run, with its default callbacks."""
    from rtx_core import Pipeline

    folder, workload = arguments.folder, WORKLOADS[arguments.workload]
    (folder / "pipeline.toml").write_text(f"""
[task]
type = "{workload.task}"
outputs_size = {30522 if workload.task == "masked_lm" else 2}
[data.train]
type = "jsonl"
files = ["train.jsonl"]
[architecture]
from_pretrained = "."
[optimizer]
lr = {RATE}
weight_decay = {DECAY}
[scheduler]
type = "linear"
[training]
duration = "1 epoch"
batch_size = {workload.batch_size}
threads = {arguments.threads}
[callbacks.clip_grad_norm]
max_norm = {CLIP}
[callbacks.clock]
""")
    pipeline = Pipeline.load(folder / "pipeline.toml", plugins=[Path(__file__).with_name("premade.py")])
    run = pipeline.run(output=folder / "run", overwrite=(folder / "run").exists(), quiet=True)
    clock = pipeline.settings.callbacks["clock"].latest
    metrics = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return clock.rows, [row["train/loss"] for row in metrics]


def trainer(arguments: argparse.Namespace) -> tuple[list, list]:
    """Transformers' Trainer at its fastest: fused AdamW, no logging in between, padding to the longest of a batch."""
    import torch
    import transformers

    folder, workload = arguments.folder, WORKLOADS[arguments.workload]
    transformers.logging.set_verbosity_error()
    samples = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    grouped = arguments.side == "trainer_grouped"
    ordered = samples if grouped else [samples[i] for i in our_order(len(samples))]
    tokens: list[int] = []
    losses: list[float] = []
    rows: list[tuple[float, int]] = []

    def collate(batch: list[dict]) -> dict:
        longest = max(len(sample["input_ids"]) for sample in batch)
        tokens.append(sum(len(sample["input_ids"]) for sample in batch))

        def padded(values: list[int], filler: int) -> list[int]:
            return values + [filler] * (longest - len(values))

        labels = [s["labels"] if isinstance(s["labels"], int) else padded(s["labels"], -100) for s in batch]
        return {
            "input_ids": torch.tensor([padded(sample["input_ids"], 0) for sample in batch]),
            "attention_mask": torch.tensor([padded([1] * len(sample["input_ids"]), 0) for sample in batch]),
            "labels": torch.tensor(labels),
        }

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            rows.append((time.perf_counter(), sum(tokens[: state.global_step])))

    class Trainer(transformers.Trainer):
        def compute_loss(self, *positional, **named):
            loss = super().compute_loss(*positional, **named)
            losses.append(float(loss.detach()))
            return loss

    kind = {
        "masked_lm": transformers.AutoModelForMaskedLM,
        "sequence_classification": transformers.AutoModelForSequenceClassification,
    }[workload.task]
    settings = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=workload.batch_size,
        num_train_epochs=1,
        learning_rate=RATE,
        weight_decay=DECAY,
        max_grad_norm=CLIP,
        lr_scheduler_type="linear",
        optim="adamw_torch_fused",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        train_sampling_strategy="group_by_length" if grouped else "sequential",
    )
    model = kind.from_pretrained(folder)
    Trainer(model=model, args=settings, train_dataset=ordered, data_collator=collate, callbacks=[Clock()]).train()
    return rows, losses


def our_order(size: int) -> list[int]:
    """The order in which rtx takes the samples of its first epoch, for a Trainer that takes them as they come."""
    from rtx_core.order import Order

    return Order(0, size).samples(0, 0, size).tolist()


# --- comparing --------------------------------------------------------------------------------------------------------


def start(arguments: argparse.Namespace, side: str, folder: Path) -> dict:
    """Measure in a fresh process."""
    command = [sys.executable, __file__, arguments.workload, "--side", side, "--folder", str(folder)]
    done = subprocess.run([*command, "--threads", str(arguments.threads)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{side} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def prepare(arguments: argparse.Namespace, folder: Path, *, steps: int, dropout: float) -> Path:
    workload = WORKLOADS[arguments.workload]
    folder.mkdir()
    write_weights(workload, folder, dropout=dropout)
    write_samples(workload.samples(workload.batch_size * steps), folder / "train.jsonl")
    return folder


def check_losses(arguments: argparse.Namespace, scratch: Path) -> None:
    """Without dropout both sides compute the same steps; else their speeds mean nothing."""
    folder = prepare(arguments, scratch / "check", steps=WARM + 2, dropout=0.0)
    ours, theirs = (start(arguments, side, folder)["losses"] for side in ("rtx", "trainer"))
    apart = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
    print(f"losses of {len(ours)} steps without dropout agree within {apart:.1e}")
    if apart > 1e-4:
        sys.exit(f"they should agree within 1e-4: {ours} and {theirs}")


def compare(arguments: argparse.Namespace, scratch: Path) -> None:
    folder = prepare(arguments, scratch / "timed", steps=WARM + arguments.steps, dropout=0.1)
    results: dict[str, list[dict]] = {side: [] for side in SIDES[arguments.workload]}
    for _ in range(arguments.repeats):
        for side, found in results.items():
            found.append(start(arguments, side, folder))
    for side, found in results.items():
        print(f"{side:16} {spread([r['tokens_per_second'] for r in found], '{:,.0f}')} tokens/s")
        print(f"{'':16} {spread([r['peak_mb'] for r in found], '{:,.0f}')} MB at the peak")
    for side in SIDES[arguments.workload][1:]:
        for figure, name in (("tokens_per_second", "tokens/s"), ("peak_mb", "peak memory")):
            pairs = zip(results["rtx"], results[side], strict=True)
            print(f"rtx / {side:16} {spread([a[figure] / b[figure] for a, b in pairs], '{:.2f}')} {name}")


def spread(values: list[float], form: str) -> str:
    """Median, and minimum to maximum."""
    low, middle, high = (form.format(v) for v in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


if __name__ == "__main__":
    main()
