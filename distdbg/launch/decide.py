"""What a launcher does next. Pure: what it knows goes in, one decision comes out.

The first line that fits counts:

    a signal came                                              leave
    a rank failed here, or another launcher noted a failure    restart, which uses one up; or failed
    the job was closed as failed                               failed
    the job was closed as succeeded                            well, once the ranks here are done
    the ranks of all launchers ended well                      well
    the others considered this launcher dead                   restart; or failed
    another launcher has begun the next round                  restart
    a launcher is gone, or going, before its ranks ended well  restart; or failed
    launchers wait to join, and no launcher is done            restart
    the ranks here ended well, the others take too long        leave well
    anything else                                              go on

A failure uses up a restart on all launchers, whoever's ranks failed, and is final without one left.
Launchers that come and go use up none, and are final only where they cannot be replaced. Once the ranks
of one launcher are done, newcomers are too late: all would restart for them. A restart that
meets a closed job is a failure, which the rendezvous reports.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from distdbg.launch.rendezvous.notes import LauncherNote
from distdbg.launch.rendezvous.round import Closing


class LauncherAction(enum.Enum):
    GO_ON = "go on"
    RESTART = "stop the ranks and restart them in the next round"
    END_WELL = "close the job as succeeded"
    END_FAILED = "stop the ranks and close the job as failed"
    LEAVE_WELL = "leave; the ranks of other launchers continue"
    LEAVE = "stop the ranks and leave, as a signal asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a launcher knows while a round runs."""

    name: str
    """Its own, as in the round."""
    nodes: tuple[str, ...]
    """All launchers of the round, this one too."""
    running: int
    """How many ranks run here."""
    failure: str | None = None
    """What failed first here, in one line."""
    restarts_left: int = 0
    notes: Mapping[str, LauncherNote] = field(default_factory=dict)
    """The notes of launchers whose ranks have ended, by name."""
    waiting_count: int = 0
    next_has_begun: bool = False
    lost: tuple[str, ...] = ()
    closing: Closing | None = None
    signal: str | None = None
    can_replace: bool = True
    """Whether the round can do with other launchers: not so for the static kind."""
    has_waited_enough: bool = False
    """Whether the others had their time to end after the ranks here did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, why in half a sentence, and what it costs."""

    action: LauncherAction
    reason: str = ""
    uses_restart: bool = False


_GO_ON = Decision(action=LauncherAction.GO_ON)


def decide(now: Situation) -> Decision:
    """Say what to do next."""
    if now.signal is not None:
        return Decision(action=LauncherAction.LEAVE, reason=f"{now.signal} was received")
    if (failure := _find_failure(now)) is not None:
        return _after_failure(now, failure)
    if now.closing is not None:
        return _after_closing(now, now.closing)
    unfinished = [name for name in now.nodes if not _is_done(now, name)]
    if not unfinished:
        return Decision(action=LauncherAction.END_WELL, reason="all ranks succeeded")
    if now.name in now.lost:
        return _without(now, "the other launchers considered this one dead")
    gone = [name for name in unfinished if name in now.lost or _is_leaving(now, name)]
    gone_words = _say_gone(now, gone)
    if now.next_has_begun:
        reason = gone_words if gone else "another launcher has begun the next round"
        return Decision(action=LauncherAction.RESTART, reason=reason)
    if gone:
        return _without(now, gone_words)
    if now.waiting_count > 0 and len(unfinished) == len(now.nodes):
        verb = "waits" if now.waiting_count == 1 else "wait"
        who = f"{now.waiting_count} {_count('launcher', now.waiting_count)}"
        return Decision(action=LauncherAction.RESTART, reason=f"{who} {verb} to join")
    if now.running == 0 and now.has_waited_enough:
        return Decision(
            action=LauncherAction.LEAVE_WELL,
            reason=f"the ranks here succeeded; not waiting any longer for {', '.join(unfinished[:8])}",
        )
    return _GO_ON


def _find_failure(now: Situation) -> str | None:
    """What failed here, or else on the first launcher that noted a failure."""
    if now.failure is not None:
        return now.failure
    for name in now.nodes:
        note = now.notes.get(name)
        if note is not None and note.kind == "failed" and name != now.name:
            return note.what or f"a rank of launcher {name} failed"
    return None


def _after_failure(now: Situation, failure: str) -> Decision:
    if now.restarts_left > 0 and now.closing is None:
        return Decision(action=LauncherAction.RESTART, reason=failure, uses_restart=True)
    return Decision(action=LauncherAction.END_FAILED, reason=failure)


def _after_closing(now: Situation, closing: Closing) -> Decision:
    """Closed as succeeded means that all are done: notes and launchers may be gone with the store by now."""
    if not closing.is_well:
        return Decision(action=LauncherAction.END_FAILED, reason=closing.reason)
    if now.running == 0:
        return Decision(action=LauncherAction.END_WELL, reason=closing.reason)
    return _GO_ON


def _without(now: Situation, reason: str) -> Decision:
    action = LauncherAction.RESTART if now.can_replace else LauncherAction.END_FAILED
    return Decision(action=action, reason=reason)


def _is_done(now: Situation, name: str) -> bool:
    """Whether the ranks of a launcher ended well."""
    if name == now.name:
        return now.running == 0
    note = now.notes.get(name)
    return note is not None and note.kind == "finished"


def _is_leaving(now: Situation, name: str) -> bool:
    note = now.notes.get(name)
    return note is not None and note.kind == "leaving" and name != now.name


def _say_gone(now: Situation, gone: list[str]) -> str:
    verb = "is" if len(gone) == 1 else "are"
    words = f"{_count('launcher', len(gone))} {', '.join(gone[:8])} {verb} gone"
    whys = [now.notes[name].what for name in gone if _is_leaving(now, name)]
    return f"{words}: {whys[0]}" if len(gone) == 1 and whys and whys[0] else words


def _count(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"
