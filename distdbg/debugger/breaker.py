"""Breaker: the armed breakpoint rules of one rank, and the ops that they stop.

Rules come from DISTDBG_BREAK, until the rank ends, and from the control page, which has new ones
whenever its generation changes. Only rules that concern this rank count; while there is one, the
engines of all groups of the rank are wrapped, and with the last of them they are unwrapped. The op is
recorded, compared and sent by what is inside, so a rank that stops before it has done nothing of it yet.

A rule counts for itself (`skip`, `hits`), and keeps its counts when the page is written anew and still has
it. An op stops once, however many rules fit it. Nothing stops at the prompt of a debugger.
"""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING

from distdbg import config
from distdbg.control.break_fields import StopCondition
from distdbg.control.breakpoints import Rule, parse_rules, rules_from_page
from distdbg.debugger.frames import user_frame
from distdbg.debugger.nan import describe_nonfinite
from distdbg.debugger.on_signal import SignalStop
from distdbg.debugger.op_facts import CallFacts
from distdbg.debugger.stopping import is_at_prompt, stop_or_quit
from distdbg.errors import (
    DistError,
    JobAborted,
    MismatchError,
    NonFiniteError,
    OpTimeout,
    RankLeft,
)
from distdbg.ops.around import EngineAround, PendingAround
from distdbg.ops.call import Call
from distdbg.ops.engine import Engine, Pending
from distdbg.runtime.backends.tracing import TracingEngine, untraced

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.process.world import World

#: What makes a rule the same after the page was written anew: whose, its number, its text.
_Key = tuple[bool, int, str]


class ArmedRule:
    """A rule, and how often it would have stopped so far."""

    def __init__(self, rule: Rule, is_own: bool) -> None:
        self.rule = rule
        #: Whether it is of DISTDBG_BREAK.
        self.is_own = is_own
        self._fitted = 0

    @property
    def key(self) -> _Key:
        return self.is_own, self.rule.id, self.rule.text

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"{'DISTDBG_BREAK' if self.is_own else 'breakpoint'} {self.rule.id}"

    def counts(self) -> bool:
        """Count one time that it fits: whether it stops this time."""
        self._fitted += 1
        hit = self._fitted - self.rule.skip
        return hit > 0 and (self.rule.hits is None or hit <= self.rule.hits)


class Breaker:
    """Implements Stops; see distdbg/runtime/process/debugger_seam.py."""

    def __init__(self, world: World, rank: int) -> None:
        self._world = world
        self._rank = rank
        self._lock = threading.Lock()  # protects the armed rules and the wrapping
        self._local = _Local()
        self._generation = -1
        self._signal = SignalStop(self._stop_at_signal, rank)
        own = parse_rules(str(config.read_setting("DISTDBG_BREAK") or ""))
        self._own = tuple(ArmedRule(rule, True) for rule in own if rule.concerns(rank))
        self._from_page: tuple[ArmedRule, ...] = ()
        #: All rules that concern this rank; replaced as a whole.
        self.armed: tuple[ArmedRule, ...] = ()
        self.refresh()

    # ------------------------------------------------------------------------------- Stops

    def on_group(self, group: ProcessGroup) -> None:
        """Look at the ops of a group that was just made, too."""
        with self._lock:
            if self.armed:
                self._wrap(group)

    def through(self, group: ProcessGroup, engine: Engine) -> Engine:
        """Read the rules anew; carry out the op at hand through what this returns."""
        self.refresh()
        return BreakingEngine(engine, group, self) if self.armed else engine

    def close(self) -> None:
        """The rank has no groups any more."""
        with self._lock:
            self._arm(())

    def refresh(self) -> None:
        """Take over what the page says now, if it is something new."""
        with self._lock:
            generation, text = self._world.control.rules()
            if generation % 2 == 0 and generation != self._generation:
                self._generation = generation
                known = {armed.key: armed for armed in self._from_page}
                rules = [each for each in rules_from_page(text) if each.concerns(self._rank)]
                fresh = [ArmedRule(rule, False) for rule in rules]
                self._from_page = tuple(known.get(armed.key, armed) for armed in fresh)
            self._arm((*self._own, *self._from_page))

    def _arm(self, armed: tuple[ArmedRule, ...]) -> None:
        was_armed, self.armed = bool(self.armed), armed
        self._signal.listen(any(StopCondition.SIGNAL in each.rule.on for each in armed))
        if was_armed != bool(armed):
            for group in list(self._world.groups.values()):
                (self._wrap if armed else _unwrap)(group)

    def _wrap(self, group: ProcessGroup) -> None:
        # Inside of the lines of the log, which are put around and taken away by others.
        engine = untraced(group.engine)
        if not isinstance(engine, BreakingEngine):
            _put(group, BreakingEngine(engine, group, self))

    # -------------------------------------------------------------------------------- ops

    def look_at(self, group: ProcessGroup, call: Call, seq: int) -> OpUnderRules:
        """Stop before the op, if a rule says so. What it returns is a block that carries out the op.

        An op may find other breakpoints armed once it is in the block, and is then looked at again: by
        the rules that are new.
        """
        if self._world.control.break_generation != self._generation:
            self.refresh()  # before what is inside notices: a rule that was cleared stops no more
        facts = CallFacts(group, call, seq)
        armed = self.armed
        if not is_at_prompt():
            self._stop_before(facts, call, group.rank(), armed)
        return OpUnderRules(facts, frozenset([each.key for each in armed]), self._local)

    def _stop_before(
        self, facts: CallFacts, call: Call, group_rank: int, armed: tuple[ArmedRule, ...]
    ) -> None:
        why = ""
        nonfinite: str | None = None
        for each in armed:
            on = each.rule.on
            if (
                not (StopCondition.OP in on or StopCondition.NAN in on)
                or each.key in self._local.looked
            ):
                continue
            if not each.rule.fits(facts):
                continue
            found = ""
            if StopCondition.OP not in on:
                if nonfinite is None:
                    nonfinite = describe_nonfinite(call, group_rank)
                if not nonfinite:
                    continue
                found = f": {nonfinite}"
            if each.counts() and not why:
                why = f"before {facts.words}{found} ({each.label})"
        if why:
            stop_or_quit(self._world, why)

    def stop_at_error(self, facts: CallFacts, error: DistError) -> None:
        """Stop at the error of an op before its program gets it, if a rule says so; once for each."""
        if is_at_prompt() or self._local.has_seen(error) or _is_background():
            return
        self._local.see(error)
        why = ""
        for each in self.armed:
            fits = any(_is_at(on, error) for on in each.rule.on) and each.rule.fits(facts)
            if fits and each.counts() and not why:
                failed = f"which failed with {type(error).__name__}"
                why = f"at {facts.words}, {failed} ({each.label})"
        if why:
            # The line that called the op runs still: it can be looked into, and stepped from.
            frame = user_frame(sys._getframe(1))
            stop_or_quit(self._world, why, frame=frame, error=error)

    def _stop_at_signal(self) -> None:
        if is_at_prompt():
            return
        fitting = [each for each in self.armed if StopCondition.SIGNAL in each.rule.on]
        stopping = [each for each in fitting if each.counts()]
        if stopping:
            stop_or_quit(self._world, f"at SIGUSR1 ({stopping[0].label})")


