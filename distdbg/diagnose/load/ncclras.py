"""Reads the output of `ncclras`, text or JSON: ranks that are gone or behind.

NCCL counts the collectives of each kind on each communicator. Where ranks differ it lists the fewer of them
as if they were at fault; the cause are those with the lower count, few or many. A difference in
one look is normal while a job runs, so it is a warning.

Version 2.28.9 leaves out a comma between two values. It is put in where a value ends and a key begins.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.diagnose.load.torch_names import kind_of
from distdbg.diagnose.session import GroupInfo, RankLog, Session
from distdbg.diagnose.wording import say_ranks, verb
from distdbg.errors import RecordError
from distdbg.record.regular_file import open_regular

FORMAT: Final = "ncclras"
_MAX_NBYTES: Final = 1 << 27
_MAX_RANK: Final = 1 << 20
_MAX_COMMS: Final = 1 << 16

#: Between the end of a value and the next key or value only a comma may stand.
_NO_COMMA: Final = re.compile(r'((?:[}\]"\d]|true|false|null)[ \t]{0,64}\r?\n[ \t]{0,256})(?=["{])')
_NO_COMMA_IN_LINE: Final = re.compile(r'([}\]][ \t]{0,64})(?=["{])')

_COMM: Final = re.compile(r"#(\d{1,9}-\d{1,9}) \(([0-9a-fx]{1,40})\) (\w{1,20})")
_DIFFERS: Final = re.compile(r"Communicator ranks have different (\w{1,40}) ?operation counts")
_LAUNCHED: Final = re.compile(r"(\d{1,9}) ranks? (?:have|has) launched up to operation (\d{1,18})")
_MEMBER: Final = re.compile(
    r"Rank (\d{1,7}) -- GPU (\d{1,4}) managed by process (\d{1,9}) on node ([\w.:-]{1,128})"
)
_ADVICE: Final = "look again in a minute: counts that still differ then are of a job that hangs"


def looks_like_ras(head: bytes) -> bool:
    """Whether a file that begins so is an output of ncclras."""
    if head.lstrip()[:1] == b"{":
        return b'"communicators"' in head or b'"nccl_version"' in head
    return b"Job summary\n" in head and b"Communicators..." in head


def read_ras(path: Path) -> Session:
    """One session; RecordError for what is no such output."""
    name = str(path)
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_NBYTES) or b""
    except OSError as error:
        raise RecordError(f"{name}: {error.strerror or error}", path=name) from error
    text = data.decode("utf-8", "replace")
    session = Session(source=name, format=FORMAT)
    if text.lstrip()[:1] == "{":
        _read_json(session, text, name)
    else:
        session.said += _read_text(session, text, path.name)
    session.lacks.append(
        "ncclras counts collectives: messages, arguments and call sites are not in it"
    )
    return session


# ------------------------------------------------------------------------------- JSON


def _read_json(session: Session, text: str, name: str) -> None:
    value = _parse(text, name)
    comms = value.get("communicators")
    if not isinstance(comms, list):
        raise RecordError(f"{name} has no communicators", path=name)
    for number, comm in enumerate(comms[:_MAX_COMMS]):
        if isinstance(comm, dict):
            session.said += _read_comm(session, comm, number, name)


def _parse(text: str, name: str) -> Mapping[str, Any]:
    try:
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            mended = _NO_COMMA.sub(r"\1,", text)
            mended = _NO_COMMA_IN_LINE.sub(r"\1,", mended)
            value = json.loads(mended)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name} is not JSON of ncclras: {error}", path=name) from None
    if not isinstance(value, dict):
        raise RecordError(f"{name} is no JSON of ncclras", path=name)
    return value


def _read_comm(
    session: Session, comm: Mapping[str, Any], number: int, name: str
) -> Iterator[Finding]:
    label = str(comm.get("hash", number))[:40]
    ranks = [r for r in _dicts(comm.get("ranks")) if _rank(r) is not None]
    missing = [r for r in _dicts(comm.get("missing_ranks")) if _rank(r) is not None]
    members = sorted({_rank(r) or 0 for r in ranks + missing})
    session.groups.append(GroupInfo(name=label, label=label, ranks=tuple(members), backend="nccl"))
    # Ranks of a communicator are the job's where it has all of them.
    is_world = number == 0 or len(members) >= session.world_size
    if is_world:
        session.world_size = max(session.world_size, _count(comm, members))
        for member in ranks:
            session.ranks.setdefault(
                _rank(member) or 0,
                RankLog(
                    rank=_rank(member) or 0,
                    host=str(member.get("host", ""))[:64],
                    pid=_integer(member.get("pid")),
                    source=name,
                ),
            )
    yield from _gone(missing, label)
    yield from _errors(ranks, label)
    counts: dict[str, dict[int, int]] = defaultdict(dict)
    for member in ranks:
        given = member.get("collective_counts")
        if isinstance(given, dict):
            for kind, count in list(given.items())[:64]:
                counts[str(kind)[:40]][_rank(member) or 0] = _integer(count)
    for kind, by_rank in counts.items():
        yield from _behind(kind, by_rank, label)


def _gone(missing: list[Mapping[str, Any]], label: str) -> Iterator[Finding]:
    dead = [r for r in missing if r.get("considered_dead") is True]
    silent = [r for r in missing if r not in dead]
    for kind, those, words in (
        (FindingKind.DEAD_RANK, dead, "NCCL considers it dead"),
        (FindingKind.STUCK_RANK, silent, "it does not answer NCCL"),
    ):
        if those:
            ranks = tuple(sorted(_rank(r) or 0 for r in those))
            yield Finding(
                kind=kind,
                severity=Severity.ERROR,
                what=f"{say_ranks(ranks)} of communicator {label}: {words}",
                ranks=ranks,
                group=label,
                evidence=tuple(
                    Evidence(
                        text=f"rank {_rank(r)} is process {_integer(r.get('pid'))} on {_host(r)}",
                        rank=_rank(r),
                    )
                    for r in those[:8]
                ),
                advice="look at the process and the kernel's log on its host",
            )


def _errors(ranks: list[Mapping[str, Any]], label: str) -> Iterator[Finding]:
    failed = []
    for member in ranks:
        status = member.get("status")
        if isinstance(status, dict) and _integer(status.get("async_error")):
            failed.append((_rank(member) or 0, _integer(status.get("async_error"))))
    if failed:
        yield Finding(
            kind=FindingKind.FAILED_OP,
            severity=Severity.ERROR,
            what=f"NCCL reports an error on {say_ranks(r for r, _ in failed)} of {label}",
            victims=tuple(rank for rank, _ in failed),
            group=label,
            evidence=tuple(
                Evidence(text=f"rank {rank} reports error {code}", rank=rank)
                for rank, code in failed[:8]
            ),
            advice="look for NCCL WARN lines in the logs of these ranks",
        )


def _behind(kind: str, by_rank: Mapping[int, int], label: str) -> Iterator[Finding]:
    if len(set(by_rank.values())) < 2:
        return
    most = max(by_rank.values())
    late = tuple(sorted(rank for rank, count in by_rank.items() if count < most))
    name = kind_of(kind)
    yield Finding(
        kind=FindingKind.MISSING_RANK,
        severity=Severity.WARNING,
        what=f"{say_ranks(late)} {verb(late, 'has', 'have')} not called {name} #{most} on {label}",
        ranks=late,
        victims=tuple(sorted(by_rank.keys() - set(late))),
        group=label,
        seq=most,
        evidence=tuple(
            Evidence(text=f"rank {rank} has called {by_rank[rank]} of {name}", rank=rank)
            for rank in late[:8]
        ),
        advice=_ADVICE,
    )


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _rank(member: Mapping[str, Any]) -> int | None:
    rank = member.get("rank")
    return rank if type(rank) is int and 0 <= rank < _MAX_RANK else None


def _host(member: Mapping[str, Any]) -> str:
    return str(member.get("host", "?"))[:64]


def _integer(value: object) -> int:
    return value if type(value) is int and -(2**63) < value < 2**63 else 0


def _count(comm: Mapping[str, Any], members: list[int]) -> int:
    size = _integer(comm.get("size"))
    return size if len(members) <= size < _MAX_RANK else len(members)


# ------------------------------------------------------------------------------- text


def _read_text(session: Session, text: str, name: str) -> Iterator[Finding]:
    """The warnings and errors of a report: 'different AllReduce operation counts', with outliers by rank."""
    label = kind = ""
    counts: list[tuple[int, int]] = []
    listed: dict[int, list[int]] = defaultdict(list)
    first_line = 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        stripped = line.strip()[:4096]
        comm, differs = _COMM.match(stripped), _DIFFERS.match(stripped)
        if (comm or differs or not stripped) and counts:
            yield _from_counts(session, kind, label, counts, listed, f"{name}:{first_line}")
            counts, listed = [], defaultdict(list)
        if comm:
            label = comm[2]
        elif differs:
            kind, first_line = kind_of(differs[1]), number
        elif launched := _LAUNCHED.match(stripped):
            counts.append((int(launched[2]), int(launched[1])))
        elif member := _MEMBER.match(stripped):
            rank = int(member[1])
            session.ranks.setdefault(
                rank, RankLog(rank=rank, host=member[4], pid=int(member[3]), source=name)
            )
            if counts:
                listed[counts[-1][0]].append(rank)


def _from_counts(
    session: Session,
    kind: str,
    label: str,
    counts: list[tuple[int, int]],
    listed: Mapping[int, list[int]],
    source: str,
) -> Finding:
    most = max(count for count, _ in counts)
    total = sum(ranks for _, ranks in counts)
    ahead = sum(ranks for count, ranks in counts if count == most)
    session.world_size = max(session.world_size, min(total, _MAX_RANK))
    named = [rank for count, ranks in listed.items() if count < most for rank in ranks]
    ahead_named = listed.get(most, [])
    if len(named) != total - ahead and len(ahead_named) == ahead and total <= _MAX_RANK:
        # Those in front are listed, and nobody asked for them: the rest is behind.
        named = sorted(set(range(total)) - set(ahead_named))
    is_named = len(named) == total - ahead
    who = say_ranks(named) if is_named else f"{total - ahead} of {total} ranks"
    return Finding(
        kind=FindingKind.MISSING_RANK,
        severity=Severity.WARNING,
        what=f"{who} {'has' if total - ahead == 1 else 'have'} not called {kind} #{most} on {label}",
        ranks=tuple(sorted(named)) if is_named else (),
        victims=tuple(sorted(ahead_named)),
        group=label,
        seq=most,
        evidence=tuple(
            Evidence(text=f"{ranks} ranks have called {count} of {kind}", source=source)
            for count, ranks in counts[:8]
        ),
        advice=_ADVICE,
    )
