"""The result of a rendezvous, and its error messages. Pure.

One rank decides, all read the same verdict, so that no rank continues while another gives up.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from distdbg.errors import RendezvousError, format_ranks
from distdbg.record.durations import duration_text
from distdbg.record.join_calls import too_many
from distdbg.runtime.rendezvous.process import ProcessIdentity

Outcome = Literal["complete", "missing", "twice", "sizes", "died", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRank:
    """A rank as it announced itself."""

    rank: int
    world_size: int
    local_rank: int | None
    local_world_size: int | None
    process: ProcessIdentity

    @property
    def host(self) -> str:
        """The name of its host."""
        return self.process.host


@dataclass(frozen=True, slots=True, kw_only=True)
class RendezvousVerdict:
    """The end of one rendezvous."""

    outcome: Outcome
    members: tuple[JoinedRank, ...]
    """All that had announced themselves by then, in the order of arrival."""
    world_size: int
    waited_s: float = 0.0
    culprits: tuple[int, ...] = ()
    """Ranks that the outcome is about, other than missing ones."""
    readers: int = 0
    """How many are there to read it."""
    plan: Mapping[int, str] = field(default_factory=dict)
    """Where missing ranks were expected, as far as known: rank to host."""
    lost: tuple[JoinedRank, ...] = ()
    """Processes that died before they had announced themselves."""

    @property
    def joined(self) -> list[int]:
        """The ranks that came."""
        return sorted({member.rank for member in self.members})

    @property
    def missing(self) -> list[int]:
        """The ranks that did not."""
        return sorted(set(range(self.world_size)) - set(self.joined))


def member_to_json(member: JoinedRank) -> str:
    """Return the announcement as it is kept in the store."""
    return json.dumps(asdict(member))


def member_from_json(text: str | bytes) -> JoinedRank:
    """Read an announcement."""
    return _member(json.loads(text))


def verdict_to_json(verdict: RendezvousVerdict) -> str:
    """Return the verdict as it is kept in the store."""
    return json.dumps(asdict(verdict))


def verdict_from_json(text: str | bytes) -> RendezvousVerdict:
    """Read a verdict."""
    fields = json.loads(text)
    fields["members"] = tuple(_member(member) for member in fields["members"])
    fields["lost"] = tuple(_member(member) for member in fields["lost"])
    fields["culprits"] = tuple(fields["culprits"])
    fields["plan"] = {int(rank): host for rank, host in fields["plan"].items()}
    return RendezvousVerdict(**fields)


def expect_hosts(
    world_size: int, members: Sequence[JoinedRank], hosts: Sequence[str]
) -> dict[int, str]:
    """Return the host of every rank as far as the members and the launcher's hosts tell.

    Launchers fill one host after the other, so the ranks of a block of LOCAL_WORLD_SIZE share one.
    """
    local_sizes = {member.local_world_size for member in members}
    expected = {member.rank: member.host for member in members}
    if len(local_sizes) != 1:
        return expected
    (local_size,) = local_sizes
    if not local_size:
        return expected
    block_hosts = dict(enumerate(hosts)) if len(hosts) * local_size == world_size else {}
    for member in members:
        if member.local_rank == member.rank % local_size:
            block_hosts[member.rank // local_size] = member.host
    for rank in range(world_size):
        if rank // local_size in block_hosts:
            expected.setdefault(rank, block_hosts[rank // local_size])
    return expected


def explain(
    verdict: RendezvousVerdict, me: JoinedRank, where: str, *, started: int = -1
) -> RendezvousError:
    """Return the error for a verdict that is not 'complete', as rank `me` raises it.

    `started` is how many ranks a launcher has started; -1: it does not say.
    """
    joined, missing = verdict.joined, verdict.missing
    counted = f"{len(joined)} of {verdict.world_size} ranks joined {where!r}"
    details: list[str] = []
    hint: str | None = None
    match verdict.outcome:
        case "missing":
            what = (
                f"{counted} within {duration_text(verdict.waited_s)}; "
                f"missing {_ranks(missing)} (this is rank {me.rank})"
            )
            details += describe_expected(missing, verdict.plan, me.host)
            details += _describe_joined(verdict.members)
            hint = (
                f"look at the output of {_ranks(missing)}: did they start, and call the same thing"
            )
            hint = too_many(verdict.world_size, started) or hint
        case "twice":
            rank = verdict.culprits[0]
            claims = [m for m in verdict.members if m.rank == rank]
            who = " and ".join(f"pid {m.process.pid} on {m.host}" for m in claims[:3])
            what = f"rank {rank} was announced twice at {where}: {who}"
            details.append(f"until then {_ranks(joined)} of {verdict.world_size} had joined")
            hint = "give every process its own rank, and every run its own place to meet"
        case "sizes":
            what = f"the ranks do not agree on the world size: {_sizes(verdict.members)}"
            details.append(f"they met at {where}")
            hint = "start all ranks with the same WORLD_SIZE or world_size="
        case "died":
            rank = verdict.culprits[0]
            dead = next(m for m in (*verdict.lost, *verdict.members) if m.rank == rank)
            what = (
                f"rank {rank} died while the ranks were meeting at {where} "
                f"(pid {dead.process.pid} on {dead.host})"
            )
            details.append(f"until then {_ranks(joined)} of {verdict.world_size} had joined")
        case "left":
            rank = verdict.culprits[0]
            what = f"rank {rank} was interrupted while the ranks were meeting at {where}"
            details.append(f"until then {_ranks(joined)} of {verdict.world_size} had joined")
        case "complete":
            what = counted
    return RendezvousError(
        what,
        joined=joined,
        missing=missing,
        expected=verdict.world_size,
        details=details,
        hint=hint,
    )


def died_before_the_store(dead: JoinedRank, me: JoinedRank, where: str) -> RendezvousError:
    """Return the error of a rank that has not reached the store when it sees that another died."""
    verdict = RendezvousVerdict(
        outcome="died",
        members=(me,),
        world_size=me.world_size,
        culprits=(dead.rank,),
        lost=(dead,),
    )
    return explain(verdict, me, where)


def describe_expected(missing: Iterable[int], plan: Mapping[int, str], here: str) -> list[str]:
    """Return one line per host where missing ranks were expected."""
    by_host: dict[str | None, list[int]] = {}
    for rank in missing:
        by_host.setdefault(plan.get(rank), []).append(rank)
    lines = []
    for host, ranks in by_host.items():
        verb = "is" if len(ranks) == 1 else "are"
        if host is None:
            lines.append(f"{_ranks(ranks)}: no host known")
        else:
            place = f"this host ({host})" if host == here else f"host {host}"
            lines.append(f"{_ranks(ranks)} {verb} expected on {place}")
    return _capped(lines)


def _describe_joined(members: Sequence[JoinedRank]) -> list[str]:
    by_host: dict[str, list[JoinedRank]] = {}
    for member in members:
        by_host.setdefault(member.host, []).append(member)
    return _capped(
        [
            f"joined from {host}: "
            + _ranks(m.rank for m in there)
            + (f" (pid {there[0].process.pid})" if len(there) == 1 else "")
            for host, there in by_host.items()
        ]
    )


def _sizes(members: Sequence[JoinedRank]) -> str:
    by_size: dict[int, list[int]] = {}
    for member in members:
        by_size.setdefault(member.world_size, []).append(member.rank)
    common = Counter(member.world_size for member in members).most_common()
    return ", ".join(f"{size} on {_ranks(by_size[size])}" for size, _ in common[:4])


def _ranks(ranks: Iterable[int]) -> str:
    ordered = sorted(set(ranks))
    return f"rank{'' if len(ordered) == 1 else 's'} {format_ranks(ordered) or 'none'}"


def _capped(lines: list[str], limit: int = 8) -> list[str]:
    if len(lines) <= limit:
        return lines
    return [*lines[:limit], f"and {len(lines) - limit} more hosts"]


def _member(fields: Mapping[str, object]) -> JoinedRank:
    process = fields["process"]
    assert isinstance(process, dict)  # we wrote it; a store is as trusted as the run's token
    return JoinedRank(**{**fields, "process": ProcessIdentity(**process)})  # type: ignore[arg-type]  # json has no types
