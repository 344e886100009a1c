"""Every exception of distdbg; the type says who must act.

    DistError(RuntimeError)          the root, as torch.distributed's
    |- UsageError(ValueError)        you called it wrongly, same on any machine        exit 2
    |- ConfigError                   bad variable, flag or file                        exit 2
    |- CollectiveError               .kind .seq .group .ranks                          exit 3
    |  |- MismatchError              .sides: ranks called different things            exit 3
    |  |  `- RankLeft(PeerLost)      a rank left, others still needed it               exit 3
    |  |- NonFiniteError             NaN or Inf in the input of .ranks                exit 3
    |  |- BufferChangedError         an array changed while an op owned it            exit 3
    |  |- DivergedError              .key .index .values: meant to be equal, is not   exit 3
    |  |- JobAborted                 .verdict .by: the agent or a person ended the job  exit 9
    |  |- DebuggerQuit               .site: a person quit the debugger of .ranks       exit 9
    |  `- OpTimeout(TimeoutError)    .missing .arrived .waited_s                       exit 4
    |- DistNetworkError              connection refused, reset, not authenticated      exit 5
    |  |- PeerLost                   .peer .how                                        exit 5
    |  `- LinkCorruptedError         .sender .receiver .link: it changed a message     exit 5
    |- DistStoreError                .keys .waited_s: timeout, unknown key, gone       exit 6
    |  `- QueueEmptyError            queue_pop(block=False) found nothing
    |- RendezvousError               .joined .expected .missing                        exit 6
    |  `- RendezvousClosedError       the job is over for all its launchers            exit 6
    |- DistBackendError              another library said no                           exit 8
    |- RecordError                   .path .offset: no record, other version, damaged  exit 7
    `- InternalError                 our bug                                           exit 70

Facts are keywords and become attributes; the text is rendered from them: a first line that stands
alone, indented details, at most one hint. All of them pickle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Self, TypedDict, Unpack

#: Chains may be made by hand, and be cycles.
_MOST_CAUSES: Final = 32


def format_error(error: BaseException) -> str:
    """'ValueError: no data', or 'MemoryError' for one that says nothing, as a traceback ends."""
    text = error_text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def first_cause(error: BaseException) -> str:
    """'OSError: no such shard': the first one in a chain of `raise ... from`; '' where there is none."""
    try:
        chain = [error]
        while (cause := chain[-1].__cause__) is not None and len(chain) < _MOST_CAUSES:
            if any(cause is one for one in chain):
                break
            chain.append(cause)
        if len(chain) == 1:
            return ""
        lines = (line.strip() for line in error_text(chain[-1]).splitlines())
        said = next(filter(None, lines), "")
        name = type(chain[-1]).__name__
        return f"{name}: {said}" if said else name
    except BaseException:  # noqa: BLE001 - the user's code; whoever asks is busy with an error already
        return ""


def error_text(error: BaseException) -> str:
    """What it says; in Python's words when it cannot, for whoever asks is busy with an error already."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's code, and what it raises is not what went wrong
        return "<exception str() failed>"


def format_ranks(ranks: Iterable[int], limit: int = 8) -> str:
    """Compress ranks to '0-3,7'; more than `limit` runs are cut and counted."""
    ordered = sorted(set(ranks))
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in runs]
    if len(texts) > limit:
        shown = sum(high - low + 1 for low, high in runs[:limit])
        return f"{','.join(texts[:limit])} and {len(ordered) - shown} more"
    return ",".join(texts)


class ErrorText(TypedDict, total=False):
    """Keywords that every error takes."""

    details: Sequence[str]
    hint: str | None


class CollectiveFacts(ErrorText, total=False):
    """Keywords that every CollectiveError takes."""

    kind: str
    seq: int
    group: str
    ranks: Iterable[int]


