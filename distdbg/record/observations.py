"""What a host's agent saw of its ranks: `seen-<host>.jsonl` in the run folder, one line per change.

A record cannot say that its rank is stopped, or keeps the GIL. A later diagnosis needs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from distdbg.record.line_file import append_line, known_facts, read_each
from distdbg.record.rank_state import RankState


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One rank has entered a state. Times are monotonic, of its host."""

    rank: int
    pid: int
    host: str
    state: RankState
    since_ns: int
    why: str = ""
    site: str = ""
    """Where it was in its own code: 'data.py:12 (load)'."""
    stack: tuple[tuple[str, int, str], ...] = ()
    """File, line, function; the innermost first."""
    longest_gap_ns: int = 0
    """The longest time between two ops that it had come out of before."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """ValueError for what is none."""
        facts = known_facts(cls, text)
        try:
            facts["state"] = RankState(facts["state"])
            frames = facts.pop("stack", ())
            facts["stack"] = tuple((str(f), int(line), str(g)) for f, line, g in frames)
            return cls(**facts)
        except (KeyError, TypeError) as error:
            raise ValueError(str(error)) from None


#: What a rank does that the sentence about its place begins with; of others the place alone is known.
_DOING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "asleep": "asleep",
        "busy": "busy",
        "holds the GIL": "holding the GIL",
        "blocked in I/O": "blocked in I/O",
        "stopped": "stopped",
        "traced": "stopped by a debugger",
        "in the debugger": "in the debugger",
    }
)


#: How the reason of a rank in a lock begins.
IN_LOCK: Final = "blocked on a lock"
#: ... and goes on where a library has taken it: 'blocked on a lock, in wait() of threading.py'.
IN_LIBRARY: Final = "() of "
#: The reason of a rank that another process keeps from a file.
FILE_LOCK: Final = "waiting for a file lock"
#: ... where the one that holds it is a rank of this host.
_HOLDER: Final = re.compile(rf"{FILE_LOCK} that rank (\d{{1,9}}) holds")
#: The reason of a rank that reads from a connection: 'rank 0 (127.0.0.1:38211)' is to send.
DATA_FROM: Final = "waiting for data from "
#: ... whose process does not know of the connection yet.
NOT_ACCEPTED: Final = ", which has not accepted the connection"
#: The reason of a rank that waits in `get` or `wait` of a store.
STORE_KEY: Final = "waits for a key of the store that no rank has set"
#: Reasons that say more than that a rank is asleep, and for whom it waits.
FOR_WHOM: Final = (FILE_LOCK, DATA_FROM)
#: The reason of a rank that waits for a child process: '47 (sort), which sleeps (pipe_read)'.
CHILD_END: Final = "waits for the end of its child process "
#: ... of one that cannot end, since its output goes nowhere.
UNREAD: Final = "writes to a pipe that the rank does not read"
#: In the reason of a rank that waits for its workers.
LOCKED_CHILDREN: Final = ", whose processes all wait for a lock"
#: In the reason of a rank that sleeps: behind it comes a child process of it that has died.
DEAD_CHILD: Final = "; its child process "
_CRASHED: Final = re.compile(r"was killed by SIG(SEGV|BUS|ABRT|ILL|FPE|KILL|SYS)$")
WAITING_FOR_LOCK: Final = "waiting for a lock"
#: In the reason of a rank in a lock: behind it comes a thread that may hold the lock, and where that is.
OTHER_THREAD: Final = "; its thread "

#: ... or this, where it is the only thread of Python.
NO_OTHER_THREAD: Final = "; no other Python thread of it can end that wait"

#: The reason of a rank that is stopped by a line of its own.
STOPPED_ITSELF: Final = "by a signal that it sent itself"


def others_of(seen: Observation) -> str:
    """'; its thread 'saver' is at b.py:3 (save)', '; its child process 47 (x) was killed by SIGSEGV'; ''."""
    begins = [at for word in (OTHER_THREAD, DEAD_CHILD) if (at := seen.why.find(word)) >= 0]
    return seen.why[min(begins) :] if begins else ""


def crashed_child_in(why: str) -> str:
    """The same where nobody has ended it on purpose: SIGTERM, or an exit code, may be meant."""
    child = dead_child_in(why)
    return child if _CRASHED.search(child) else ""


def dead_child_in(why: str) -> str:
    """'47 (loader) was killed by SIGSEGV'; '' where no child process has died."""
    return why.partition(DEAD_CHILD)[2]


def lock_holder_in(why: str) -> int | None:
    """The rank that holds the file lock which this one waits for; None: there is none, or it is no rank."""
    found = _HOLDER.match(why)
    return int(found[1]) if found else None


def threads_in(why: str) -> list[tuple[str, str]]:
    """The name of each such thread, and where it is: [("'saver'", 'b.py:3 (save)')]."""
    reported = (
        one.partition(" is at ") for one in why.partition(DEAD_CHILD)[0].split(OTHER_THREAD)[1:]
    )
    return [(name, site.partition(", in ")[0]) for name, found, site in reported if found]


def waits_for_lock(state: RankState, why: str) -> bool:
    """Whether it waits for a lock at a line of its own: not in a queue, an event, or a library's call."""
    where = why.partition(OTHER_THREAD)[0]
    return state is RankState.ASLEEP and where.startswith(IN_LOCK) and IN_LIBRARY not in where


