"""StoreEngine: an Engine in plain Python over a Store. Slow, and meant to be obviously right.

It is the reference that other engines are compared with, and needs no native data plane. For each
collective, every rank publishes what it brings (the kind, the shapes, the bytes), waits for what
all the others bring, and computes its own result (reference.py):

    <seq>/<rank>          what the rank brings, pickled: peers of a store are authenticated
    <seq>/left            a counter; the last to leave deletes the keys of this seq
    p2p/<src>/<dst>/<n>   the n-th message from src to dst: (tag, bytes)
    aborted               the reason, once the group is broken

Collectives run one after the other on one thread, in the order they were given. Receives are
matched by one other thread, in the order they were posted, with the messages in the order sent.
"""

from __future__ import annotations

import ctypes
import pickle
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from distdbg.errors import (
    CollectiveError,
    DistError,
    InternalError,
    MismatchError,
    OpTimeout,
    UsageError,
    format_ranks,
)
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.ops.engine import Pending
from distdbg.runtime.api.arguments import check_arrays
from distdbg.runtime.arrays.buffers import Buffer, as_input, as_output
from distdbg.runtime.handles.work import NO_DEADLINE
from distdbg.runtime.store import Store
from tests.support.reference import Block, Brought, compute

_POLL_S = 0.0003


