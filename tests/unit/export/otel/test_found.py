"""Log records of what went wrong, with the ids of the op that they are about."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.export.otel import attributes as names
from distdbg.export.otel.ids import root_span_id, span_id
from distdbg.export.otel.log_records import (
    find_op,
    key_of_finding,
    log_of_end,
    log_of_error,
    log_of_finding,
    span_of_finding,
)
from distdbg.export.otel.model import OtelSeverity
from distdbg.export.otel.ops import OpSpans
from distdbg.export.otel.recorded_ops import OpFacts, TracedGroup, TracedRank
from distdbg.record.ends import RankEnd

FINDING = Finding(
    kind=FindingKind.MISMATCH,
    severity=Severity.ERROR,
    what="all_reduce #42 on group 'dp' differs between ranks",
    ranks=(2,),
    victims=(0, 1),
    group="dp",
    seq=42,
    evidence=(Evidence(text="rank 2 called it at train.py:88"),),
    advice="look at the sizes",
)


def end(**more: object) -> RankEnd:
    facts = {"rank": 3, "pid": 7, "host": "n1", "ended_ns": 5, "wall_ns": 10**18, "cause": "exited"}
    return RankEnd(**(facts | more))  # type: ignore[arg-type]  # by name


def test_a_finding_is_a_child_of_the_op_that_it_is_about() -> None:
    op = OpFacts(number=1, group=TracedGroup(name="1:dp"), seq=42, kind="all_reduce", issued_ns=0)
    expected = OpSpans(TracedRank(run="r", rank=0)).trace_id(op)
    trace_id, parent_id = find_op("r", 0, "1:dp", 42)
    assert (trace_id, parent_id) == (expected, root_span_id(expected))
    log = log_of_finding(FINDING, trace_id=trace_id, parent_id=parent_id, wall_ns=9, number=1)
    span = span_of_finding(log, parent_id=parent_id)
    assert (span.trace_id, span.span_id) == (log.trace_id, log.span_id)
    assert span.error == log.body == FINDING.what
    assert log.level is OtelSeverity.ERROR
    assert log.attributes[names.RANKS] == (2,)
    assert log.attributes[names.EVIDENCE] == ("rank 2 called it at train.py:88",)


def test_a_finding_about_no_op_has_no_ids() -> None:
    assert find_op("r", 0, "", 42) == find_op("r", 0, "dp", 0) == (0, 0)
    log = log_of_finding(FINDING, trace_id=0, parent_id=0, wall_ns=9, number=1)
    assert (log.trace_id, log.span_id) == (0, 0)


def test_the_name_of_a_file_that_is_no_utf_8_is_sent_as_what_can_be_sent() -> None:
    odd = replace(FINDING, what="in \udcff.py", advice="see \udcff.py", group="\udcff")
    log = log_of_finding(odd, trace_id=0, parent_id=0, wall_ns=9, number=1)
    assert (log.body, log.attributes[names.ADVICE]) == ("in \\udcff.py", "see \\udcff.py")
    assert log.attributes[names.GROUP] == "\\udcff"


def test_a_finding_that_lasts_longer_is_the_same_one() -> None:
    assert key_of_finding(FINDING) == key_of_finding(replace(FINDING, what="for 3.0 s by now"))
    assert key_of_finding(FINDING) != key_of_finding(replace(FINDING, seq=43))


def test_an_error_of_a_rank_has_the_ids_of_its_span() -> None:
    facts = {"type": "OpTimeout", "what": "it waited", "group": "dp", "seq": 42, "details": ["a"]}
    log = log_of_error(
        json.dumps(facts), rank=3, run="r", start=0, groups={"dp": "1:dp"}, wall_ns=9
    )
    trace_id, _ = find_op("r", 0, "1:dp", 42)
    assert (log.trace_id, log.span_id) == (trace_id, span_id(trace_id, 3))
    assert (log.level, log.attributes[names.ERROR_TYPE]) == (OtelSeverity.ERROR, "OpTimeout")


@pytest.mark.parametrize(
    ("words", "level", "kind", "body"),
    [
        (
            '{"what": "ValueError: no such file", "where": "a.py:3"}',
            "error",
            "ValueError",
            "no such file",
        ),
        ('{"type": "Suspicion", "what": "it looks swapped"}', "warn", None, "it looks swapped"),
        ("not JSON at all", "warn", None, "not JSON at all"),
        ("[" * 100_000, "warn", None, "[" * 2000),
    ],
)
def test_words_of_any_kind_are_a_log_record(
    words: str, level: str, kind: str | None, body: str
) -> None:
    log = log_of_error(words, rank=0, run="r", start=0, groups={}, wall_ns=9)
    assert (log.level, log.body, log.attributes.get(names.ERROR_TYPE)) == (level, body, kind)


def test_ends_are_as_bad_as_they_are() -> None:
    assert log_of_end(end(exit_code=0)).level is OtelSeverity.INFO
    killed = log_of_end(end(cause="signal", signal=9))
    assert (killed.level, killed.body) == (OtelSeverity.ERROR, "rank 3 was killed by SIGKILL")
    assert log_of_end(end(cause="signal", signal=15, was_asked=True)).level is OtelSeverity.WARN
