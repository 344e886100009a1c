"""Values for the arguments of the public functions, by parameter: right ones and nonsense.

The first of each is what a right program passes. A maker makes one argument, anew for each rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import numpy as np

import distdbg as dist

Maker = Callable[[int], Any]


def array(*shape: int, dtype: Any = np.float64) -> Maker:
    def make(rank: int) -> Any:
        return (np.arange(np.prod(shape, dtype=int)) % 3 + rank).reshape(shape).astype(dtype)

    return make


def read_only(rank: int) -> Any:
    made = array(4)(rank)
    made.flags.writeable = False
    return made


def just(value: Any) -> Maker:
    return lambda rank: value


def several(*makers: Maker, as_type: Callable[[Any], Any] = list) -> Maker:
    return lambda rank: as_type([make(rank) for make in makers])


ARRAYS: dict[str, Maker] = {
    "float64[4]": array(4),
    "float64[8]": array(8),
    "float64[2]": array(2),
    "float32[4]": array(4, dtype=np.float32),
    "int8[4]": array(4, dtype=np.int8),
    "bool[4]": array(4, dtype=np.bool_),
    "complex128[4]": array(4, dtype=np.complex128),
    "empty": array(0),
    "of no dimension": array(),
    "float64[2, 2]": array(2, 2),
    "in Fortran's order": lambda rank: np.asfortranarray(array(2, 2)(rank)),
    "every other": lambda rank: array(8)(rank)[::2],
    "backwards": lambda rank: array(4)(rank)[::-1],
    "read-only": read_only,
    "of objects": array(4, dtype=object),
    "of texts": array(4, dtype=str),
    "of times": lambda rank: np.zeros(4, "datetime64[s]"),
    "of the other byte order": array(4, dtype=">f8"),
    "masked": lambda rank: np.ma.masked_array(array(4)(rank), [1, 0, 0, 0]),
    "a scalar": lambda rank: np.float64(rank),
    "a number": just(3),
    "a list": lambda rank: [1.0, 2.0, 3.0, 4.0],
    "bytes": just(b"abcd"),
    "a bytearray": lambda rank: bytearray(b"abcd"),
    "None": just(None),
    "a text": just("abcd"),
}
LISTS: dict[str, Maker] = {
    "two": several(array(4), array(4)),
    "a tuple": several(array(4), array(4), as_type=tuple),
    "one": several(array(4)),
    "three": several(array(4), array(4), array(4)),
    "none": several(),
    "sizes that differ": several(array(4), array(2)),
    "dtypes that differ": several(array(4), array(4, dtype=np.int8)),
    "one twice": lambda rank: [array(4)(rank)] * 2,
    "with None": several(array(4), just(None)),
    "with a text": several(array(4), just("abcd")),
    "with a read-only one": several(array(4), read_only),
    "an array": array(2, 4),
    "a generator": lambda rank: (array(4)(rank) for _ in range(2)),
    "None": just(None),
    "a text": just("ab"),
    "a number": just(2),
}
OPS = {"SUM": just(dist.ReduceOp.SUM), "MAX": just(dist.ReduceOp.MAX), "AVG": just(dist.ReduceOp.AVG),
       "BAND": just(dist.ReduceOp.BAND), "PREMUL": lambda rank: dist.make_premul_sum(2.0),
       "a text": just("sum"), "None": just(None), "a number": just(7), "True": just(True)}  # fmt: skip
NUMBERS = {"0": just(0), "1": just(1), "np.int64(1)": just(np.int64(1)), "True": just(True), "-1": just(-1),
           "2": just(2), "2**40": just(2**40), "2**70": just(2**70), "'0'": just("0"), "1.0": just(1.0),
           "nan": just(float("nan")), "[0]": just([0]), "np.ones(1)": just(np.ones(1))}  # fmt: skip
OPTIONAL = {"None": just(None), **NUMBERS}
TIMEOUTS = {"None": just(None), "30": just(30), "30.0": just(30.0), "a length": just(timedelta(seconds=30)),
            "inf": just(float("inf")), "nan": just(float("nan")), "-1": just(-1), "'30'": just("30"),
            "a negative length": just(timedelta(seconds=-1)), "[]": just([])}  # fmt: skip
FLAGS = {
    "False": just(False),
    "True": just(True),
    "1": just(1),
    "None": just(None),
    "'yes'": just("yes"),
}
GROUPS = {"None": just(None), "WORLD": lambda rank: dist.group.WORLD,
          "NON_GROUP_MEMBER": just(dist.GroupMember.NON_GROUP_MEMBER), "'dp'": just("dp"), "5": just(5),
          "an object": lambda rank: object()}  # fmt: skip
SPLITS = {"None": just(None), "[2, 2]": just([2, 2]), "(2, 2)": just((2, 2)), "[1, 3]": just([1, 3]),
          "np [2, 2]": just(np.array([2, 2])), "[-1, 5]": just([-1, 5]), "[4]": just([4]), "[]": just([]),
          "['2', '2']": just(["2", "2"]), "[2.0, 2.0]": just([2.0, 2.0]), "4": just(4), "'22'": just("22"),
          "[2**70, 0]": just([2**70, 0])}  # fmt: skip
OBJECTS = {"a dict": just({"a": 1}), "None": just(None), "an array": array(4), "a text": just("x"),
           "what cannot be pickled": lambda rank: (lambda: None)}  # fmt: skip
OBJECT_LISTS = {"two": lambda rank: [None, None], "one": lambda rank: [1], "none": lambda rank: [],
                "three": lambda rank: [1, 2, 3], "a tuple": just((None, None)), "None": just(None),
                "a text": just("ab"), "a number": just(2),
                "what cannot be pickled": lambda rank: [1, lambda: None]}  # fmt: skip
RANKS = {"None": just(None), "[0, 1]": just([0, 1]), "(1, 0)": just((1, 0)), "[0]": just([0]), "[]": just([]),
         "[0, 0]": just([0, 0]), "[2]": just([2]), "[-1]": just([-1]), "['0']": just(["0"]), "0": just(0),
         "[0.0]": just([0.0]), "'01'": just("01"), "np.arange(2)": just(np.arange(2)), "[None]": just([None]),
         "a set": just({0, 1}), "range(2)": just(range(2))}  # fmt: skip
NAMES = {"None": just(None), "'x'": just("x"), "''": just(""), "5": just(5), "a space": just("a b")}
BACKENDS = {"None": just(None), "'gloo'": just("gloo"), "'none such'": just("none such"), "5": just(5),
            "'nccl'": just("nccl")}  # fmt: skip

SUBGROUPS = {"[[0, 1]]": just([[0, 1]]), "[[0], [1]]": just([[0], [1]]), "[[0], [0]]": just([[0], [0]]),
             "[[]]": just([[]]), "[[2]]": just([[2]]), "[0, 1]": just([0, 1]), "5": just(5),
             "[['0']]": just([["0"]]), "None": just(None), "'01'": just("01")}  # fmt: skip
OUTPUTS = {"float64[8]": ARRAYS["float64[8]"], **ARRAYS}
OPTIONAL_LISTS = {"None": just(None), **LISTS}
FLOATS = {"2.0": just(2.0), **NUMBERS}
LEVELS = {
    "INFO": just(dist.DebugLevel.INFO),
    "1": just(1),
    "'INFO'": just("INFO"),
    "None": just(None),
}
DEVICES = {"None": just(None), "'cpu'": just("cpu"), "'cuda'": just("cuda"), "5": just(5)}

#: The parameters that take them.
TAKEN: list[tuple[Mapping[str, Maker], str]] = [
    (ARRAYS, "tensor input_tensor input"),
    (OUTPUTS, "output_tensor output"),
    (LISTS, "tensors tensor_list input_tensor_list output_tensor_list input_list"),
    (OPTIONAL_LISTS, "gather_list scatter_list"),
    (OPS, "op reduceOp"),
    (OPTIONAL, "src dst group_src group_dst fallback_rank"),
    (NUMBERS, "group_rank global_rank tag shrink_flags"),
    (TIMEOUTS, "timeout"),
    (FLAGS, "async_op wait_all_ranks use_batch use_local_synchronization sort_ranks"),
    (GROUPS, "group parent_pg"),
    (SPLITS, "output_split_sizes input_split_sizes"),
    (OBJECTS, "obj x"),
    (OBJECT_LISTS, "object_list object_gather_list"),
    (OBJECT_LISTS, "scatter_object_output_list scatter_object_input_list"),
    (RANKS, "ranks device_ids ranks_to_exclude"),
    (SUBGROUPS, "ranks_per_subgroup_list split_ranks"),
    ({"2": just(2), **OPTIONAL}, "group_size"),
    ({"two of two": several(LISTS["two"], LISTS["two"]), **LISTS}, "output_tensor_lists"),
    (NAMES, "group_desc what name"),
    (BACKENDS, "backend"),
    (DEVICES, "device"),
    (FLOATS, "value factor"),
    (LEVELS, "arg0"),
]
VALUES = {name: values for values, names in TAKEN for name in names.split()}
