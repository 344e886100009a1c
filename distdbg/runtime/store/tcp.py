"""TCPStore: a store served by one rank over TCP. The server and the client's I/O are native.

This file knows what requests mean to users: arguments, timeouts and errors. The numbers of ops and
statuses are those of native/core/store_wire.hpp.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Protocol, Self

from distdbg.control.clock import FREE_CLOCK
from distdbg.control.dialled_address import derive_token
from distdbg.control.words import to_error
from distdbg.errors import (
    DistStoreError,
    InternalError,
    QueueEmptyError,
    UsageError,
    WrongTypeError,
)
from distdbg.native import Control, NativeError, StoreClient
from distdbg.record.durations import duration_text
from distdbg.runtime.api.integers import to_int
from distdbg.runtime.process.rank_context import current_context
from distdbg.runtime.rendezvous.token import run_token
from distdbg.runtime.store.base import (
    Store,
    Value,
    check_amount,
    check_key,
    check_keys,
    check_pairs,
    missing_keys,
    to_bytes,
)
from distdbg.runtime.store.listen import hidden_address
from distdbg.runtime.store.server import KEY_NBYTES, VALUE_NBYTES, SharedServer, serve
from distdbg.runtime.store.table import not_a_number, out_of_range
from distdbg.runtime.store.tcp_errors import call_error, connect_error, who_listens
from distdbg.runtime.store.timeouts import (
    NO_DEADLINE_NS,
    Timeout,
    deadline_after,
    to_ns,
    to_seconds,
)
from distdbg.secure.guard import Guard, open_guard

# The server itself ends waits in time; this much later it is taken for dead.
_GRACE_S = 5.0
#: The server may round a timeout down.
_EARLY_S = 0.02
#: How long the server is asked to wait at least, while the job is paused.
_LOOK_S = 0.1
#: How long a server is dialled before it is looked whether there will be one.
_DIAL_NS = 250_000_000
_FIELD_OVERHEAD_NBYTES = 8  # the lengths of a key and a value


class StoreRequest(IntEnum):
    """What a request asks for."""

    SET = 1
    GET = 2
    ADD = 3
    APPEND = 4
    CHECK = 5
    COMPARE_SET = 6
    DELETE_KEY = 7
    LIST_KEYS = 8
    NUM_KEYS = 9
    WAIT = 10
    QUEUE_PUSH = 11
    QUEUE_POP = 12
    QUEUE_LEN = 13
    JOIN = 14
    AWAIT_JOINED = 15


class StoreStatus(IntEnum):
    """How the server answers."""

    OK = 0
    TIMEOUT = 1
    EMPTY = 2
    NOT_A_NUMBER = 3
    OVERFLOW = 4
    TOO_LARGE = 5
    BAD_REQUEST = 6


class _Client(Protocol):
    """What is used of the native StoreClient."""

    @property
    def value_nbytes(self) -> int: ...

    def connect(
        self, deadline_ns: int, tries_until_ns: int, control: Control | None, ends_with_job: bool
    ) -> bool: ...

    def call(
        self,
        op: int,
        number: int,
        fields: tuple[bytes, ...],
        deadline_ns: int,
        control: Control | None,
        ends_with_job: bool,
    ) -> tuple[int, int, list[bytes]]: ...

    def close(self) -> None: ...


class TCPStore(Store):
    """A store that one process serves (is_master=True) and all reach at host_name:port.

    The server listens on the interface of host_name only, and answers only peers that know the
    run's token. It ends with the last store object of its process that owns it.
    """

    libuvBackend = True  # torch's name for "the fast server"; there is only one here

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: Timeout = timedelta(seconds=300),
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
        *,
        _token: bytes | None = None,
        _value_nbytes: int = VALUE_NBYTES,
        _is_attempt: bool = False,
        _look: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        # Called now and then while nobody serves the store, and may raise; an abort ends that wait as well.
        self._look = _look
        # Others follow, so it is not worth a look through all processes why this one has failed.
        self._is_attempt = _is_attempt
        self._timeout_s = to_seconds(timeout)
        if not isinstance(host_name, str):
            raise WrongTypeError(f"TCPStore: host_name must be text, not {host_name!r:.80}")
        self._host = host_name
        self._port = to_int("TCPStore", "port", port)
        if world_size is not None:
            world_size = to_int("TCPStore", "world_size", world_size)
        self._token = run_token() if _token is None else _token
        self._server: SharedServer | None = None
        self._client: _Client | None = None
        self._guard: Guard | None = None
        if master_listen_fd is not None and not is_master:
            raise UsageError("master_listen_fd is for the store with is_master=True")
        if is_master:
            self._server = serve(
                self._host,
                self._port,
                self._token,
                value_nbytes=_value_nbytes,
                multi_tenant=multi_tenant,
                listen_fd=master_listen_fd,
            )
            self._port = self._server.port
        try:
            self._connect()
            if world_size is not None and world_size > 0:
                self._join(world_size, awaits=is_master and wait_for_workers)
        except BaseException:
            self.close()
            raise

    def refused(self) -> tuple[int, str]:
        """How many clients of this store's server did not know the token, and who was last."""
        return (0, "") if self._server is None else self._server.refused()

    def why_refused(self) -> str:
        """The same: what the user is to change for the last of them, where that is known."""
        return "" if self._server is None else self._server.native.why_refused()

    def hidden_at(self) -> str:
        """Where it listens, if other hosts cannot reach that by the name of this host; else ''."""
        return "" if self._server is None else hidden_address(self._host, self._server.address)

    # Coming and going --------------------------------------------------------------------------

    def _connect(self) -> None:
        self._guard = guard = open_guard(self._token)
        begin = time.monotonic()
        native = guard.native if guard is not None else None
        client: _Client = StoreClient(
            self._host, self._port, derive_token(self._token, "store"), native
        )
        try:
            self._dial(client)
        except NativeError as error:
            waited_s = time.monotonic() - begin
            self._close_client(client)
            if getattr(error, "fault", "") == "aborted":
                raise to_error(str(error), op=f"a wait for {self._label()}") from None
            raise connect_error(
                self._label(),
                error,
                min(
                    waited_s, self._timeout_s
                ),  # how long it was to take, on a busy machine as well
                details=[] if self._is_attempt else who_listens(self._host, self._port),
            ) from error
        except BaseException:
            self._close_client(client)
            raise
        self._client = client

    def _dial(self, client: _Client) -> None:
        world = current_context()
        look = self._look
        if look is None:
            client.connect(deadline_after(self._timeout_s, FREE_CLOCK), NO_DEADLINE_NS, None, False)
            return
        deadline_ns = deadline_after(self._timeout_s, world.control)
        while not client.connect(
            deadline_ns, time.monotonic_ns() + _DIAL_NS, world.native_control, True
        ):
            look()

    def _join(self, world_size: int, *, awaits: bool) -> None:
        begin = time.monotonic()
        who = f"{socket.gethostname()} pid {os.getpid()}"
        self._call(StoreRequest.JOIN, 0, who.encode())
        if not awaits:
            return
        status, joined, names = self._await(
            StoreRequest.AWAIT_JOINED, self._timeout_s, str(world_size).encode()
        )
        if status == StoreStatus.TIMEOUT:
            waited_s = time.monotonic() - begin
            raise DistStoreError(
                f"{self._label()}: {joined} of {world_size} clients joined within {duration_text(waited_s)}",
                waited_s=waited_s,
                details=[f"joined: {_decode(name)}" for name in names],
                hint=f"the others must reach {self._host}:{self._port} and use the same token",
            )

    def close(self) -> None:
        client, self._client = self._client, None
        server, self._server = self._server, None
        if client is not None:
            self._close_client(client)
        if server is not None:
            server.release()

    def _close_client(self, client: _Client) -> None:
        client.close()
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.close()

    def __del__(self) -> None:
        # Not set when __init__ refused its arguments.
        if "_client" in self.__dict__ and "_server" in self.__dict__:
            self.close()

    def clone(self) -> Self:
        """A store with its own connection; keeps the server of this process alive as well."""
        other = type(self).__new__(type(self))
        Store.__init__(other)
        other._timeout_s = self._timeout_s
        other._host, other._port, other._token = self._host, self._port, self._token
        other._client = None
        other._guard = None
        other._look = None
        other._is_attempt = False
        server = self._server
        other._server = server if server is not None and server.acquire() else None
        try:
            other._connect()
        except BaseException:
            other.close()
            raise
        return other

    @property
    def host(self) -> str:
        """The host name given."""
        return self._host

    @property
    def port(self) -> int:
        """The port; the real one when 0 was given."""
        return self._port

    @property
    def is_serving(self) -> bool:
        """Whether the server is in this process, so that close() ends the store for all."""
        return self._server is not None

    # Operations --------------------------------------------------------------------------------

    def set(self, key: str, value: Value) -> None:
        self._call(StoreRequest.SET, 0, _encode(key), self._value(value))

    def get(self, key: str) -> bytes:
        begin = current_context().control.now()
        status, count, fields = self._await(StoreRequest.GET, self._timeout_s, _encode(key))
        if status != StoreStatus.OK:
            raise self._missing(count, fields, begin)
        return fields[0]

    def add(self, key: str, amount: int) -> int:
        number = check_amount(amount)
        if not -(2**63) <= number < 2**63:
            raise out_of_range(key)
        status, total, fields = self._call(StoreRequest.ADD, number, _encode(key))
        if status == StoreStatus.NOT_A_NUMBER:
            raise not_a_number(key, fields[0])
        if status == StoreStatus.OVERFLOW:
            raise out_of_range(key)
        return total

    def append(self, key: str, value: Value) -> None:
        self._small(
            self._call(StoreRequest.APPEND, 0, _encode(key), self._value(value))[0], "append"
        )

    def check(self, keys: Sequence[str]) -> bool:
        return self._call(StoreRequest.CHECK, 0, *map(_encode, check_keys(keys)))[1] == 1

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        return self._call(
            StoreRequest.COMPARE_SET, 0, _encode(key), self._value(expected), self._value(desired)
        )[2][0]

    def delete_key(self, key: str) -> bool:
        return self._call(StoreRequest.DELETE_KEY, 0, _encode(key))[1] == 1

    def list_keys(self) -> list[str]:
        return self._list_with_prefix("")

    def num_keys(self) -> int:
        return self._call(StoreRequest.NUM_KEYS, 0, b"")[1]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self.await_values(keys, self._timeout_s)

    def await_values(self, keys: Sequence[str], timeout: Timeout) -> list[bytes]:
        names = check_keys(keys)
        begin = current_context().control.now()
        status, count, fields = self._await(
            StoreRequest.GET, self._limit(timeout), *map(_encode, names)
        )
        if status == StoreStatus.TOO_LARGE:  # together; one by one they fit
            return [self.get(key) for key in names]
        if status != StoreStatus.OK:
            raise self._missing(count, fields, begin)
        return fields

    def multi_set(self, keys: Sequence[str], values: Sequence[Value]) -> None:
        batch: list[bytes] = []
        room = self._client.value_nbytes if self._client is not None else 0
        nbytes = 0
        for key, value in check_pairs(keys, values):
            pair = (_encode(key), self._value(value))
            pair_nbytes = len(pair[0]) + len(pair[1]) + _FIELD_OVERHEAD_NBYTES
            if batch and nbytes + pair_nbytes > room:  # a message holds more than twice as much
                self._call(StoreRequest.SET, 0, *batch)
                batch, nbytes = [], 0
            batch += pair
            nbytes += pair_nbytes
        if batch:
            self._call(StoreRequest.SET, 0, *batch)

    def wait(self, keys: Sequence[str], timeout: Timeout | None = None) -> None:
        begin = current_context().control.now()
        timeout_s = self._limit(timeout)
        status, count, fields = self._await(
            StoreRequest.WAIT, timeout_s, *map(_encode, check_keys(keys))
        )
        if status != StoreStatus.OK:
            raise self._missing(count, fields, begin)

    def queue_push(self, key: str, value: Value) -> None:
        self._call(StoreRequest.QUEUE_PUSH, 0, _encode(key), self._value(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        begin = current_context().control.now()
        if block:
            status, count, fields = self._await(
                StoreRequest.QUEUE_POP, self._timeout_s, _encode(key)
            )
        else:
            status, count, fields = self._call(StoreRequest.QUEUE_POP, -1, _encode(key))
        if status == StoreStatus.EMPTY:
            raise QueueEmptyError(f"{self._label()}: queue {key!r} is empty", keys=[key])
        if status != StoreStatus.OK:
            raise self._missing(count, fields, begin)
        return fields[0]

    def queue_len(self, key: str) -> int:
        return self._call(StoreRequest.QUEUE_LEN, 0, _encode(key))[1]

    def has_extended_api(self) -> bool:
        return True

    # Below the operations ----------------------------------------------------------------------

    def _await(
        self, op: StoreRequest, timeout_s: float, *fields: bytes
    ) -> tuple[int, int, list[bytes]]:
        """Ask for what may take so long: the server waits in its own time, this rank in its job's."""
        clock = current_context().control
        deadline = clock.now() + timeout_s
        left_s = timeout_s
        while True:
            answer = self._call(op, to_ns(left_s), *fields, patience_s=left_s, ends_with_job=True)
            left_s = deadline - clock.now()
            if answer[0] != StoreStatus.TIMEOUT or left_s <= _EARLY_S:
                return answer
            # There was a pause; while it lasts, what is left stays as it is.
            left_s = max(left_s, _LOOK_S)

    def _call(
        self,
        op: StoreRequest,
        number: int,
        *fields: bytes,
        patience_s: float | None = None,
        ends_with_job: bool = False,
    ) -> tuple[int, int, list[bytes]]:
        client = self._client
        if client is None:
            raise DistStoreError(f"{self._label()} is closed")
        for key in fields[:1]:
            if len(key) > KEY_NBYTES:
                raise UsageError(
                    f"a key of {len(key)} bytes; {self._label()} takes at most {KEY_NBYTES}"
                )
        patience = self._timeout_s if patience_s is None else patience_s
        world = current_context()
        deadline_ns = deadline_after(patience + _GRACE_S, world.control)
        try:
            answer = client.call(
                op, number, fields, deadline_ns, world.native_control, ends_with_job
            )
        except NativeError as error:
            raise call_error(self._label(), error, patience + _GRACE_S) from None
        if answer[0] == StoreStatus.BAD_REQUEST:
            raise InternalError(f"{self._label()} did not understand {op.name.lower()}")
        return answer

    def _value(self, value: Value) -> bytes:
        data = to_bytes(value)
        if self._client is not None and len(data) > self._client.value_nbytes:
            raise UsageError(
                f"a value of {len(data)} bytes; {self._label()} takes at most "
                f"{self._client.value_nbytes}"
            )
        return data

    def _small(self, status: int, what: str) -> None:
        if status == StoreStatus.TOO_LARGE:
            raise UsageError(f"{self._label()}: {what} exceeds the largest size it takes")

    def _missing(self, count: int, fields: list[bytes], begin: float) -> DistStoreError:
        waited_s = current_context().control.now() - begin
        return missing_keys(self._label(), [_decode(key) for key in fields], count, waited_s)

    def _list_with_prefix(self, prefix: str) -> list[str]:
        status, _, fields = self._call(StoreRequest.LIST_KEYS, 0, _encode(prefix))
        self._small(status, "list_keys")
        return [_decode(key) for key in fields]

    def _label(self) -> str:
        return f"store {self._host}:{self._port}"

    def __repr__(self) -> str:
        role = "serving" if self._server is not None else "client"
        return f"TCPStore({self._host}:{self._port}, {role})"


def _encode(key: str) -> bytes:
    return check_key(key).encode("utf-8", "surrogateescape")


def _decode(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")
