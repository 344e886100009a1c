"""The findings of a verdict: their order, their places, their words."""

from dataclasses import replace
from typing import Any

from distdbg.diagnose.finding import Edge, Evidence, Finding, FindingKind, Severity, Verdict
from distdbg.tui.targets import FindingTarget
from distdbg.tui.verdict import (
    edge_words,
    evidence_words,
    finding_at,
    finding_line,
    found_again,
    ordered,
    target_of,
)


def finding(what: str, severity: Severity = Severity.ERROR, **more: Any) -> Finding:
    usual: dict[str, Any] = {"kind": FindingKind.STALL, "ranks": (3,)}
    return Finding(what=what, severity=severity, **(usual | more))


def verdict(*findings: Finding, root: Finding | None = None) -> Verdict:
    return Verdict(what="", root=root, findings=findings, roles={})


def test_findings_come_root_first_then_by_severity() -> None:
    found = (
        finding("a", Severity.NOTE), finding("b"), finding("c", Severity.WARNING), finding("d"),
    )  # fmt: skip
    assert [at for at, _ in ordered(verdict(*found, root=found[2]))] == [2, 1, 3, 0]
    assert [at for at, _ in ordered(verdict(*found))] == [1, 3, 2, 0]


def test_a_finding_is_found_again_where_it_has_moved_to() -> None:
    inner = finding("inner", kind=FindingKind.FAILED_OP)
    outer = finding("y", follows=(inner,))
    now = verdict(finding("x", kind=FindingKind.LEAKED_WORK), outer)
    path = (1, 0)
    target = target_of(inner, path)
    assert finding_at(now, path) is inner
    assert found_again(now, target) == path
    assert found_again(verdict(outer), target) == (0, 0)
    assert found_again(verdict(), target) is None
    assert found_again(None, target) is None


def test_evidence_and_edges_are_sentences_that_say_a_place_once() -> None:
    fact = Evidence(text="it sleeps", site="a.py:3 (f)", source="x.log:4")
    assert evidence_words(fact) == "it sleeps at a.py:3 (f) [x.log:4]"
    fact = Evidence(text="it sleeps at a.py:3 (f)", site="a.py:3 (f)")
    assert evidence_words(fact) == "it sleeps at a.py:3 (f)"
    edge = Edge(rank=0, on=(1,), text="recv from rank 1", site="a.py:3 (f)")
    assert edge_words(edge) == "rank 0 waits in recv from rank 1 at a.py:3 (f)"
    edge = replace(edge, on=(1, 2), is_any=True, site="", text="recv")
    assert edge_words(edge) == "rank 0 waits in recv for any of ranks 1-2"


def test_what_a_program_wrote_obeys_no_terminal() -> None:
    line = finding_line(finding("\x1b[2Jgone"), FindingTarget((0,), FindingKind.STALL, "", 0, ()))
    words = [
        *(cell.text for cell in line.cells),
        evidence_words(Evidence(text="\x1b[2J", site="\x1b")),
    ]
    words.append(edge_words(Edge(rank=0, on=(), text="\x1b[2J", site="\x1b")))
    assert "\x1b" not in "".join(words)
