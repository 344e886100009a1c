"""The deadlock of verdict.json: read as it is, or left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.load.proof import read_proofs
from distdbg.diagnose.verdict import diagnose
from distdbg.render.verdict_json import to_plain
from tests.support.session_builder import SessionBuilder


def deadlock() -> SessionBuilder:
    build = SessionBuilder(3)
    for rank in range(2):
        op = build.op(rank, "recv", peer=1 - rank, is_async=True, at_s=1, site="/j/x.py:7 (main)")
        build.wait(op, since_s=2, site="/j/x.py:9 (main)")
    return build


def write(folder: Path, build: SessionBuilder) -> None:
    plain = to_plain(build.session, diagnose(build.session))
    (folder / "verdict.json").write_text(json.dumps(plain))


def test_what_the_agent_proved_is_read_with_its_ranks_lines_and_waits(tmp_path: Path) -> None:
    build = deadlock()
    write(tmp_path, build)
    (proof,) = read_proofs([tmp_path])
    root = diagnose(build.session).root
    assert root is not None
    assert (proof.kind, proof.what, proof.ranks) == (root.kind, root.what, root.ranks)
    assert [line.text for line in proof.evidence] == [line.text for line in root.evidence]
    assert [edge.on for edge in proof.edges] == [edge.on for edge in root.edges]


def test_it_is_the_cause_where_the_records_do_not_hold_it_any_more(tmp_path: Path) -> None:
    build = deadlock()
    write(tmp_path, build)
    for rank in range(2):
        build.session.ranks[rank].work_waits = ()
    assert diagnose(build.session).root is None
    build.session.said = read_proofs([tmp_path])
    root = diagnose(build.session).root
    assert root is not None
    assert (root.kind, root.ranks) == (FindingKind.DEADLOCK, (0, 1))


def test_it_is_not_told_twice(tmp_path: Path) -> None:
    build = deadlock()
    write(tmp_path, build)
    alone = diagnose(build.session)
    build.session.said = [replace(proof, ranks=(1,)) for proof in read_proofs([tmp_path])]
    assert diagnose(build.session) == alone


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"findings": 3}',
        '{"findings": [3, {"kind": "deadlock"}]}',
        '{"findings": [{"kind": "deadlock", "what": "x", "ranks": [-1, true, "a"]}]}',
        '{"findings": [{"kind": "stall", "what": "x", "ranks": [1]}]}',
    ],
)
def test_what_is_no_proof_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "verdict.json").write_text(text)
    assert read_proofs([tmp_path, tmp_path / "gone"]) == []


def test_odd_values_of_a_proof_are_left_out(tmp_path: Path) -> None:
    odd = {"kind": "deadlock", "what": "x", "ranks": [1], "at": "9999-99", "group": 3}
    odd |= {"evidence": [{"text": 3}, {"text": "y", "ranks": 2}], "edges": [{"rank": "a"}]}
    (tmp_path / "verdict.json").write_text(json.dumps({"findings": [odd]}))
    (proof,) = read_proofs([tmp_path])
    assert (proof.at_ns, proof.group, proof.edges) == (None, "", ())
    assert [(line.text, line.rank) for line in proof.evidence] == [("y", None)]
