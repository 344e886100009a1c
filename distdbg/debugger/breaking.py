"""BreakingEngine: asks the rules before each op of a group, and about its error.

It is put around the group's engine only while rules are armed that concern this rank. The op is recorded,
compared and sent by what is inside, so a rank that stops here has done nothing of it yet.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from distdbg.errors import DistError
from distdbg.ops.around import EngineAround, PendingAround
from distdbg.ops.call import Call
from distdbg.ops.engine import Engine, Pending

if TYPE_CHECKING:
    from distdbg.debugger.op_facts import CallFacts
    from distdbg.runtime.groups.group import ProcessGroup


class RankRules(Protocol):
    """The rules of the rank, as an op asks them (breaker.py)."""

    def look_at(
        self, group: ProcessGroup, call: Call, seq: int
    ) -> AbstractContextManager[CallFacts]:
        """Stop before the op, if a rule says so. What it returns is a block that carries out the op."""
        ...

    def stop_at_error(self, facts: CallFacts, error: DistError) -> None:
        """Stop at the error of an op before its program gets it, if a rule says so."""
        ...


class BreakingEngine(EngineAround):
    """Implements Engine around another one; see distdbg/ops/engine.py."""

    def __init__(self, inner: Engine, group: ProcessGroup, rules: RankRules) -> None:
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

    def __init__(self, inner: Pending, facts: CallFacts, rules: RankRules) -> None:
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
