"""What of a call must be equal on all ranks, and the fingerprint of it.

Pure: arrays are seen only through `View.shape` and `.dtype` and the cuts. The signature is what
must be equal on all ranks for the op to be legal; its hash is the fingerprint that meets at the first
gate. What legally differs between ranks (the splits of an uneven all_to_all) is not in it: native code
compares those, row against column, from the published block sizes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from distdbg.runtime.backends.compile import Cut, ViewLike
from distdbg.runtime.call import Call, Kind
from distdbg.runtime.dtypes import Dtype


def signature(
    call: Call,
    inputs: Sequence[ViewLike],
    outputs: Sequence[ViewLike],
    in_cuts: Sequence[Cut],
    out_cuts: Sequence[Cut],
) -> dict[str, Any]:
    """What all ranks must agree on, by the names that errors use."""
    kind = call.kind
    facts: dict[str, Any] = {"kind": kind.label}
    if kind is Kind.BARRIER:
        return facts
    views = [*inputs, *outputs]
    dtype = views[0].dtype if views else -1
    itemsize = Dtype(dtype).itemsize if dtype >= 0 else 1
    facts["dtype"] = Dtype(dtype).label if dtype >= 0 else "bytes"
    if call.op is not None:
        facts["op"] = call.op.op.name
    if call.root >= 0:
        facts["root"] = call.root
    if kind is Kind.ALL_GATHER:
        facts["counts"] = [nbytes // itemsize for _, _, nbytes in out_cuts]
    elif kind is Kind.REDUCE_SCATTER:
        facts["counts"] = [nbytes // itemsize for _, _, nbytes in in_cuts]
    elif kind is Kind.SCATTER:
        facts["shape"] = list(outputs[0].shape)
    elif kind is not Kind.ALL_TO_ALL:
        facts["shape"] = list(views[0].shape)
    return facts


def fingerprint(facts: dict[str, Any]) -> int:
    """64 bits that differ, for all practical purposes, when the facts do."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
