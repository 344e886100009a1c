"""all_to_all, whose blocks may have any sizes: whether they fit is seen before any of them moves."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from distdbg.check.explain import describe, explain_mismatch
from distdbg.errors import MismatchError
from distdbg.runtime.backends.checked.description_table import MAX_WORDS, DescriptionTable
from distdbg.runtime.backends.gpu.chunks import ChunkedOp
from distdbg.runtime.backends.gpu.control_group import GpuControlGroup, OpHeader


def largest_block(control: GpuControlGroup, header: OpHeader, job: ChunkedOp) -> int:
    """Bytes of the largest one that any rank sends, which all learn; MismatchError where sizes do not fit."""
    size = control.size
    row = struct.Struct(f"<{2 * size}Q")
    sends = [block.nbytes for block in job.inputs]
    expects = [block.nbytes for block in job.outputs]
    reported = [row.unpack(each) for each in control.exchange(header, row.pack(*sends, *expects))]
    pairs = [(giver, taker) for giver in range(size) for taker in range(size)]
    if any(reported[giver][taker] != reported[taker][size + giver] for giver, taker in pairs):
        raise difference(control, header, job, sends, expects)
    return max(int(nbytes) for each in reported for nbytes in each)


def difference(
    control: GpuControlGroup,
    header: OpHeader,
    job: ChunkedOp,
    sends: Sequence[int],
    expects: Sequence[int],
) -> MismatchError:
    """What is raised on all ranks, which all call this; each adds the line that called. Sizes in bytes."""
    call, itemsize = header.call, job.dtype.itemsize
    words = describe(
        {"kind": call.kind.label},
        call.function[:MAX_WORDS],
        [nbytes // itemsize for nbytes in sends],
        [nbytes // itemsize for nbytes in expects],
    )
    site = json.dumps(control.call_site()).encode()
    table = DescriptionTable(words + b', "call_site": ' + site + b"}", control.size)
    reported = control.exchange(header, table.mine.tobytes())
    return explain_mismatch(
        [text.rstrip(b"\0") for text in reported],
        group=control.name,
        seq=header.seq,
        global_ranks=control.names,
        this_rank=control.names[control.rank],
    )
