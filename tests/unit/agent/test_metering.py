"""Words of ranks as checks, verdicts as counts, numbers of other hosts."""

from __future__ import annotations

from typing import Any

import pytest

from distdbg.agent.metering.job import plain_histograms, read_histograms
from distdbg.diagnose.finding import Verdict
from distdbg.diagnose.verdict_document import read_verdict
from distdbg.export.http.sd import MetricsTarget
from distdbg.export.metrics import families
from distdbg.export.metrics.finding_counts import FindingCounts
from distdbg.export.metrics.rank_facts import CHECKS, OTHER, check_of
from distdbg.export.metrics.samples import HistogramFacts
from distdbg.export.outlets.targets import read_targets
from distdbg.follow.findings import read_words


@pytest.mark.parametrize(("type_", "check"), [*CHECKS.items(), ("DistStoreError", OTHER)])
def test_an_error_is_a_check(type_: str, check: str) -> None:
    assert check_of(read_words(f'{{"type": "{type_}", "what": "it failed"}}')) == check


@pytest.mark.parametrize(
    "text", ['{"what": "ValueError: no data", "where": "a.py:1"}', "torn {", "[]"]
)
def test_how_a_program_ended_is_none(text: str) -> None:
    assert check_of(read_words(text)) is None


def verdict(*findings: dict[str, Any], root: int | None = 0) -> Verdict | None:
    return read_verdict({"findings": list(findings), "verdict": {"root": root}})


DEADLOCK = {"kind": "deadlock", "ranks": [0, 1], "group": "dp", "seq": 7}
STALL = {"kind": "stall", "ranks": [3], "group": "dp", "seq": 9}


def test_a_finding_that_lasts_is_counted_once() -> None:
    counts = FindingCounts()
    counts.take(0, verdict(DEADLOCK, STALL))
    counts.take(0, verdict(DEADLOCK))
    assert counts.now == {"deadlock": 1}
    assert counts.total == {"deadlock": 1, "stall": 1}
    counts.take(0, None)
    assert not counts.now
    assert counts.total == {"deadlock": 1, "stall": 1}


def test_the_same_in_another_start_of_the_ranks_is_another_one() -> None:
    counts = FindingCounts()
    counts.take(0, verdict(DEADLOCK))
    counts.take(1, verdict(DEADLOCK))
    assert counts.now == {"deadlock": 1}
    assert counts.total == {"deadlock": 2}


def test_what_follows_from_a_finding_is_not_counted_beside_it() -> None:
    counts = FindingCounts()
    counts.take(0, verdict({**DEADLOCK, "follows": [STALL]}))
    assert counts.now == {"deadlock": 1}


def test_a_note_of_what_is_over_does_not_hold() -> None:
    counts = FindingCounts()
    stall = {**STALL, "severity": "note"}
    counts.take(0, verdict(stall, {**DEADLOCK, "kind": "mismatch", "severity": "note"}))
    assert counts.now == counts.total == {"stall": 1}


def test_those_whom_the_verdict_blames_are_told_as_long_as_it_holds() -> None:
    counts = FindingCounts()
    counts.take(0, verdict(DEADLOCK, STALL))
    assert counts.causes == ((0, "deadlock", "", ""), (1, "deadlock", "", ""))
    counts.take(0, verdict(STALL, root=None))
    assert counts.causes == ()
    counts.take(0, verdict(DEADLOCK))
    counts.take(0, None)
    assert counts.causes == ()


def test_numbers_of_another_host_come_as_they_went() -> None:
    histograms = {
        ("all_reduce", "dp"): HistogramFacts(
            duration_buckets=(0, 1, 2),
            duration_ns=9,
            wait_buckets=(3, 0, 0),
            wait_ns=1,
            count=3,
        )
    }
    assert read_histograms(plain_histograms(histograms)) == histograms


@pytest.mark.parametrize("words", [None, {}, [["all_reduce"]], [["k", "g", ["x"], 1, [], 1, 1]]])
def test_what_are_no_numbers_is_refused(words: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        read_histograms(words)


@pytest.mark.parametrize(("said", "scheme"), [("https", "https"), ("http", "http"), (7, "http")])
def test_an_agent_says_where_all_hosts_of_its_job_serve_and_how(said: Any, scheme: str) -> None:
    hosts = {"b": "10.0.0.2:9400"}
    about = {
        "run": "r",
        "host": "a",
        "metrics": {"address": "10.0.0.1:9400", "scheme": said, "hosts": hosts},
    }
    assert set(read_targets(about)) == {
        MetricsTarget("10.0.0.1:9400", "r", "a", scheme),
        MetricsTarget("10.0.0.2:9400", "r", "b", scheme),
    }


@pytest.mark.parametrize("about", [{}, {"metrics": None}, {"metrics": {"address": None}}, None, []])
def test_an_agent_that_serves_nothing_names_nothing(about: Any) -> None:
    assert read_targets(about) == ()


def test_the_words_for_checks_are_those_of_the_table_of_metrics() -> None:
    assert [*CHECKS.values(), OTHER] == [*families.CHECKS]