class DistError(RuntimeError):
    """The root of all errors raised on purpose by distdbg."""

    exit_code: ClassVar[int] = 70

    def __init__(self, what: str, *, details: Sequence[str] = (), hint: str | None = None) -> None:
        self.what = what
        self.details = list(details)
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what, *(f"  {line}" for line in self.details)]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only facts do not survive the default protocol, which calls cls(*args).
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[DistError], args: tuple[Any, ...], state: dict[str, Any]) -> DistError:
    error = cls(*args)  # every class here is content with its first line alone
    error.__dict__.update(state)
    return error


class UsageError(DistError, ValueError):
    """The call is wrong by itself; nothing was sent."""

    exit_code = 2

    def named(self, function: str) -> Self:
        """Begin the first line with the function that was called, unless it does already."""
        if not self.what.startswith(function):
            self.what = f"{function}: {self.what}"
            self.args = (self.what,)
        return self


class WrongTypeError(UsageError, TypeError):
    """An argument is of a type that cannot be used there."""


class UnknownGroupError(UsageError, KeyError):
    """This rank is not in the group, or it is none."""


class UnknownDimError(UsageError, KeyError, IndexError):
    """A device mesh has no such dimension."""


class ConfigError(DistError):
    """A variable, flag or file is wrong, or something is not installed."""

    exit_code = 2


class CollectiveError(DistError):
    """An op failed; says which one, and what state its group is left in."""

    exit_code = 3

    def __init__(
        self,
        what: str,
        *,
        kind: str = "",
        seq: int = -1,
        group: str = "",
        ranks: Iterable[int] = (),
        **text: Unpack[ErrorText],
    ) -> None:
        super().__init__(what, **text)
        self.kind = kind
        self.seq = seq
        self.group = group
        self.ranks = list(ranks)


class MismatchError(CollectiveError):
    """The ranks of a group called different things; no output was written.

    `ranks` are those that differ, or all where no side has a majority. `sides` has who called what, the
    largest side first, each a dict with `ranks`, `what`, `facts`, `sites` and `previous`.
    """

    def __init__(
        self, what: str, *, sides: Sequence[Mapping[str, Any]] = (), **op: Unpack[CollectiveFacts]
    ) -> None:
        super().__init__(what, **op)
        self.sides = [dict(side) for side in sides]


class NonFiniteError(CollectiveError):
    """NaN or Inf in an input, on the ranks named by `ranks`; no output was written."""


class BufferChangedError(CollectiveError):
    """An array was changed on `ranks` while an asynchronous op owned it."""


class DivergedError(CollectiveError):
    """What must be equal on all ranks is not; `ranks` are those that differ, or all without a majority.

    `key` names the first array that differs, `index` its first element that does, `values` that
    element by rank; where they are not known: empty, -1, empty.
    """

    def __init__(
        self,
        what: str,
        *,
        key: str = "",
        index: int = -1,
        values: Sequence[str] = (),
        **op: Unpack[CollectiveFacts],
    ) -> None:
        super().__init__(what, **op)
        self.key = key
        self.index = index
        self.values = list(values)


class JobAborted(CollectiveError):
    """Somebody ended the job: the agent with a proven verdict, or a person.

    `verdict` is the kind of finding ("dead rank", "deadlock", "stopped"), `by` who wrote it; `ranks`
    are those of the cause.
    """

    exit_code = 9

    def __init__(
        self, what: str, *, verdict: str = "", by: str = "", **op: Unpack[CollectiveFacts]
    ) -> None:
        super().__init__(what, **op)
        self.verdict = verdict
        self.by = by


class DebuggerQuit(CollectiveError):
    """Somebody quit the debugger of `ranks`, so those go no further; `site` is the line where."""

    exit_code = 9

    def __init__(self, what: str, *, site: str = "", **op: Unpack[CollectiveFacts]) -> None:
        super().__init__(what, **op)
        self.site = site


class OpTimeout(CollectiveError, TimeoutError):
    """An op did not finish by its deadline."""

    exit_code = 4

    def __init__(
        self,
        what: str,
        *,
        missing: Iterable[int] = (),
        arrived: Iterable[int] = (),
        waited_s: float = 0.0,
        **op: Unpack[CollectiveFacts],
    ) -> None:
        super().__init__(what, **op)
        self.missing = list(missing)
        self.arrived = list(arrived)
        self.waited_s = waited_s


