"""The JSON of a verdict, from whoever wrote it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.diagnose.finding import Finding, FindingKind, Role, Severity, Verdict
from distdbg.diagnose.verdict import diagnose
from distdbg.diagnose.verdict_document import read_verdict
from distdbg.render.verdict_json import to_plain, to_plain_verdict
from tests.support.session_builder import SessionBuilder


def deadlock() -> SessionBuilder:
    build = SessionBuilder(3)
    for rank in range(2):
        op = build.op(rank, "recv", peer=1 - rank, is_async=True, at_s=1, site="/j/x.py:7 (main)")
        build.wait(op, since_s=2, site="/j/x.py:9 (main)")
    return build


def without_ops(finding: Finding) -> Finding:
    """As far as JSON tells it: microseconds, and no references into the session."""
    return replace(
        finding,
        traits=finding.all_traits,
        at_ns=finding.at_ns and finding.at_ns // 1000 * 1000,
        evidence=tuple(
            replace(one, op=None, at_ns=one.at_ns and one.at_ns // 1000 * 1000)
            for one in finding.evidence
        ),
        edges=tuple(
            replace(one, op=None, since_ns=one.since_ns and one.since_ns // 1000 * 1000)
            for one in finding.edges
        ),
        follows=tuple(map(without_ops, finding.follows)),
    )


def test_a_verdict_comes_back_as_it_was_made() -> None:
    build = deadlock()
    made = diagnose(build.session)
    for plain in (to_plain(build.session, made), to_plain_verdict(made)):
        read = read_verdict(json.loads(json.dumps(plain)))
        assert read is not None
        assert read.root is read.findings[0]
        assert read.root.kind is FindingKind.DEADLOCK
        assert read.root.edges
        assert read.findings == tuple(map(without_ops, made.findings))
        assert (read.what, read.roles, read.lacks) == (made.what, made.roles, made.lacks)
        assert read_verdict(to_plain_verdict(read)) == read


def test_a_finding_of_a_later_version_is_kept() -> None:
    found = [{"kind": "haunted rank", "severity": "dreadful", "what": "x", "ranks": [3]}]
    read = read_verdict(
        {"verdict": {"root": 0}, "findings": found, "ranks": [{"rank": 3, "role": "?"}]}
    )
    assert read is not None
    assert read.root is not None
    assert (read.root.kind, read.root.ranks) == (FindingKind.UNKNOWN, (3,))
    assert read.root.severity is Severity.WARNING
    assert read.roles == {}


@pytest.mark.parametrize("root", [None, "?", True, -1, 7, 1.0, 1])
def test_a_root_that_is_no_finding_is_none(root: object) -> None:
    read = read_verdict({"verdict": {"root": root}, "findings": [{"what": "x"}, "odd"]})
    assert read is not None
    assert read.root is None
    assert len(read.findings) == 1


def test_what_is_left_out_is_empty() -> None:
    assert read_verdict(None) is None
    assert read_verdict([]) is None
    assert read_verdict({}) == Verdict(what="", root=None, findings=(), roles={})
    read = read_verdict({"ranks": [{"rank": 1, "role": "victim"}, {"rank": True, "role": "root"}]})
    assert read is not None
    assert read.roles == {1: Role.VICTIM}


def test_consequences_without_an_end_are_cut() -> None:
    one: dict[str, Any] = {"what": "x"}
    for _ in range(5000):
        one = {"what": "x", "follows": [one]}
    read = read_verdict({"findings": [one]})
    assert read is not None
    depth, found = 0, read.findings
    while found:
        depth, found = depth + 1, found[0].follows
    assert 4 < depth < 20


odd = (
    st.none() | st.booleans() | st.integers(-1, 9) | st.text(max_size=3) | st.floats()
    | st.just([None, 3]) | st.sampled_from(["9999-99", "2026-11-22T04:10:00", "0001-01-01T00:00+23:00"])
)  # fmt: skip
some = st.dictionaries(
    st.sampled_from(
        ["root", "ranks", "rank", "role", "what", "severity", "seq", "on", "at", "since", "numbers"]
    ),
    odd | st.dictionaries(st.text(max_size=2), odd, max_size=2),
)
parts = st.builds(
    lambda one, more, facts: one | {"follows": more, "evidence": facts, "edges": facts},
    some, odd | st.lists(some, max_size=2), odd | st.lists(some | odd, max_size=2),
)  # fmt: skip


@given(odd | some, odd | st.lists(parts | odd, max_size=3), odd | st.lists(some, max_size=2), odd)
def test_no_document_is_too_odd(verdict: Any, findings: Any, known: Any, lacks: Any) -> None:
    document = {"verdict": verdict, "findings": findings, "ranks": known, "lacks": lacks}
    read = read_verdict(document)
    assert read is not None
    json.dumps(to_plain_verdict(read), allow_nan=False)
    assert read_verdict(to_plain_verdict(read)) == read
