"""How ranks ended and what is known of it, in a word each; and the report on them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from distdbg.control.words import AGENT, AbortWords
from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.record_facts import RecordFacts
from distdbg.launch.report import JobOutcome, exit_code, report
from distdbg.record.ends import RankEnd
from distdbg.record.error_file import ErrorFacts

S = 10**9
BEGAN = 1_795_310_000 * S
FOLDER = "/tmp/distdbg-1000/20261121-130501-1f09ac"
TRACE = """Traceback (most recent call last):
  File "/home/me/train.py", line 91, in <module>
    main()
    ~~~~^^
  File "/home/me/train.py", line 80, in main
    step(batch)
ValueError: no data
"""


def ended(rank: int, at_s: float = 1.0, host: str = "n14", **facts: Any) -> RankEnd:
    """A rank that exited with 0, unless the facts say otherwise."""
    known: dict[str, Any] = {
        "rank": rank,
        "pid": 8810 + rank,
        "host": host,
        "ended_ns": int(at_s * S),
        "wall_ns": BEGAN + int(at_s * S),
        "cause": "exited",
        "exit_code": 0,
    }
    if "signal" in facts:
        known |= {"cause": "signal", "exit_code": None}
    return RankEnd(**(known | facts))


def error(text: str, at_s: float = 0.9, **facts: Any) -> ErrorFacts:
    return ErrorFacts(
        **{"text": text, "wall_ns": BEGAN + int(at_s * S), "type": text.partition(":")[0], **facts}
    )


def terminated(rank: int, at_s: float = 2.0, **facts: Any) -> LostRankEvidence:
    return LostRankEvidence(end=ended(rank, at_s, signal=15, was_asked=True, **facts))


def lost(rank: int, peer: int, at_s: float = 1.1, **facts: Any) -> LostRankEvidence:
    text = f"PeerLost: rank {peer} died (signal 9, SIGKILL) while ranks 0,1,3 waited in barrier #3"
    return LostRankEvidence(
        end=ended(rank, at_s + 0.1, exit_code=1, **facts),
        error=error(text, at_s, because_of=(peer,)),
    )


def record(doing: str, rank: int = 2, **facts: Any) -> RecordFacts:
    path = f"{FOLDER}/attempt_0/rank{rank:05}.ddr"
    return RecordFacts(path=path, doing=doing, **facts)


def reported(*evidence: LostRankEvidence, **facts: Any) -> str:
    """The report; the order in which ranks are known must not matter."""
    outcome = JobOutcome(evidence=evidence, run_folder=FOLDER, **facts)
    text = report(outcome)
    for seed in range(3):
        shuffled = list(evidence)
        random.Random(seed).shuffle(shuffled)
        assert report(replace(outcome, evidence=shuffled)) == text
    return text


def code(*evidence: LostRankEvidence, **facts: Any) -> int:
    return exit_code(JobOutcome(evidence=evidence, **facts))


_WHEN = re.compile(r"  (?:died|failed) at 2026-11-2\dT\d\d:\d\d:\d\d")


def golden(text: str, lines: Sequence[str]) -> None:
    """All lines but the one with the time, which depends on the zone of the host."""
    shown = text.splitlines()
    when = [line for line in shown if _WHEN.fullmatch(line)]
    assert len(when) <= 1
    assert [line for line in shown if line not in when] == list(lines)


KNOT = AbortWords(
    what="ranks 0-1 are deadlocked (cycle of 2 ranks): recv from rank 1, recv from rank 0",
    type="deadlock",
    ranks=(0, 1),
    details=["rank 0 waits in recv from rank 1 on group 'world' at train.py:8 (step)"],
    hint="let one side send while the other receives",
    by=AGENT,
)


def aborted(rank: int) -> LostRankEvidence:
    text = f"JobAborted: the job was aborted by the agent: {KNOT.what}"
    because = tuple({0, 1} - {rank})
    return LostRankEvidence(
        end=ended(rank, exit_code=1), error=error(text, type="JobAborted", because_of=because)
    )
