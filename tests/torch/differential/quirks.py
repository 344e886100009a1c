"""What torch gloo (2.13) cannot do or does wrong, named and with its reason.

The tables below are what the random programs draw from; each gap in them is an entry of EXCLUDED,
so that a reader sees what the differential test does not show. distdbg has its own tests for these.
"""

from __future__ import annotations

EXCLUDED = {
    "collectives of int16, uint16, uint32, uint64, float8": (
        "gloo raises 'Invalid scalar type', and its next barrier then raises that again"
    ),
    "gather of complex": "gloo raises 'Invalid scalar type'; every other collective takes complex",
    "AVG of integers and bool": (
        "gloo has reduced already when it finds that the mean does not fit; later ops may hang"
    ),
    "the bytes of a bool": "gloo adds them, so True may be 2 or 3; distdbg has to give 0 or 1",
    "bit ops of floats, PREMUL_SUM": "gloo raises from its thread and the group is broken after",
    "reduce, other ranks than dst": "gloo leaves partial sums in the tensors of the other ranks",
    "strided arrays": (
        "gloo sums and broadcasts the memory between the elements and not all of the elements;"
        " transposed (dense) ones are right and are included for all_reduce and broadcast"
    ),
    "all_gather, reduce_scatter, all_to_all of blocks with different shapes": (
        "gloo raises, or wants one size; all_to_all_single with splits is the uneven form that it has"
    ),
    "all_gather_into_tensor to a stacked or flat output": (
        "gloo wants the blocks along the first dimension, the documentation allows both"
    ),
    "all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single of zero dimensions": (
        "gloo has no blocks to cut there"
    ),
    "recv of zero elements from any source": "gloo fails an assertion of its own",
    "send and recv to self": "torch refuses it; distdbg allows it",
    "isend, irecv to self": "torch only fails when the connection is needed",
    "splits of the wrong number, lengths that do not divide": "gloo raises, and is broken after",
}

COLLECTIVE_DTYPES = (
    "float32",
    "int32",
    "float64",
    "int64",
    "uint8",
    "int8",
    "bool",
    "float16",
    "bfloat16",
    "complex64",
    "complex128",
)
"""What gloo moves and reduces in collectives."""

MESSAGE_DTYPES = (
    *COLLECTIVE_DTYPES,
    "int16",
    "uint16",
    "uint32",
    "uint64",
    "float8_e4m3fn",
    "float8_e5m2",
)
"""Point to point moves bytes, so gloo takes them all."""

GATHER_DTYPES = tuple(name for name in COLLECTIVE_DTYPES if not name.startswith("complex"))


def reduce_ops(dtype: str) -> tuple[str, ...]:
    """The reductions that gloo carries out on a dtype."""
    if dtype.startswith("complex"):
        return ("SUM", "AVG")
    if dtype in ("float16", "bfloat16", "float32", "float64"):
        return ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
    return ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
