"""A message whose peer has exchanged none with the rank, and waits in a collective."""

from __future__ import annotations

import pytest

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.waits import find_waits
from distdbg.record.format import Status
from distdbg.testing.session_builder import SessionBuilder

OTHER = {"send": "recv", "recv": "send"}


def tree(kind: str = "send", **more: bool) -> SessionBuilder:
    """All but rank 5 exchange a message with their parent; rank 5 waits in its own with rank 2."""
    build = SessionBuilder(7, **more)
    for child in (1, 2, 3, 4, 6):
        parent = (child - 1) // 2
        for rank, how, peer, line in (
            (child, kind, parent, "tree.py:31 (up)"),
            (parent, OTHER[kind], child, "tree.py:28 (up)"),
        ):
            source = {"source": peer} if how == "recv" else {}
            build.op(rank, how, peer=peer, tag=11, at_s=1, ended_s=2, site=line, **source)
    build.op(5, kind, peer=2, tag=11, at_s=3, site="tree.py:31 (up)")
    for rank in (0, 1, 2, 3, 4, 6):
        build.op(rank, "barrier", at_s=3, site="tree.py:64 (main)")
    return build


def found(build: SessionBuilder) -> Finding:
    session = build.session
    matched = match(session)
    (finding,) = find(session, matched, find_waits(session, matched))
    assert len(finding.what) <= 120
    return finding


@pytest.mark.parametrize("kind", ["send", "recv"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_the_line_of_the_other_half_is_named(kind: str, is_cut: bool) -> None:
    build = tree(kind, is_live=is_cut)
    build.session.cut = Status.ABORTED if is_cut else None
    finding = found(build)
    did, whom, do = ("received", "from", "receive") if kind == "send" else ("sent", "to", "send")
    head = f"rank 2 {did} nothing {whom} rank 5 and went on to barrier"
    assert finding.what.startswith(f"ranks 2,5 are deadlocked: {head}")
    assert finding.ranks == (2, 5)
    last = finding.evidence[-1]
    assert last.text == f"{head}; ranks 0-2 {do} such messages at tree.py:28 (up)"
    assert (last.site, last.is_left_out) == ("tree.py:28 (up)", True)
    assert finding.advice == (
        f"see why rank 2 does not {do} {whom} rank 5 at tree.py:28; if it must not, see why rank 5 has "
        "rank 2 as its peer"
    )


def test_nothing_is_said_where_ops_may_be_missing() -> None:
    live = tree(is_live=True)  # what is in flight alone
    lost = tree()
    lost.session.ranks[2].lost = {"ops": 7}
    before = tree()
    before.op(2, "recv", peer=5, source=5, tag=3, at_s=0.1, ended_s=0.2, site="tree.py:9 (hello)")
    before.op(5, "send", peer=2, tag=3, at_s=0.1, ended_s=0.2, site="tree.py:8 (hello)")
    for build in (live, lost, before):
        assert "nothing" not in found(build).what
