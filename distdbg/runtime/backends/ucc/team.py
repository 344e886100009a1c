"""A group's team in UCC. What its members exchange before they are connected goes through the group's store.

UCC asks for that exchange by callbacks, and waits in them without a limit: they look after the limit and the
peers, and make UCC return with an error.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Final

from distdbg.errors import DistBackendError, DistError, InternalError, OpTimeout
from distdbg.record.durations import duration_text
from distdbg.runtime.backends.ucc import library as ucc
from distdbg.runtime.backends.ucc.library import (
    BootstrapExchange,
    ContextParams,
    TeamParams,
    UccLibrary,
)

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store

#: Between two looks while the team is made or left.
_NAP_S: Final = 0.0005
#: How long the members may take to leave a team.
_LEAVE_S: Final = 2.0


class StoreExchange:
    """UCC's all-gather of a few bytes, through a store."""

    def __init__(
        self, store: Store, name: str, rank: int, size: int, watch: Callable[[], None]
    ) -> None:
        self._store, self._name, self._rank, self._size = store, name, rank, size
        #: Raises what must end the exchange, while the team is made.
        self.watch = watch
        #: The first error of a callback, which UCC cannot carry.
        self.error: BaseException | None = None
        self._count = 0
        self._open: dict[int, tuple[int, int]] = {}
        #: UCC keeps the functions: this has to live as long as the team.
        self.params = BootstrapExchange(
            ucc.AllgatherFunction(self._begin),
            ucc.RequestFunction(self._test),
            ucc.RequestFunction(self._free),
            None,
            size,
            rank,
        )

    def _begin(self, source: int, target: int, nbytes: int, _: Any, request: Any) -> int:
        try:
            self._count += 1
            mine = ctypes.string_at(source, nbytes)
            self._store.set(f"ucc/{self._name}/{self._count}/{self._rank}", mine)
            self._open[self._count] = (target, nbytes)
            request[0] = self._count
        except BaseException as error:  # noqa: BLE001 - raised by who called UCC
            return self._failed(error)
        return ucc.OK

    def _test(self, request: int) -> int:
        try:
            if request not in self._open:
                return ucc.OK
            keys = [f"ucc/{self._name}/{request}/{rank}" for rank in range(self._size)]
            if not self._store.check(keys):
                self.watch()
                time.sleep(_NAP_S)  # UCC may ask again at once, and without end
                return ucc.IN_PROGRESS
            target, nbytes = self._open.pop(request)
            found = self._store.multi_get(keys)
            if any(len(part) != nbytes for part in found):
                raise InternalError(f"the members of {self._name} brought UCC unlike sizes")
            ctypes.memmove(target, b"".join(found), nbytes * self._size)
        except BaseException as error:  # noqa: BLE001 - raised by who called UCC
            return self._failed(error)
        return ucc.OK

    def _free(self, request: int) -> int:
        self._open.pop(request, None)
        return ucc.OK

    def _failed(self, error: BaseException) -> int:
        self.error = self.error or error
        return ucc.TIMED_OUT if isinstance(error, OpTimeout) else ucc.NO_MESSAGE


class Team:
    """One rank's place in a group's team; made by all members."""

    def __init__(self, library: UccLibrary, group: ProcessGroup, store: Store) -> None:
        self.library: Final = library
        self._handle, self._context = c_void_p(), c_void_p()
        watch = _watcher(group)
        rank, size = group.rank(), group.size()
        self._exchanges = [
            StoreExchange(store, name, rank, size, watch) for name in ("context", "team")
        ]
        try:
            self._make(rank, size, watch)
        except DistError as error:
            found = next((x.error for x in self._exchanges if x.error is not None), error)
            if found is error:
                raise
            raise found from error
        for exchange in self._exchanges:
            exchange.watch = _nothing

    def progress(self) -> None:
        """Let UCC go on with all that is in flight."""
        self.library.call("ucc_context_progress", self._context)

    def begin(self, arguments: ucc.Arguments) -> Any:
        """Start a collective; its request."""
        request, call = c_void_p(), self.library.call
        with self.library.lock:
            call("ucc_collective_init", byref(arguments), byref(request), self._handle)
            try:
                call("ucc_collective_post", request)
            except DistBackendError:
                call("ucc_collective_finalize", request)
                raise
        return request

    def status(self, request: Any) -> int:
        """What UCC says of a request: the first word of it."""
        return int(ctypes.cast(request, ctypes.POINTER(ctypes.c_int))[0])

    def end(self, request: Any) -> None:
        """Free a request that has ended."""
        self.library.call("ucc_collective_finalize", request)

    def leave(self) -> None:
        """Free the team and its context; all members do, with nothing in flight."""
        until = time.monotonic() + _LEAVE_S
        while self.library.call("ucc_team_destroy", self._handle) == ucc.IN_PROGRESS:
            if time.monotonic() > until:
                return  # the others are gone; the memory is not worth a wait
            self.progress()
            time.sleep(_NAP_S)
        self.library.call("ucc_context_destroy", self._context)

    def _make(self, rank: int, size: int, watch: Callable[[], None]) -> None:
        call, (for_context, for_team) = self.library.call, self._exchanges
        config = c_void_p()
        call("ucc_context_config_read", self.library.handle, None, byref(config))
        params = ContextParams(mask=ContextParams.EXCHANGE, exchange=for_context.params)
        try:
            # Not with the lock: it waits for the others, who may be threads of this process.
            status = self.library.unlocked("ucc_context_create")(
                self.library.handle, byref(params), config, byref(self._context)
            )
        finally:
            self.library.release_config(config)
        if status < 0:
            raise self.library.error("ucc_context_create failed", status)
        team = TeamParams(
            mask=TeamParams.PLACE | TeamParams.PLACES | TeamParams.SIZE | TeamParams.EXCHANGE,
            place=rank,
            size=size,
            exchange=for_team.params,
        )
        call("ucc_team_create_post", byref(self._context), 1, byref(team), byref(self._handle))
        while call("ucc_team_create_test", self._handle) == ucc.IN_PROGRESS:
            self.progress()
            watch()
            time.sleep(_NAP_S)


def _nothing() -> None:
    """Ops have limits of their own."""


def _watcher(group: ProcessGroup) -> Callable[[], None]:
    """Raises when the job was ended, a member is gone, or the limit has passed."""
    clock = group.world.control
    began_ns = clock.now_ns()
    others = [rank for place, rank in enumerate(group.ranks) if place != group.rank()]

    def watch() -> None:
        clock.check(group=group.label)
        for rank, life in enumerate(group.members):
            if life.watched is not None and life.watched.is_dead():
                raise DistBackendError(  # `blamed` tells who it was and how it ended
                    f"group '{group.label}' was not made: rank {group.ranks[rank]} is gone"
                )
        waited_s = (clock.now_ns() - began_ns) / 1e9
        if waited_s >= group.timeout_s:
            raise OpTimeout(
                f"UCC made no team for group '{group.label}' within {duration_text(waited_s)}",
                missing=others,
                waited_s=waited_s,
                group=group.label,
            )

    return watch
