"""A communicator for each group, made by its members when the first op needs it, or at once with device_id=.

Before NCCL is called the ranks tell rank 0 of the group who they are, through the group's store. It says
what NCCL would refuse later and in worse words (two ranks on one GPU, different versions), or hands out the
unique id. NCCL has no form of ncclCommInitRank that ends by itself when a rank never calls it, so it is
called on a thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from distdbg.check.foreign.hands import Hands
from distdbg.errors import DistBackendError, DistError, DistStoreError, OpTimeout, format_ranks
from distdbg.record.durations import duration_text
from distdbg.runtime.backends.nccl.failures import advice, is_nccls, to_error
from distdbg.runtime.backends.nccl.library import Library
from distdbg.runtime.backends.nccl.wire import version_text

if TYPE_CHECKING:
    from distdbg.runtime.group import ProcessGroup
    from distdbg.runtime.store import Store

_VERDICT = "nccl/id"


def make_communicator(library: Library, group: ProcessGroup, store: Store, device: int) -> Any:
    """The communicator whose ranks are those of the group, on this rank's device; all members call it."""
    what = f"the NCCL communicator of group '{group.label}'"
    began = time.monotonic()
    place = _place(library, group, device)
    store.set(f"nccl/rank/{group.rank()}", json.dumps(place))
    try:
        if group.rank() == 0:
            store.set(_VERDICT, _decide(library, group, store))
        store.wait([_VERDICT], timedelta(seconds=group.timeout_s))
    except DistStoreError as error:
        raise _late(what, group, time.monotonic() - began) from error
    verdict = json.loads(store.get(_VERDICT))
    if "error" in verdict:
        raise DistBackendError(verdict["error"], hint=verdict["hint"])
    unique_id = bytes.fromhex(verdict["id"])

    def open_it() -> Any:
        with library.cupy.cuda.Device(device):
            return library.open_communicator(group.size(), unique_id, group.rank())

    return carry_out(open_it, library, group, what)


def carry_out(make: Callable[[], Any], library: Library, group: ProcessGroup, what: str) -> Any:
    """Call what makes a communicator, until a member is gone or the group's timeout is over."""
    hands = Hands(group.label)
    clock = group.world.control
    began = time.monotonic()
    deadline_ns = clock.now_ns() + int(group.timeout_s * 1e9)

    def watch() -> None:
        clock.check(group=group.label)
        for rank, life in enumerate(group.members):
            if life.watched is not None and life.watched.is_dead():
                raise DistBackendError(f"{what} was not made: rank {group.ranks[rank]} is gone")
        if clock.now_ns() >= deadline_ns:
            raise _late(what, group, time.monotonic() - began)

    try:
        return hands.carry_out(make, watch)
    except DistError:
        raise
    except Exception as error:
        if not is_nccls(error, library):
            raise
        raise to_error(error, what, library) from error
    finally:
        hands.close(0.0)


def _place(library: Library, group: ProcessGroup, device: int) -> dict[str, Any]:
    host = group.members[group.rank()].process.boot_id if group.members else ""
    bus_id = library.cupy.cuda.Device(device).pci_bus_id
    return {"version": library.version, "host": host, "bus_id": bus_id, "device": device}


def _decide(library: Library, group: ProcessGroup, store: Store) -> str:
    keys = [f"nccl/rank/{rank}" for rank in range(group.size())]
    store.wait(keys, timedelta(seconds=group.timeout_s))
    wrong = what_is_wrong(group.label, group.ranks, [json.loads(x) for x in store.multi_get(keys)])
    if wrong is not None:
        return json.dumps({"error": wrong, "hint": advice(wrong)})
    return json.dumps({"id": library.new_id().hex()})


def what_is_wrong(label: str, names: Sequence[int], places: Sequence[dict[str, Any]]) -> str | None:
    """What NCCL would refuse, by what each rank says of itself; None where nothing is wrong."""
    versions = {place["version"]: name for name, place in zip(names, places, strict=True)}
    if len(versions) > 1:
        (one, first), (two, second) = list(versions.items())[:2]
        return (
            f"mismatched NCCL versions in group '{label}': {version_text(one)} on rank {first}, "
            f"{version_text(two)} on rank {second}"
        )
    seen: dict[tuple[str, str], int] = {}
    for name, place in zip(names, places, strict=True):
        other = seen.setdefault((place["host"], place["bus_id"]), name)
        if other != name:
            return (
                f"duplicate GPU in group '{label}': ranks {other} and {name} are both on "
                f"cuda:{place['device']} ({place['bus_id']})"
            )
    return None


def _late(what: str, group: ProcessGroup, waited_s: float) -> OpTimeout:
    others = [rank for rank in group.ranks if rank != group.ranks[group.rank()]]
    return OpTimeout(
        f"{what} was not made within {duration_text(waited_s)}: not all ranks came",
        missing=others,
        waited_s=waited_s,
        group=group.label,
        details=[f"its ranks are {format_ranks(group.ranks)}; all of them make it together"],
        hint="begin with a collective, or make it with the group: device_id=",
    )