class OpUnderRules:
    """While an op is carried out that the rules with these keys have looked at.

    No generator: who stops before the op would find contextlib where it looks for the user's line.
    """

    __slots__ = ("_before", "_keys", "_local", "facts")

    def __init__(self, facts: CallFacts, keys: frozenset[_Key], local: _Local) -> None:
        self.facts = facts
        self._keys = keys
        self._local = local
        self._before: frozenset[_Key] = frozenset()

    def __enter__(self) -> CallFacts:
        self._before = self._local.looked
        self._local.looked = self._before | self._keys
        return self.facts

    def __exit__(self, *_: object) -> None:
        self._local.looked = self._before


class _Local(threading.local):
    """What one thread is in."""

    def __init__(self) -> None:
        #: The rules that have looked at the op that this thread is carrying out.
        self.looked: frozenset[_Key] = frozenset()
        self._seen: weakref.ref[DistError] | None = None

    def has_seen(self, error: DistError) -> bool:
        return self._seen is not None and self._seen() is error

    def see(self, error: DistError) -> None:
        self._seen = weakref.ref(error)


def _is_at(on: StopCondition, error: DistError) -> bool:
    """Whether that is what this error is; the end of the job is nobody's to look into."""
    match on:
        case StopCondition.MISMATCH:
            return isinstance(error, MismatchError) and not isinstance(error, RankLeft)
        case StopCondition.TIMEOUT:
            return isinstance(error, OpTimeout)
        case StopCondition.NAN:
            return isinstance(error, NonFiniteError)
        case StopCondition.EXCEPTION:
            return not isinstance(error, JobAborted)
    return False


def _is_background() -> bool:
    """Whether this thread looks after ops for others: its errors come to nobody's code yet."""
    return threading.current_thread().name.startswith("distdbg-")


def _unwrap(group: ProcessGroup) -> None:
    engine = untraced(group.engine)
    if isinstance(engine, BreakingEngine):
        _put(group, engine.inner)


def _put(group: ProcessGroup, engine: Engine) -> None:
    outer = group.engine
    if isinstance(outer, TracingEngine):
        outer.inner = engine
    else:
        group.engine = engine


class BreakingEngine(EngineAround):
    """Implements Engine around another one; see distdbg/ops/engine.py."""

    def __init__(self, inner: Engine, group: ProcessGroup, rules: Breaker) -> None:
        self.inner = inner
        self._group = group
        self._rules = rules
        #: Ops so far, for an engine that does not count them.
        self._count = 0

    def run(self, call: Call) -> int:
        """Carry out `call`, unless the user quits before it."""
        with self._rules.look_at(self._group, call, self._next_seq(call)) as facts:
            try:
                return self.inner.run(call)
            except DistError as error:
                self._rules.stop_at_error(facts, error)
                raise

    def submit(self, call: Call) -> Pending:
        """Start `call`, unless the user quits before it."""
        with self._rules.look_at(self._group, call, self._next_seq(call)) as facts:
            try:
                return BreakingPending(self.inner.submit(call), facts, self._rules)
            except DistError as error:
                self._rules.stop_at_error(facts, error)
                raise

    def _next_seq(self, call: Call) -> int:
        """The number that the op will have; counted from here on where the engine does not say."""
        tell = getattr(self.inner, "next_seq", None)
        if tell is not None:
            return int(tell(call))
        self._count += 1
        return self._count


class BreakingPending(PendingAround):
    """Implements Pending around another one: its error is asked about where it is waited for."""

    __slots__ = ("_facts", "_rules")

    def __init__(self, inner: Pending, facts: CallFacts, rules: Breaker) -> None:
        self.inner = inner
        self._facts = facts
        self._rules = rules

    def wait(self, deadline_ns: int) -> None:
        try:
            self.inner.wait(deadline_ns)
        except DistError as error:
            self._rules.stop_at_error(self._facts, error)
            raise

    def note_end(self, error: BaseException | None = None) -> None:
        """Hand it on: the backend says that the op has ended."""
        note = getattr(self.inner, "note_end", None)
        if note is not None:
            note(error)