def nobody_wakes_it(why: str) -> bool:
    """Whether it waits without a limit for what another thread of Python would do, and has none."""
    return NO_OTHER_THREAD in why and "time limit" not in why and "tried again" not in why


def never_ends(why: str) -> bool:
    """Whether what it waits for cannot come: its process is dead or blocked, or no thread would do it."""
    return bool(crashed_child_in(why)) or UNREAD in why or nobody_wakes_it(why)


def names_a_process(why: str) -> bool:
    """Whether it says which process is in the way: who holds a file lock, or which child has died."""
    return why.startswith(FILE_LOCK) or DEAD_CHILD in why


def phrase_of(seen: Observation) -> str:
    """'asleep in load() at slp.py:7'; '' where neither state nor place say anything."""
    doing = _DOING.get(seen.state.value) or _DOING.get(seen.why) or ""
    if waits_for_lock(seen.state, seen.why):
        doing = WAITING_FOR_LOCK
    place = _place_of(seen.site)
    if seen.why.startswith(FOR_WHOM):  # who that is comes behind the place, which is another rank's
        return ", ".join(filter(None, (place, seen.why.partition(";")[0])))
    if not doing:
        return place
    return f"{doing} {place}" if place else doing


def phrase_of_rank(folder: Path | str, rank: int, since_ns: int) -> str | None:
    """The phrase of the last sighting of a rank; None: nobody saw it, or not since that moment."""
    last = None
    for seen in read_sightings(Path(folder)):
        if seen.rank == rank:
            last = seen
    if last is None or last.since_ns < since_ns:
        return None  # it has made progress since
    return phrase_of(last) or None


def _place_of(site: str) -> str:
    """'load.py:4 (load)' as 'in load() at load.py:4'."""
    where, bracket, function = site.partition(" (")
    if not bracket:
        return f"at {site}" if site else ""
    name = function.removesuffix(")")
    return f"at {where}" if name.startswith("<") else f"in {name}() at {where}"


def sightings_name(host: str) -> str:
    """The file of a host in the run folder."""
    return f"seen-{host}.jsonl"


def write_sighting(folder: Path, seen: Observation) -> None:
    """Append one line. OSError when it cannot be."""
    append_line(folder / sightings_name(seen.host), seen.to_json())


def read_sightings(folder: Path) -> Iterator[Observation]:
    """In the order in which each host wrote them; what is no such line is passed over."""
    return read_each(folder, "seen-*.jsonl", Observation.from_json)
