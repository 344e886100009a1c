"""Truth against outcome: every way in which a program did not end as it says it must.

Strict: the class of the error on every rank, the op, the odd ranks, both source lines, one text
on all ranks, no byte of an output written; and silence where there is nothing to say. How soon each
error came is scored by itself, for a host that does nothing else.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Any

from runner.truth import Truth

#: From the last rank's call to the error; 0.1 s is the aim, but the ranks share two cores.
_AT_ONCE_S = 1.0
#: From the end of a rank until it is noticed; it has to take its interpreter apart first.
_SOON_S = 2.0

#: Errors about what is in the arrays, when an option of the check looks at it.
_ABOUT_ARRAYS = ("NonFiniteError", "BufferChangedError", "DivergedError")

_CALLED = re.compile(r"^\s*ranks? ([\d,-]+).*? called .+? at (\S+):(\d+) ")

Result = dict[str, Any]


def score(truth: Truth, results: list[Result]) -> list[str]:
    """Return one line for everything that is not as the program says; empty when all is right."""
    complaints: list[str] = []
    for rank, result in enumerate(results):
        found = describe_end(result)
        if truth.outcome[rank] == "*":
            if found in ("hung", "SIGSEGV", "SIGABRT"):
                complaints.append(f"rank {rank} ended with {found}")
            continue
        if found != truth.outcome[rank]:
            complaints.append(f"rank {rank} ended with {found}, not {truth.outcome[rank]}")
            complaints += [f"    {line}" for line in result["stderr"].splitlines()[-12:]]
            continue
        complaints += [f"rank {rank}: {text}" for text in _score_rank(truth, rank, result)]
    complaints += _score_texts(truth, results)
    return complaints


def score_haste(truth: Truth, results: list[Result]) -> list[str]:
    """Return one line for every error that came too late.

    Seconds mean something on a host that does nothing else, so this is for benchmarks/programs.py.
    """
    complaints = []
    for rank, result in enumerate(results):
        end = describe_end(result)
        if end == truth.outcome[rank] and end in ("PeerLost", "RankLeft"):
            complaints += _score_notice(truth, rank, results)
    return complaints + _score_mismatch_haste(truth, results)


def describe_end(result: Result) -> str:
    """'silent', the class of the error, 'exit 3', 'SIGKILL' or 'hung'."""
    if result["hung"]:
        return "hung"
    code, report = result["exit_code"], result["report"]
    if code < 0:
        return signal.Signals(-code).name
    if report is not None and report["error"] is not None:
        name = report["error"]["class"]
        return f"exit {code}" if name == "SystemExit" else str(name)
    return "silent" if code == 0 else f"exit {code}"


def _score_rank(truth: Truth, rank: int, result: Result) -> list[str]:
    end = truth.outcome[rank]
    if end == "silent":
        return _score_silence(truth, rank, result)
    report = result["report"]
    error = report["error"] if report else None
    complaints = []
    if end in ("MismatchError", "RankLeft"):
        complaints += [
            f"the first line does not say {word!r}: {error['first']}"
            for word in truth.says
            if word not in error["first"]
        ]
    if end == "MismatchError":
        complaints += _score_mismatch(truth, rank, error)
    elif end == "OpTimeout":
        complaints += _score_timeout(truth, rank, report)
    elif end in ("PeerLost", "RankLeft"):
        complaints += _score_lost(truth, report)
    elif end in _ABOUT_ARRAYS:
        complaints += _score_arrays(truth, error)
    return complaints


def _score_silence(truth: Truth, rank: int, result: Result) -> list[str]:
    if rank in truth.warned:
        text = result["stderr"]
        lines = {truth.sites[of] for of in truth.warned if of in truth.sites}
        complaints = [f"no warning says {word!r}" for word in truth.warns if word not in text]
        complaints += [
            f"no warning names line {line}"
            for line in sorted(lines | set(truth.also_lines))
            if f"{truth.path.name}:{line}" not in text
        ]
        return complaints
    if result["stderr"] or result["stdout"]:
        return [f"was not silent: {(result['stderr'] + result['stdout']).strip()[:600]}"]
    return []


def _score_mismatch(truth: Truth, rank: int, error: dict[str, Any]) -> list[str]:
    complaints = []
    facts = error["facts"]
    if truth.op and facts["kind"] != truth.op:
        complaints.append(f"the error is about {facts['kind']!r}, not {truth.op!r}")
    named = sorted(facts["ranks"])
    if named != sorted(truth.names):
        complaints.append(f"names ranks {named}, not {sorted(truth.names)}")
    complaints += _score_lines(truth, error["text"])
    if len(error["first"]) > 200:
        complaints.append(f"the first line has {len(error['first'])} characters")
    own = (
        "this rank is the one that differs" in error["text"]
        or "one of those that differ" in error["text"]
    )
    if own != (rank in truth.odd):
        complaints.append("says of this rank that it is odd" if own else "does not say it is odd")
    if truth.op in ("new_group", "DDP"):
        return complaints  # there are no arrays, or they are of the pass as a whole
    if "is_untouched" not in error:
        complaints.append("the op of the error was not seen, so its outputs cannot be compared")
    elif not error["is_untouched"] and truth.env.get("DISTDBG_DEBUG") != "info":
        complaints.append("an output was written although the ranks differed")
    return complaints


def _score_arrays(truth: Truth, error: dict[str, Any]) -> list[str]:
    complaints = [
        f"the first line does not say {word!r}: {error['first']}"
        for word in truth.says
        if word not in error["first"]
    ]
    if sorted(error["facts"]["ranks"]) != sorted(truth.names):
        complaints.append(f"names ranks {error['facts']['ranks']}, not {sorted(truth.names)}")
    return complaints + _score_places(truth, truth.names, error["text"])


def _score_lines(truth: Truth, text: str) -> list[str]:
    named: dict[int, set[int]] = {}
    for line in text.splitlines():
        for found in re.finditer(_CALLED, line):
            if found[2] == truth.path.name:
                for rank in _parse_ranks(found[1]):
                    named.setdefault(rank, set()).add(int(found[3]))
    complaints = [
        f"says that rank {rank} called at line {sorted(named.get(rank, ()))}, it is {line}"
        for rank, line in sorted(truth.sites.items())
        if named.get(rank) != {line}
    ]
    complaints += [
        f"does not name line {line} of the op before"
        for line in truth.previous_lines
        if not re.search(rf"before it, .* {re.escape(truth.path.name)}:{line} ", text)
    ]
    return complaints


def _score_timeout(truth: Truth, rank: int, report: dict[str, Any]) -> list[str]:
    error = report["error"]
    complaints = []
    expected = truth.missing[rank]
    if expected is not None and sorted(error["facts"]["missing"]) != sorted(expected):
        complaints.append(f"misses ranks {error['facts']['missing']}, not {list(expected)}")
    complaints += _score_places(truth, expected or (), error["text"])
    complaints += [
        f"does not say {word!r}: {error['first']}"
        for word in truth.says
        if word not in error["text"]
    ]
    return complaints


def _score_places(truth: Truth, ranks: Sequence[int], text: str) -> list[str]:
    return [
        f"does not say that rank {rank} is at line {truth.sites[rank]}"
        for rank in ranks
        if rank in truth.sites and f"{truth.path.name}:{truth.sites[rank]}" not in text
    ]


def _score_lost(truth: Truth, report: dict[str, Any]) -> list[str]:
    error = report["error"]
    complaints = []
    if [error["facts"]["peer"]] != list(truth.odd):
        complaints.append(f"names rank {error['facts']['peer']}, not {list(truth.odd)}")
    if truth.op and error["facts"]["kind"] != truth.op:
        complaints.append(f"the error is about {error['facts']['kind']!r}, not {truth.op!r}")
    return complaints + _score_places(truth, truth.odd, error["text"])


def _score_notice(truth: Truth, rank: int, results: list[Result]) -> list[str]:
    # A rank that was killed has no report: it did nothing long before that.
    reports = [results[odd]["report"] for odd in truth.odd]
    ended = [report["ended_s"] for report in reports if report]
    report = results[rank]["report"]
    began = report["raised_s"] - report["took_s"]
    late_s = report["raised_s"] - max([began, *ended])
    return [f"rank {rank} noticed {late_s:.1f} s too late"] if late_s > _SOON_S else []


def _score_texts(truth: Truth, results: list[Result]) -> list[str]:
    errors = [
        result["report"]["error"]
        for rank, result in enumerate(results)
        if truth.outcome[rank] == "MismatchError" == describe_end(result)
    ]
    complaints = []
    texts = {_common(error["text"]) for error in errors}
    if len(texts) > 1:
        complaints.append("the ranks are told different things:\n" + "\n--\n".join(sorted(texts)))
    return complaints


def _score_mismatch_haste(truth: Truth, results: list[Result]) -> list[str]:
    reports = [
        result["report"]
        for rank, result in enumerate(results)
        if truth.outcome[rank] == "MismatchError" == describe_end(result)
    ]
    called = [report["error"]["called_s"] for report in reports if "called_s" in report["error"]]
    if not called:
        return []
    late_s = max(report["raised_s"] for report in reports) - max(called)
    return [f"the mismatch was raised {late_s:.1f} s too late"] if late_s > _AT_ONCE_S else []


def _common(text: str) -> str:
    """What must be the same on all ranks: all but the line about this rank."""
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith("this rank"))


def _parse_ranks(text: str) -> list[int]:
    ranks: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        ranks += range(int(low), int(high or low) + 1)
    return ranks
