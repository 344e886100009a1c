"""The JSON of a verdict is as its table says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import render_examples as examples

from distdbg.diagnose.finding import Severity
from distdbg.render.schema import OBJECTS, faults
from distdbg.render.verdict_json import to_plain


@pytest.mark.parametrize("example", [examples.missing_rank, examples.deadlock, examples.healthy])
def test_a_document_is_as_the_table_says(example) -> None:
    document = to_plain(*example())
    assert list(faults(json.loads(json.dumps(document, allow_nan=False)))) == []


def test_a_document_tells_the_verdict_the_findings_and_the_ranks() -> None:
    document = to_plain(*examples.missing_rank())
    assert document["verdict"] == {
        "what": "rank 3 never called all_reduce #4 on group 'world'; 3 others wait",
        "root": 0,
        "has_faults": True,
    }
    [missing, note] = document["findings"]
    assert (missing["kind"], missing["ranks"], missing["victims"]) == (
        "missing rank",
        [3],
        [0, 1, 2],
    )
    assert missing["at"] == "1970-01-01T00:00:10.000000Z"
    op = missing["evidence"][1]["op"]
    assert (op["text"], op["status"], op["ended"]) == (
        "all_reduce #4 on group 'world'",
        "in flight",
        None,
    )
    assert op["stack"] == ["/job/src/train.py:80 (step)", "/job/src/train.py:120 (main)"]
    assert note["severity"] == Severity.NOTE
    assert [(rank["role"], rank["state"]) for rank in document["ranks"][2:]] == [
        ("victim", "in an op"),
        ("root", "asleep"),
    ]


def test_the_root_is_an_index_of_a_finding_and_a_verdict_without_that_finding_is_none() -> None:
    session, verdict = examples.deadlock()
    document = to_plain(session, verdict)
    assert document["verdict"]["root"] == 0
    assert document["findings"][0]["follows"][0]["kind"] == "failed op"
    with pytest.raises(ValueError, match="one of its findings"):
        replace(verdict, findings=())


def test_numbers_that_json_has_not_are_left_out() -> None:
    session, verdict = examples.deadlock()
    root = replace(verdict.root, numbers={"a_s": float("nan"), "b_s": float("inf"), "c_s": 1.0})
    document = to_plain(session, replace(verdict, root=root, findings=(root,)))
    assert document["findings"][0]["numbers"] == {"c_s": 1.0}


def test_the_table_notices_what_is_not_in_it() -> None:
    document = to_plain(*examples.deadlock())
    document["surprise"] = 1
    document["world_size"] = True
    document["findings"][0]["edges"][0]["on"] = ["x"]
    del document["verdict"]["root"]
    document["run"] = None
    assert sorted(faults(document)) == [
        "/findings/0/edges/0/on/0: 'x' is no integer",
        "/run: is null",
        "/surprise: is not in the table",
        "/verdict/root: is missing",
        "/world_size: True is no integer",
    ]


def test_every_object_of_the_table_is_used_by_another() -> None:
    used = {f.type.removeprefix("list of ") for fields in OBJECTS.values() for f in fields}
    assert set(OBJECTS) - used == {"session"}


def test_names_that_are_no_text_are_json_that_every_reader_takes() -> None:
    session, verdict = examples.missing_rank(4, 1)
    session.source = "runs/\udcff😀"
    found = to_plain(session, verdict)["source"]
    assert found == "runs/\\udcff😀"
    assert json.loads(json.dumps(found)).encode()
