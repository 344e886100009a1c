"""What functions take as `group=`: a group, None for the default one, or GroupMember.NON_GROUP_MEMBER."""

from __future__ import annotations

from distdbg.errors import UsageError, WrongTypeError, format_ranks
from distdbg.ops.sites import call_site, warn_at_call_site
from distdbg.record.known_marks import NOT_A_MEMBER
from distdbg.runtime.api.integers import to_int
from distdbg.runtime.api.marks import mark
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.process.rank_context import not_initialized
from distdbg.runtime.process.world import current, current_world


class NonGroupMember(int):
    """What new_group returns to ranks outside the group; equal to torch's -100."""

    def __repr__(self) -> str:
        return "GroupMember.NON_GROUP_MEMBER"


class _WorldAttribute(type):
    """Gives `group.WORLD` and `GroupMember.WORLD`: the current default group, or None."""

    @property
    def WORLD(cls) -> ProcessGroup | None:
        return current().default

    @WORLD.setter
    def WORLD(cls, value: ProcessGroup | None) -> None:
        current().default = value


class group(metaclass=_WorldAttribute):
    """`group.WORLD` is the default group."""


class GroupMember(metaclass=_WorldAttribute):
    """`WORLD` is the default group; NON_GROUP_MEMBER stands for a group one is not in."""

    NON_GROUP_MEMBER = NonGroupMember(-100)


#: What `group=` takes: a group, None for the default one, or NON_GROUP_MEMBER.
Group = ProcessGroup | NonGroupMember | int | None


def resolve(group: Group, what: str) -> ProcessGroup | None:
    """Return the group that is meant; None (and a warning) when this rank is not in it."""
    if group is None:
        default = current_world.get().default
        if default is None:
            raise not_initialized()
        return default
    if isinstance(group, ProcessGroup):
        return group
    if group == GroupMember.NON_GROUP_MEMBER:
        default = current_world.get().default
        note_no_member(what)
        who = f"rank {default.rank()}" if default is not None else "this process"
        warn_at_call_site(
            f"{what} was called on {who}, which is not in the given group; nothing is done",
            UserWarning,
        )
        return None
    raise WrongTypeError(
        f"{what}: group must be a ProcessGroup or None, not {type(group).__name__}"
    )


def note_no_member(what: str) -> None:
    """For the record: a call on a group that this rank is not in; its members may wait for it."""
    mark(f"{NOT_A_MEMBER}{what} at {call_site()}")


def to_group_rank(
    group: ProcessGroup,
    what: str,
    argument: str,
    global_rank: int | None,
    group_rank: int | None,
    default: int | None = None,
) -> int:
    """Return the group rank meant by exactly one of src= and group_src= (or dst=, ...)."""
    if group_rank is not None:
        if global_rank is not None:
            raise UsageError(f"{what}: give {argument} or group_{argument}, not both")
        group_rank = to_int(what, f"group_{argument}", group_rank)
        if not 0 <= group_rank < group.size():
            raise UsageError(
                f"{what}: group_{argument}={group_rank} is not in group {group.label!r} "
                f"of {group.size()} ranks"
            )
        return group_rank
    if global_rank is None:
        if default is None:
            raise UsageError(f"{what}: give {argument} or group_{argument}")
        global_rank = default
    global_rank = to_int(what, argument, global_rank)
    try:
        return group.group_ranks[global_rank]
    except KeyError:
        raise UsageError(
            f"{what}: {argument}={global_rank} is not in group {group.label!r} "
            f"(ranks {format_ranks(group.ranks)})",
            hint=f"{argument} is a global rank; to give a rank within the group, pass group_{argument}",
        ) from None