class StorePending:
    """One op on the engine's thread."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.source = -1
        self.error: DistError | None = None
        self.ended = threading.Event()

    def done(self) -> bool:
        """Whether it has ended."""
        return self.ended.is_set()

    def wait(self, deadline_ns: int) -> None:
        """Wait for the thread."""
        limit_s = None
        if deadline_ns != NO_DEADLINE:
            limit_s = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        if not self.ended.wait(limit_s):
            raise OpTimeout(
                f"{self.call.kind.label} did not end within {limit_s or 0:.1f} s; it continues",
                kind=self.call.kind.label,
                waited_s=limit_s or 0.0,
            )
        if self.error is not None:
            raise self.error

    def source_rank(self) -> int:
        """The sender that a recv found."""
        return self.source


class StoreEngine:
    """The ops of one group over its store."""

    #: It compares what the ranks bring by itself.
    distdbg_is_checked = True

    def __init__(
        self, store: Store, rank: int, size: int, timeout_s: float, group_name: str = ""
    ) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout_s = timeout_s
        self._group_name = group_name
        self._seq = 0
        self._sent = [0] * size
        self._taken = [0] * size
        self._lock = threading.Lock()
        self._in_order = ThreadPoolExecutor(1, thread_name_prefix="distdbg-store-engine")
        self._posted: list[tuple[StorePending, float]] = []
        self._arrived: list[deque[tuple[int, bytes]]] = [deque() for _ in range(size)]
        self._receiver: threading.Thread | None = None
        self._is_closed = False

    def run(self, call: Call) -> int:
        """Start and wait."""
        pending = self.submit(call)
        pending.wait(NO_DEADLINE)
        return pending.source_rank()

    def submit(self, call: Call) -> Pending:
        """Check the arrays and hand the call to the thread; sends are done at once."""
        check_arrays(call)
        if self._is_closed:
            raise UsageError(f"{call.kind.label} on group {self._group_name!r}, which is closed")
        pending = StorePending(call)
        if call.kind == Kind.SEND:
            self._send(call)
            pending.ended.set()
        elif call.kind == Kind.RECV:
            self._post(pending)
        else:
            # What the user may change after submit's return is not read later than here.
            brought = self._bring(call)
            with self._lock:
                self._seq += 1
                self._in_order.submit(self._collective, pending, brought, self._seq)
        return pending

    def set_timeout(self, timeout_s: float) -> None:
        """Set the limit for later ops."""
        self._timeout_s = timeout_s

    def set_level(self, level: int) -> None:
        """Do nothing: this engine compares nothing."""

    def abort(self, reason: str) -> None:
        """Tell all ranks through the store."""
        self._store.set("aborted", reason)

    def close(self) -> None:
        """Let what is queued come to its end (its timeout at the latest), then stop the threads."""
        self._is_closed = True
        self._in_order.shutdown(wait=True)
        if self._receiver is not None:
            self._receiver.join()

    # --- collectives -----------------------------------------------------------------------------

    def _bring(self, call: Call) -> Brought:
        blocks = [] if call.kind == Kind.BARRIER else [_copied(array) for array in call.inputs]
        if call.kind in (Kind.BROADCAST, Kind.SCATTER) and self._rank != call.root:
            blocks = []
        op = "" if call.op is None else f" {call.op.op.name}"
        root = "" if call.root < 0 else f" root {call.root}"
        what = f"{call.kind.label}{op}{root}"
        if call.kind in (Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER):
            # Blocks of all_gather may differ in size; all ranks expect the same outputs.
            arrays = call.outputs if call.kind == Kind.ALL_GATHER else call.inputs
            what += f" {_shown([as_input(array) for array in arrays])}"
        splits = None if call.input_splits is None else list(call.input_splits)
        return Brought(what, blocks, len(call.inputs) == self._size, splits)

    def _collective(self, pending: StorePending, brought: Brought, seq: int) -> None:
        call = pending.call
        try:
            self._store.set(f"{seq}/{self._rank}", pickle.dumps(brought))
            timeout_s = self._timeout_s if call.timeout_s is None else call.timeout_s
            self._wait_for_all(call, seq, time.monotonic() + timeout_s, timeout_s)
            everyone = [
                pickle.loads(self._store.get(f"{seq}/{rank}")) for rank in range(self._size)
            ]
            if self._store.add(f"{seq}/left", 1) == self._size:
                for name in (*range(self._size), "left"):
                    self._store.delete_key(f"{seq}/{name}")
            self._check_same(call, seq, everyone)
            _finish(call, compute(call, self._rank, self._size, everyone))
        except DistError as error:
            pending.error = error
        except Exception as error:
            pending.error = InternalError(f"the reference engine failed: {error!r}")
        finally:
            pending.ended.set()

    def _wait_for_all(self, call: Call, seq: int, deadline: float, timeout_s: float) -> None:
        missing = [rank for rank in range(self._size) if rank != self._rank]
        while missing:
            missing = [rank for rank in missing if not self._store.check([f"{seq}/{rank}"])]
            if missing:
                self._check_alive(call, seq)
                if time.monotonic() > deadline:
                    raise OpTimeout(
                        f"{call.kind.label} #{seq} on group {self._group_name!r} waited "
                        f"{timeout_s:.1f} s for rank {format_ranks(missing)}",
                        missing=missing,
                        arrived=[rank for rank in range(self._size) if rank not in missing],
                        waited_s=timeout_s,
                        kind=call.kind.label,
                        seq=seq,
                        group=self._group_name,
                    )
                time.sleep(_POLL_S)

    def _check_alive(self, call: Call, seq: int) -> None:
        if self._store.check(["aborted"]):
            raise CollectiveError(
                f"{call.kind.label} #{seq} on group {self._group_name!r} was aborted",
                kind=call.kind.label,
                seq=seq,
                group=self._group_name,
                details=[self._store.get("aborted").decode()],
            )

    def _check_same(self, call: Call, seq: int, everyone: Sequence[Brought]) -> None:
        different: dict[str, list[int]] = {}
        for rank, brought in enumerate(everyone):
            different.setdefault(brought.what, []).append(rank)
        if len(different) > 1:
            shown = ", ".join(f"{k} on rank {format_ranks(v)}" for k, v in different.items())
            raise MismatchError(
                f"{call.kind.label} #{seq} on group {self._group_name!r} differs: {shown}",
                kind=call.kind.label,
                seq=seq,
                group=self._group_name,
                ranks=range(self._size),
            )

    # --- point to point --------------------------------------------------------------------------

    def _send(self, call: Call) -> None:
        data = _view(as_input(call.inputs[0])).tobytes()
        with self._lock:
            number = self._sent[call.peer]
            self._sent[call.peer] += 1
            self._store.set(
                f"p2p/{self._rank}/{call.peer}/{number}", pickle.dumps((call.tag, data))
            )

    def _post(self, pending: StorePending) -> None:
        timeout_s = pending.call.timeout_s
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        with self._lock:
            self._posted.append((pending, time.monotonic() + limit_s))
            if self._receiver is None:
                self._receiver = threading.Thread(
                    target=self._receive, name="distdbg-store-receiver", daemon=True
                )
                self._receiver.start()

    def _receive(self) -> None:
        """Match posted receives until there are none; then the thread ends."""
        while True:
            self._fetch()
            with self._lock:
                self._posted = [entry for entry in self._posted if not self._match(*entry)]
                if not self._posted:
                    self._receiver = None
                    return
            time.sleep(_POLL_S)

    def _fetch(self) -> None:
        for source in range(self._size):
            key = f"p2p/{source}/{self._rank}/{self._taken[source]}"
            while self._store.check([key]):
                self._arrived[source].append(pickle.loads(self._store.get(key)))
                self._store.delete_key(key)
                self._taken[source] += 1
                key = f"p2p/{source}/{self._rank}/{self._taken[source]}"

    def _match(self, pending: StorePending, deadline: float) -> bool:
        call = pending.call
        sources = range(self._size) if call.peer < 0 else [call.peer]
        try:
            for source in sources:
                for message in self._arrived[source]:
                    if message[0] == call.tag:
                        self._arrived[source].remove(message)
                        pending.source = source
                        _put(call, message[1])
                        pending.ended.set()
                        return True
            self._check_alive(call, 0)
            if self._is_closed or time.monotonic() > deadline:
                raise OpTimeout(
                    f"recv on group {self._group_name!r} got no message with tag {call.tag} from "
                    f"{'any rank' if call.peer < 0 else f'rank {call.peer}'}",
                    kind="recv",
                    group=self._group_name,
                    missing=[] if call.peer < 0 else [call.peer],
                )
        except DistError as error:
            pending.error = error
            pending.ended.set()
            return True
        return False


def _finish(call: Call, blocks: Sequence[Block]) -> None:
    """Write the blocks one after the other into the outputs."""
    if not blocks or not call.outputs:
        return
    if len(call.outputs) == len(blocks):
        for output, block in zip(call.outputs, blocks, strict=True):
            _put(call, block.tobytes(), output)
    else:
        _put(call, b"".join(block.tobytes() for block in blocks), call.outputs[0])


def _put(call: Call, data: bytes, output: Any = None) -> None:
    buffer = as_output(call.outputs[0] if output is None else output)
    if len(data) != buffer.nbytes:
        raise MismatchError(
            f"{call.kind.label}: {len(data)} bytes came, the output has {buffer.nbytes}",
            kind=call.kind.label,
        )
    if data:
        ctypes.memmove(buffer.address, data, len(data))
    if buffer.finish is not None:
        buffer.finish()


def _copied(array: Any) -> Block:
    return _view(as_input(array)).copy()


def _view(buffer: Buffer) -> Block:
    """A NumPy view of any buffer's memory; valid while the buffer is."""
    dtype = Dtype(buffer.dtype).to_numpy()
    if buffer.nbytes == 0:
        return np.empty(buffer.shape, dtype)
    memory = (ctypes.c_uint8 * buffer.nbytes).from_address(buffer.address)
    flat: Block = np.ctypeslib.as_array(memory).view(dtype)
    return flat.reshape(buffer.shape)


def _shown(buffers: Sequence[Buffer]) -> str:
    dtype = Dtype(buffers[0].dtype).label if buffers else ""
    return f"{dtype}[{sum(buffer.count for buffer in buffers)}]"
