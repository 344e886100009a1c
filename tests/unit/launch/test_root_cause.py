"""What must hold whatever the ranks left behind."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.record_facts import RecordFacts
from distdbg.launch.report import JobOutcome, exit_code, report
from distdbg.launch.root_cause import LossRole, find_root_cause, passed_on_role, sort_by_role
from distdbg.record.ends import Cause, RankEnd
from distdbg.record.error_file import ErrorFacts
from distdbg.record.format import Exit

RANKS = 5
NAMES = st.lists(st.integers(0, RANKS + 1), max_size=2).map(tuple)
HEADLINES = {"FAILED", "RANK DIED", "OUT OF MEMORY", "HUNG", "MISMATCH", "STOPPED"}
WORDS = st.sampled_from(
    [
        "ValueError: a",
        "ValueError: b",
        "RuntimeError: Connection reset by peer",
        "SystemExit: no",
        "",
    ]
)


@st.composite
def evidences(draw: st.DrawFn) -> list[LostRankEvidence]:
    return [
        draw(one(rank))
        for rank in draw(st.lists(st.integers(0, RANKS), unique=True, max_size=RANKS))
    ]


@st.composite
def one(draw: st.DrawFn, rank: int) -> LostRankEvidence:
    causes: list[Cause] = ["exited", "signal", "oom", "unknown"]
    cause = draw(st.sampled_from(causes))
    times = st.integers(0, 3 * 10**9)
    end = RankEnd(
        rank=rank,
        pid=1 + rank,
        host=draw(st.sampled_from(["n1", "n2"])),
        ended_ns=draw(times),
        wall_ns=draw(times),
        cause=cause,
        exit_code=draw(st.sampled_from([0, 0, 1, 3])) if cause == "exited" else None,
        signal=draw(st.sampled_from([9, 11, 15])) if cause in ("signal", "oom") else None,
        was_asked=draw(st.booleans()),
    )
    error = None
    if draw(st.booleans()):
        error = ErrorFacts(
            text=draw(WORDS),
            traceback=draw(st.text(max_size=20)),
            wall_ns=draw(times),
            details=draw(st.lists(st.text(max_size=5), max_size=2).map(tuple)),
            because_of=draw(NAMES),
            waits_for=draw(NAMES),
        )
    record = None
    if draw(st.booleans()):
        record = RecordFacts(
            path="/run/rank",
            doing=draw(st.sampled_from(["in barrier #3", ""])),
            how=draw(st.sampled_from([None, *Exit])),
            raised=draw(WORDS),
            raised_wall_ns=draw(times),
            error_type=draw(st.sampled_from(["PeerLost", "OpTimeout", ""])),
            error_ranks=draw(NAMES),
        )
    return LostRankEvidence(end=end, error=error, record=record)


@settings(deadline=None)  # a machine may be busy
@given(evidences())
def test_a_failure_has_a_first_and_each_rank_has_one_part(evidence: list[LostRankEvidence]) -> None:
    found = find_root_cause(evidence)
    failed = {one.rank for one in evidence if one.end.is_failure}
    if found is None:
        assert not failed
        return
    reported = [
        one.rank for one in (*found.first, *found.others, *found.victims, *found.terminated)
    ]
    assert len(reported) == len(set(reported))
    assert failed <= set(reported)
    assert found.first
    roles = sort_by_role(evidence)
    assert sorted(one.rank for several in roles.values() for one in several) == sorted(
        one.rank for one in evidence
    )
    if roles[LossRole.CAUSE]:
        assert found.role in (LossRole.CAUSE, LossRole.LEAVER)
    if found.role is LossRole.TERMINATED:
        assert all(one.end.was_asked for one in evidence if one.end.is_failure)


@settings(deadline=None)  # a machine may be busy
@given(evidences(), st.sampled_from([None, 2]), st.sampled_from(["", "host n4 is gone"]))
def test_a_report_is_made_of_printable_lines_and_its_code_fits(
    evidence: list[LostRankEvidence], interrupted: int | None, because: str
) -> None:
    outcome = JobOutcome(
        evidence=evidence, interrupted=interrupted, because=because, run_folder="/run"
    )
    text, code = report(outcome), exit_code(outcome)
    assert all(line.isprintable() for line in text.split("\n"))
    assert bool(text) == (code != 0)
    assert 0 <= code < 256
    if text:
        assert text.partition(":")[0] in HEADLINES
        assert text.count("  hint: ") <= 1


class _Unsearched(list[str]):
    """A list of which nobody may ask what it contains: that takes a look at each."""

    def __contains__(self, item: object) -> bool:
        raise AssertionError(f"looked for {item!r} in a list")


def test_an_error_passed_on_is_found_without_a_look_at_all_ranks_for_each() -> None:
    own, other = (
        "OSError: disk full (CheckpointException)",
        "CheckpointException: OSError: disk full (RANK 1)",
    )
    reasons = _Unsearched([own, other, other, "ValueError: a", ""])
    assert passed_on_role(reasons) == {own: LossRole.CAUSE, other: LossRole.VICTIM}
