"""The document of a verdict, from an agent of any version."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from distdbg.tui.targets import FindingTarget
from distdbg.tui.verdict import (
    edge_words,
    evidence_words,
    finding_at,
    finding_line,
    found_again,
    items,
    ordered,
    ranks,
    role_ranks,
    root_path,
    target_of,
    texts,
    words,
)


def finding(what: str, severity: str = "error", **more: Any) -> dict[str, Any]:
    return {"kind": "stall", "what": what, "severity": severity, "ranks": [3], **more}


def test_findings_come_root_first_then_by_severity() -> None:
    document = {"verdict": {"root": 2}, "findings": [
        finding("a", "note"), finding("b", "error"), finding("c", "warning"), finding("d", "error"),
    ]}  # fmt: skip
    assert [at for at, _ in ordered(document)] == [2, 1, 3, 0]
    assert root_path(document) == (2,)
    assert root_path({"verdict": {"root": None}}) is None


def test_a_finding_is_found_again_where_it_has_moved_to() -> None:
    inner = finding("inner", kind="failed op")
    document = {"findings": [finding("x", kind="other"), finding("y", follows=[inner])]}
    path = (1, 0)
    target = target_of(inner, path)
    assert finding_at(document, path) == inner
    assert found_again(document, target) == path
    moved = {"findings": [finding("y", follows=[inner])]}
    assert found_again(moved, target) == (0, 0)
    assert found_again({"findings": []}, target) is None
    assert found_again(None, target) is None


def test_evidence_and_edges_are_sentences_that_say_a_place_once() -> None:
    assert evidence_words({"text": "it sleeps", "site": "a.py:3 (f)", "source": "x.log:4"}) == (
        "it sleeps at a.py:3 (f) [x.log:4]"
    )
    assert evidence_words({"text": "it sleeps at a.py:3 (f)", "site": "a.py:3 (f)"}) == (
        "it sleeps at a.py:3 (f)"
    )
    edge = {"rank": 0, "on": [1], "text": "recv from rank 1", "site": "a.py:3 (f)"}
    assert edge_words(edge) == "rank 0 waits in recv from rank 1 at a.py:3 (f)"
    edge |= {"on": [1, 2], "is_any": True, "site": "", "text": "recv"}
    assert edge_words(edge) == "rank 0 waits in recv for any of ranks 1-2"


def test_what_a_program_wrote_obeys_no_terminal() -> None:
    line = finding_line(finding("\x1b[2Jgone"), FindingTarget((0,), "", "", 0, ()))
    assert "\x1b" not in "".join(cell.text for cell in line.cells)


odd = st.none() | st.booleans() | st.integers(-1, 9) | st.text(max_size=3) | st.just([None, 3])
some = st.dictionaries(
    st.sampled_from(["root", "ranks", "rank", "role", "what", "severity", "seq", "on"]), odd
)
follows = st.builds(
    lambda one, more: one | {"follows": more}, some, odd | st.lists(some, max_size=2)
)


@given(odd | some, odd | st.lists(follows | odd, max_size=3), odd | st.lists(some, max_size=2), odd)
def test_no_document_is_too_odd(verdict: Any, findings: Any, known: Any, lacks: Any) -> None:
    document = {"verdict": verdict, "findings": findings, "ranks": known, "lacks": lacks}
    for at, one in ordered(document):
        target = target_of(one, (at,))
        assert found_again(document, target) is not None
        finding_line(one, target)
        ranks(one, "ranks")
        words(one, "what")
        for part in items(one, "follows"):
            evidence_words(part)
            edge_words(part)
    role_ranks(document, "root")
    texts(document, "lacks")
