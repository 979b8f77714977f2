"""Queries, documents and judgments out of three files: every format, their numbers, and errors with file and line."""

import gzip
import json

import pytest

from rtx_core import DataError, TextRole
from rtx_plugins.data.retrieval import Retrieval

QUERIES = '{"_id": "q2", "text": "what is red"}\n{"_id": "q1", "text": "what is blue"}\n{"_id": "q3", "text": "why"}\n'
CORPUS = (
    '{"_id": "d1", "title": "Sky", "text": "It is blue."}\n'
    '{"_id": "7", "title": "", "text": "Blood is red."}\n'
    '{"_id": "d3", "text": "Grass."}\n'
)
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq2\t7\t1\nq2\td3\t0\n"
NAMED = (
    '{"query-id": "q1", "corpus-id": "d1", "score": 2}\n'
    '{"query-id": "q2", "corpus-id": 7, "score": "1"}\n'
    '{"query-id": "q2", "corpus-id": "d3", "score": 0}\n'
)


@pytest.fixture
def source(tmp_path):
    """A function: the component over three files with these texts, by their names' endings."""

    def make(queries=QUERIES, corpus=CORPUS, relevant=QRELS, endings=("jsonl", "jsonl", "tsv")):
        paths = {}
        for name, text, ending in zip(
            ("queries", "corpus", "relevant"), (queries, corpus, relevant), endings, strict=True
        ):
            paths[name] = tmp_path / f"{name}.{ending}"
            content = text.encode()
            paths[name].write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
        return Retrieval(**paths)

    return make


def read(data):
    """What the records hold, without the place."""
    return [dict(record.values) for record in data.records()]


EXPECTED = [
    {"role": TextRole.DOCUMENT, "text": "Sky It is blue.", "number": 0},
    {"role": TextRole.DOCUMENT, "text": "Blood is red.", "number": 1},
    {"role": TextRole.DOCUMENT, "text": "Grass.", "number": 2},
    {"role": TextRole.QUERY, "text": "what is red", "number": 0, "judgments": ((1, 1), (2, 0))},
    {"role": TextRole.QUERY, "text": "what is blue", "number": 1, "judgments": ((0, 2),)},
    {"role": TextRole.QUERY, "text": "why", "number": 2, "judgments": ()},
]


def test_the_files_of_beir(source):
    """Documents with their title, then queries with their judgments by number, each with its file and line."""
    data = source()
    assert read(data) == EXPECTED
    places = [(record.file, record.line) for record in data.records()]
    assert places == [(str(data.corpus), line) for line in (1, 2, 3)] + [
        (str(data.queries), line) for line in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("relevant", "ending"),
    [
        ("q1\td1\t2\nq2\t7\t1\nq2\td3\t0\n", "tsv"),
        ("q1 0 d1 2\nq2 0 7 1\nq2 0 d3 0\n", "txt"),
        ("q1\tQ0\td1\t2\r\nq2\tQ0\t7\t1\r\n\r\nq2\tQ0\td3\t-2\r\n", "qrels"),
        (NAMED, "jsonl"),
        ('corpus-id,"score",query-id\nd1,2,q1\n7,1,q2\nd3,0,"q2"\n', "csv"),
        (QRELS, "tsv.gz"),
    ],
    ids=["no header", "TREC", "TREC with tabs", "JSON lines", "CSV", "packed"],
)
def test_every_form_of_judgments(source, relevant, ending):
    """BEIR's columns, TREC's, JSON lines, a CSV by names; packed or not; a grade below 0 is not relevant."""
    assert read(source(relevant=relevant, endings=("jsonl", "jsonl", ending))) == EXPECTED


def test_texts_out_of_tables(source):
    """Queries and corpus as TSV or CSV with a header, ``id`` in place of ``_id``."""
    data = source(
        queries="id\ttext\nq2\twhat is red\nq1\twhat is blue\nq3\twhy\n",
        corpus='_id,title,text\nd1,Sky,It is blue.\n7,,Blood is red.\nd3,,"Grass."\n',
        endings=("tsv", "csv", "tsv"),
    )
    assert read(data) == EXPECTED


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"queries": QUERIES + '{"_id": "q1", "text": "x"}\n'},
            'queries.jsonl:4: the id "q1" stands on line 2 already',
        ),
        ({"corpus": CORPUS + '{"id": 7, "text": "x"}\n'}, 'corpus.jsonl:4: the id "7" stands on line 2 already'),
        ({"relevant": QRELS + "q9\td1\t1\n"}, 'relevant.tsv:5: no id "q9" in queries.jsonl'),
        ({"relevant": QRELS + "q1\td9\t1\n"}, 'relevant.tsv:5: no id "d9" in corpus.jsonl'),
        (
            {"relevant": QRELS + "q1\td1\t1\n"},
            'relevant.tsv:5: the document "d1" is judged for the query "q1" already',
        ),
        (
            {"relevant": QRELS + "q1\td3\t0.5\n"},
            "relevant.tsv:5: expected a grade, a whole number such as 0 or 1, got '0.5'",
        ),
        (
            {"relevant": QRELS + "q1 d3\n"},
            "relevant.tsv:5: expected query-id, corpus-id, score with tabs between them, below a header, or TREC's",
        ),
        ({"relevant": "query-id\tcorpus-id\tscore\n"}, "relevant.tsv: no judgment in this file has a grade above 0"),
        ({"relevant": "q1\td1\t0\n"}, "relevant.tsv: no judgment in this file has a grade above 0"),
        ({"queries": '{"text": "x"}\n'}, 'queries.jsonl:1: no "_id" and no "id"; there are "text"'),
        ({"queries": '{"_id": null, "text": "x"}\n'}, 'queries.jsonl:1: "_id": expected an id (text or an integer)'),
        ({"queries": '{"_id": true, "text": "x"}\n'}, 'queries.jsonl:1: "_id": expected an id (text or an integer)'),
        ({"corpus": '{"_id": "d1"}\n'}, 'corpus.jsonl:1: "text": expected text, there are "_id"'),
        ({"corpus": '{"_id": "d1", "text": 3}\n'}, 'corpus.jsonl:1: "text": expected text, got 3'),
        ({"corpus": ""}, "corpus.jsonl: no records in this file"),
        ({"queries": "\n"}, "queries.jsonl: no records in this file"),
        ({"corpus": "{"}, "corpus.jsonl:1: column 2: not JSON"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(source, changed, message):
    """One line that begins with the file, and the line where there is one."""
    data = source(**changed)
    with pytest.raises(DataError) as caught:
        list(data.records())
    assert str(caught.value).replace(f"{data.queries.parent}/", "").startswith(message)


def test_judgments_by_name_need_every_name(source):
    """A key that is missing is named."""
    relevant = json.dumps({"query-id": "q1", "corpus-id": "d1"}) + "\n"
    with pytest.raises(DataError, match='relevant.jsonl:1: no "score"; there are "query-id", "corpus-id"'):
        list(source(relevant=relevant, endings=("jsonl",) * 3).records())


def test_the_fingerprint_is_of_all_three_files(source):
    """Any change of any file changes it; packing doesn't."""
    first = source().fingerprint()
    assert source(endings=("jsonl.gz", "jsonl.gz", "tsv.gz")).fingerprint() == first
    changed = {
        source(**{name: text + "\n"}).fingerprint()
        for name, text in {"queries": QUERIES, "corpus": CORPUS, "relevant": QRELS}.items()
    }
    assert len(changed | {first}) == 4
