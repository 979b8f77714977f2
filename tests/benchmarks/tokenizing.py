"""What encoding and writing cost beside the tokenizer: lines to a cache entry, against ``encode_batch`` alone."""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

NOVEL = Path(__file__).parents[2] / "pipelines" / "data" / "moby_dick" / "train.txt"
VOCABULARY, LONGEST, AT_ONCE = 8000, 128, 1000


def main():
    """Time both in turn, and print seconds and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)  # read once, when the library first encodes

    lines = novel(arguments.lines)
    tokenizer, task = parts(lines)
    pairs = [(alone(tokenizer, lines), whole(tokenizer, task, lines)) for _ in range(arguments.repeats)]
    ratios = [ours / theirs for theirs, ours in pairs]
    print(
        json.dumps(
            {
                "lines": len(lines),
                "encode_batch": round(statistics.median(theirs for theirs, _ in pairs), 3),
                "encoding and writing": round(statistics.median(ours for _, ours in pairs), 3),
                "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
            },
            indent=2,
        )
    )


def novel(count):
    """The lines of a novel, as often as it takes."""
    lines = [line.strip() for line in NOVEL.read_text(encoding="utf-8").splitlines() if line.strip()]
    return list(itertools.islice(itertools.cycle(lines), count))


def parts(lines):
    """A tokenizer that cuts, and the task with one that does the same."""
    from rtx_core import Outputs, SpecialTokens
    from rtx_plugins.tasks.masked_lm import MaskedLm
    from rtx_plugins.tokenizers.wordpiece import WordPiece

    special_tokens = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    tokenizer = WordPiece(vocab_size=VOCABULARY).build(lines[:20_000], special_tokens)
    outputs = Outputs(size=tokenizer.get_vocab_size())
    task = MaskedLm().build(tokenizer, outputs, max_length=LONGEST, special_tokens=special_tokens)
    tokenizer.enable_truncation(LONGEST)
    return tokenizer, task


def alone(tokenizer, lines):
    """Seconds of the library: what is encoded is thrown away, some lines at a time, as anybody would."""
    start = time.perf_counter()
    for first in range(0, len(lines), AT_ONCE):
        tokenizer.encode_batch(lines[first : first + AT_ONCE])
    return time.perf_counter() - start


def whole(tokenizer, task, lines):
    """Seconds from records to an entry that is synced to the disk and open."""
    from rtx_core import Record
    from rtx_core.cache import Cache
    from rtx_core.console import Console
    from rtx_core.encoding import SetEncoding
    from rtx_core.lint import Surveyor
    from rtx_plugins.tasks.masked_lm import MaskedLm

    def surveyor():
        return Surveyor(MaskedLm(), tokenizer, unknown="[UNK]", max_length=LONGEST)

    records = [Record({"text": line}, "novel", number) for number, line in enumerate(lines, start=1)]
    with tempfile.TemporaryDirectory() as folder:
        encoding = SetEncoding(task, [records], "training", Console(quiet=True), surveyor)
        start = time.perf_counter()
        store = Cache(Path(folder), print).samples({}, encoding)
        seconds = time.perf_counter() - start
        assert len(store) >= len(lines)
    return seconds


if __name__ == "__main__":
    main()