class DistNetworkError(DistError):
    """A connection was refused, reset or not authenticated."""

    exit_code = 5


class PeerLost(DistNetworkError):
    """A rank that this one needs is gone: died, exited, or left the group."""

    def __init__(
        self,
        what: str,
        *,
        peer: int = -1,
        how: str = "",
        kind: str = "",
        seq: int = -1,
        group: str = "",
        **text: Unpack[ErrorText],
    ) -> None:
        super().__init__(what, **text)
        self.peer = peer
        self.how = how
        self.kind = kind
        self.seq = seq
        self.group = group


class LinkCorruptedError(DistNetworkError):
    """A message between hosts is not what was sent, as DISTDBG_LINK_CHECKSUM has found out.

    `sender` and `receiver` are the ranks, `link` has the addresses: "10.0.0.1:80 to 10.0.0.2:4711".
    """

    def __init__(
        self,
        what: str,
        *,
        sender: int = -1,
        receiver: int = -1,
        link: str = "",
        kind: str = "",
        seq: int = -1,
        group: str = "",
        **text: Unpack[ErrorText],
    ) -> None:
        super().__init__(what, **text)
        self.sender = sender
        self.receiver = receiver
        self.link = link
        self.kind = kind
        self.seq = seq
        self.group = group


class RankLeft(MismatchError, PeerLost):
    """A rank returned, raised or destroyed the group while others waited for it in an op.

    `peer` is that rank, `how` what it did: 'left (returned, exit code 0)', 'left (destroyed the group at
    train.py:88)', without a line where no line of the program did. A rank that was killed is a PeerLost and
    no RankLeft.
    """

    exit_code = 3

    def __init__(
        self,
        what: str,
        *,
        peer: int = -1,
        how: str = "",
        sides: Sequence[Mapping[str, Any]] = (),
        **op: Unpack[CollectiveFacts],
    ) -> None:
        super().__init__(what, sides=sides, **op)
        self.peer = peer
        self.how = how


class DistStoreError(DistError):
    """A store timed out, does not know the key, or is gone."""

    exit_code = 6

    def __init__(
        self,
        what: str,
        *,
        keys: Iterable[str] = (),
        waited_s: float = 0.0,
        **text: Unpack[ErrorText],
    ) -> None:
        super().__init__(what, **text)
        self.keys = list(keys)
        self.waited_s = waited_s


class QueueEmptyError(DistStoreError):
    """queue_pop(block=False) found the queue empty."""


class RendezvousError(DistError):
    """Not all ranks came together."""

    exit_code = 6

    def __init__(
        self,
        what: str,
        *,
        joined: Iterable[int] = (),
        missing: Iterable[int] = (),
        expected: int = -1,
        **text: Unpack[ErrorText],
    ) -> None:
        super().__init__(what, **text)
        self.joined = list(joined)
        self.missing = list(missing)
        self.expected = expected


class RendezvousClosedError(RendezvousError):
    """The job is over for all its launchers; a new one does not join it."""


class DistBackendError(DistError):
    """A library below (NCCL, MPI, a registered backend) failed."""

    exit_code = 8


class NotAuthenticatedError(DistNetworkError):
    """The two ends of a connection do not know the same token."""


class BackendMissingError(ConfigError, DistBackendError):
    """The backend cannot be used here: its library or its device is not there."""


class NoSharedMemoryError(DistBackendError):
    """Ranks that count as those of one host share no memory."""


class UnknownBackendError(UsageError, DistBackendError):
    """Nobody has registered a backend of this name."""


class RecordError(DistError):
    """A file is no record, was written by another version, or is damaged beyond reading."""

    exit_code = 7

    def __init__(
        self, what: str, *, path: str = "", offset: int = 0, **text: Unpack[ErrorText]
    ) -> None:
        super().__init__(what, **text)
        self.path = path
        self.offset = offset


class InternalError(DistError):
    """A bug of distdbg itself."""

    exit_code = 70
