"""What is known of a finding beyond its kind: hints and reports choose by it, never by its words. Pure.

    Advice("see what repeats that call on rank 1", Trait.ONE_MORE_CALL)     a text that says what it is about
    finding.has(Trait.ONE_MORE_CALL)

The values are words of JSON. A launcher reads them without loading the diagnosis.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self


class Trait(StrEnum):
    """What is known of a finding, or of its advice, beside its words."""

    # what ranks of the cause do
    ASLEEP = "asleep"
    IN_LOCK = "in a lock"
    BUSY = "busy"
    JOINING = "joining"  # others wait for them in init_process_group
    NEVER_JOINED = "never joined"  # the others gave up there
    ONE_PLACE = "one place"  # all ranks of a deadlock wait at the line that the first line names
    OWN_ERROR = "own error"  # an exception of the program, of which only its line is known
    CRASHED = "crashed"  # native code, by SIGSEGV
    OF_PIPE = "of pipe"  # SIGPIPE, which Python ignores
    OF_TIMER = "of timer"  # the signal of a timer that the program has set
    SENDER_UNKNOWN = "sender unknown"  # SIGKILL from somewhere
    # how calls differ
    OTHER_LINES = "other lines"
    OTHER_ARRAY = "other array"  # another array came to the same line
    DTYPES = "dtypes"
    SIZES = "sizes"  # arrays, or roots, that one call was given
    MESSAGE = "message"  # the two sides of one
    TWO_THREADS = "two threads"  # of one rank, on one group: which comes first is chance
    GROUP_CHOICE = "group choice"  # one line took another group on some ranks
    GROUPS = "groups"  # not all ranks made the same groups
    ONE_MORE_CALL = "one more call"
    ENDED_WITHOUT = "ended without"  # ranks left before a call that the others made
    NO_MARKS = "no marks"  # marks or spans would show where the calls first differed
    SOME_ALONE = "some alone"  # made a group that all ranks have to make
    ONE_SIDE_FIRST = "one side first"  # one of them has to send while the other receives
    TAG_CHANGED = "tag changed"
    # what DDP says of a model
    UNUSED_PARAMETERS = "unused parameters"
    MODELS_DIFFER = "models differ"
    # what is wrong with init_process_group
    WORLD_SIZE = "world size"
    RANK_TWICE = "rank twice"
    # what the advice is worth
    HOLDS_ALWAYS = (
        "holds always"  # it says for what a rank waits at its line: however the job ended
    )
    ENDLESS_LOOP = "endless loop"
    SIGNAL_PLACE = "signal place"  # it names the line that sets the timer, or sends the signal
    ERROR_PLACE = "error place"  # it names a line, of the program as well, that is behind an error


class FactKind(StrEnum):
    """What a fact is, where somebody chooses by it."""

    WAIT = "wait"  # a rank waits in an op
    REASON = "reason"  # why a rank is asleep, blocked ...
    UNMATCHED = "unmatched message"  # a send and a recv that may be meant for each other
    NO_GRADIENT = "no gradient"  # parameters that a rank did not use


class StackRole(StrEnum):
    """What the lines of a stack are to its ranks."""

    IN_OP = "in an op"
    AFTER_OP = "after an op"  # its last one is over: where it was since then is not known
    SEEN = "seen"  # where an agent saw them, outside any op
    HANGS = "hangs"  # the same of a rank that may never go on: its callers say what it waits for
    OVER = "over"  # where they raised, or died
    LEFT_OUT = "left out"  # where they did not call what the others did
    OTHER_PEERS = (
        "other peers"  # where they made such a call for other ranks than the one that waits
    )
    EXTRA_CALL = "extra call"  # where they alone made a call
    THREAD = "thread"  # where another thread of theirs is, which may hold a lock

    @property
    def is_apart(self) -> bool:
        """Whether it is no place at which its ranks are now."""
        here = (
            StackRole.IN_OP,
            StackRole.AFTER_OP,
            StackRole.SEEN,
            StackRole.HANGS,
            StackRole.OVER,
        )
        return self not in here


class Advice(str):
    """One action, and what it is about."""

    __slots__ = ("of", "traits")

    traits: frozenset[Trait]
    of: str
    """The one place, or function, that it is about: 'halo.py:26'."""

    def __new__(cls, text: str, *traits: Trait, of: str = "") -> Self:
        advice = super().__new__(cls, text)
        advice.traits = frozenset(traits) if text else NO_TRAITS
        advice.of = of
        return advice


NO_TRAITS: Final[frozenset[Trait]] = frozenset()
#: Traits that are of the advice alone.
OF_ADVICE: Final = frozenset(
    (Trait.HOLDS_ALWAYS, Trait.ENDLESS_LOOP, Trait.SIGNAL_PLACE, Trait.ERROR_PLACE)
)


def subject_of(advice: str) -> str:
    """What it is `of`; '' for a plain text."""
    return advice.of if isinstance(advice, Advice) else ""


def traits_of(advice: str) -> frozenset[Trait]:
    """Return the traits of an Advice; none for a plain text."""
    return advice.traits if isinstance(advice, Advice) else NO_TRAITS
