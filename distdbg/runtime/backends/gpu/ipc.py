"""Ipc: one op in which the ranks of a host read and write each other's memory on the GPU.

    the program's stream --event--> this rank's stream --shared event--> the streams of the peers
    exchange    each rank's IpcInfo: where its arrays are, what is new, what was retired
    (exchange   only where somebody had to open something: whether all could)
    the GPU     copies and reductions; the host waits for them, and looks after the peers meanwhile
    barrier     all are done: now arrays may be written again, and freed

What an op decides, every rank decides from the same infos.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.log.logs import get_logger
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.backends.gpu.chunks import ChunkedOp, DeviceBlock
from distdbg.runtime.backends.gpu.control_group import GpuControlGroup, OpHeader
from distdbg.runtime.backends.gpu.driver import Driver
from distdbg.runtime.backends.gpu.exchanges import difference
from distdbg.runtime.backends.gpu.exports import IpcExports
from distdbg.runtime.backends.gpu.ipc_info import (
    NO_MEMORY,
    IpcInfo,
    MemoryRef,
    pack,
    sizes_match,
    unpack,
)
from distdbg.runtime.backends.gpu.kernels import Kernels
from distdbg.runtime.backends.gpu.mappings import Mappings
from distdbg.runtime.backends.gpu.schedule import (
    OpBlocks,
    PeerBuffers,
    recv_nbytes,
    schedule,
    source_blocks,
    target_block,
)

_log = get_logger("runtime")


@dataclass(slots=True)
class GpuOp:
    """One op for the GPU."""

    header: OpHeader
    job: ChunkedOp
    op: ReduceOp | None
    #: After what the program had queued when it called.
    ready: Any


class Ipc:
    """Of one rank in one group. Used by one thread at a time."""

    def __init__(self, driver: Driver, control: GpuControlGroup, stream: Any) -> None:
        self._driver = driver
        self._control = control
        self._stream = stream
        self._event: Any = None
        self._exports = IpcExports(driver)
        self._mappings = Mappings(driver)
        self._kernels = Kernels(driver)
        self._is_first = True
        #: How long the device took for the last op, from when all arrays were ready.
        self.ran_ns = -1
        #: Whether all ranks can open each other's memory, as far as is known.
        self.is_on = True

    def run(self, order: GpuOp, await_event: Callable[[Any], None]) -> bool:
        """Carry it out. False: this op has to go another way, on all ranks alike."""
        control, driver, rank = self._control, self._driver, self._control.rank
        job = order.job
        blocks = OpBlocks(
            job.kind, rank, control.size, order.header.call.root, job.inputs, job.outputs
        )
        driver.wait_for(self._stream, order.ready.ptr)
        infos = self._exchange(order, blocks)
        if not self._open(order.header, infos):
            self.is_on = False
            self.close()
            return False
        unable = [index for index, info in enumerate(infos) if info.why_not]
        if unable:
            _log.debug("rank %s: %s", control.names[unable[0]], infos[unable[0]].why_not)
            return False
        for event in self._mappings.events():
            driver.wait_for(self._stream, event)
        begin = driver.timed_event(self._stream)
        self._queue(blocks, order, infos)
        end = driver.timed_event(self._stream)
        await_event(end)
        self.ran_ns = driver.ran_ns(begin, end)
        control.gate(order.header)
        return True

    def _exchange(self, order: GpuOp, blocks: OpBlocks) -> list[IpcInfo]:
        """What all ranks say of their memory; they mean the same op."""
        control = self._control
        mine = pack(self._info(blocks, order.job), control.size)
        try:
            infos = [unpack(data, control.size) for data in control.exchange(order.header, mine)]
            if not sizes_match(infos):
                own, every = infos[control.rank], range(control.size)
                sends = [own.source_for(reader).nbytes for reader in every]
                expects = own.recv_nbytes or [0 for _ in every]
                raise difference(control, order.header, order.job, sends, expects)
        except BaseException:
            self._exports.roll_back()
            raise
        self._exports.commit()
        return infos

    def close(self) -> None:
        """Leave nothing open of other ranks."""
        self._mappings.close_all()
        self._exports.forget()

    # ------------------------------------------------------------------------------ the infos

    def _info(self, blocks: OpBlocks, job: ChunkedOp) -> IpcInfo:
        info = IpcInfo(
            recv_nbytes=recv_nbytes(blocks),
            factor=1.0 if job.factor is None else job.factor,
        )
        written = target_block(blocks)
        try:
            if self._is_first:
                self._event = self._driver.shared_event()
                info.event = self._driver.event_handle(self._event)
            self._event.record(self._stream)
            info.sources = [self._ref(block) for block in source_blocks(blocks)]
            info.target = NO_MEMORY if written is None else self._ref(written)
        except Exception as error:  # noqa: BLE001 - CUDA's or the driver's: the arrays go another way
            info.why_not = str(error).splitlines()[0] if str(error) else type(error).__name__
            info.sources = [MemoryRef(-1, 0, block.nbytes) for block in source_blocks(blocks)]
        new, info.retired = self._exports.changes()
        info.new = [(export.number, export.handle) for export in new]
        return info

    def _ref(self, block: DeviceBlock) -> MemoryRef:
        if not block.nbytes:
            return NO_MEMORY
        number, offset = self._exports.locate(block.address)
        return MemoryRef(number, offset, block.nbytes)

    def _open(self, header: OpHeader, infos: Sequence[IpcInfo]) -> bool:
        """Open and close what the others say; whether all ranks could."""
        control = self._control
        has_failed = False
        for owner, info in enumerate(infos):
            if owner == control.rank:
                continue
            for number in info.retired:
                self._mappings.close(owner, number)
            try:
                if self._is_first:
                    self._mappings.open_event(owner, info.event)
                for number, handle in info.new:
                    self._mappings.open(owner, number, handle)
            except Exception as error:  # noqa: BLE001 - the ranks hear of it below, and go another way
                has_failed = True
                _log.warning(
                    "GPU arrays of group '%s' go through the host: memory of rank %s cannot be opened: %s",
                    control.name, control.names[owner], str(error),
                )  # fmt: skip
        if not self._is_first and not any(info.new for info in infos):
            return True
        self._is_first = False
        reported = control.exchange(header, bytes([not has_failed]))
        return all(word == b"\1" for word in reported)

    # ------------------------------------------------------------------------------- the GPU

    def _queue(self, blocks: OpBlocks, order: GpuOp, infos: Sequence[IpcInfo]) -> None:
        job = order.job
        peers = [
            PeerBuffers(
                self._source(owner, info.source_for(blocks.rank), blocks),
                self._target(owner, info, blocks),
            )
            for owner, info in enumerate(infos)
        ]
        copies, reductions = schedule(blocks, peers, job.dtype.itemsize)
        for target_at, source_at, nbytes in copies:
            self._driver.copy(target_at, source_at, nbytes, self._stream)
        for reduction in reductions:
            assert order.op is not None  # of a reduction
            factors = [_rounded(info.factor, job.dtype) for info in infos]
            self._kernels.queue(reduction, job.dtype, order.op.op, factors, self._stream)

    def _source(self, owner: int, ref: MemoryRef, blocks: OpBlocks) -> DeviceBlock | None:
        if owner == blocks.rank:
            own = source_blocks(blocks)
            if not own:
                return None
            return own[0] if len(own) == 1 else own[blocks.rank]
        return self._opened(owner, ref)

    def _target(self, owner: int, info: IpcInfo, blocks: OpBlocks) -> DeviceBlock | None:
        if owner == blocks.rank:
            return target_block(blocks)
        return None if info.target.export < 0 else self._opened(owner, info.target)

    def _opened(self, owner: int, ref: MemoryRef) -> DeviceBlock:
        if ref.export < 0:
            return DeviceBlock(0, 0)
        return DeviceBlock(self._mappings.address(owner, ref.export, ref.offset), ref.nbytes)


def _rounded(factor: float, dtype: Dtype) -> float:
    """As an element of the dtype, so far as a double can tell."""
    kind = dtype.to_numpy()
    if dtype.is_complex:
        kind = Dtype.float32.to_numpy() if dtype is Dtype.complex64 else Dtype.float64.to_numpy()
    return float(kind.type(factor)) if dtype.is_floating or dtype.is_complex else factor
