"""What a step sees of its rank: the module under test, its group, and arrays that are watched.

A step makes all its arrays here. Those that an op only reads must be unchanged when it is done; and
when a step is done all its arrays are overwritten, because a program may do that then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from differential.values import Array, describe, make_output, make_values, scribble

Step = dict[str, Any]


@dataclass(slots=True)
class Context:
    """One step on one rank."""

    dist: Any
    """torch.distributed, or a module with the same API."""
    to_array: Callable[[Array], Any]
    """From NumPy to what `dist` takes, over the same memory."""
    step: Step
    index: int
    """Of the step in its program; the contents of its arrays follow from it."""
    rank: int
    members: list[int]
    """Global ranks in the order of their group ranks."""
    group: Any
    read: list[tuple[Array, str]] = field(default_factory=list)
    written: list[Array] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def group_rank(self) -> int:
        return self.members.index(self.rank)

    @property
    def root(self) -> int:
        """The group rank that the step's root stands for."""
        return int(self.step["root"]) % self.size

    @property
    def is_root(self) -> bool:
        return self.group_rank == self.root

    def rooted(self, end: str) -> dict[str, int]:
        """The root as keyword: `end` is 'src' or 'dst'; in which of the ways, the step says."""
        if self.step["form"] == "group":
            return {f"group_{end}": self.root}
        return {end: self.members[self.root]}

    def fill(self, shape: list[int], key: int, sender: int | None = None) -> Array:
        """The contents that `sender` (a group rank, by default this one) has under `key`."""
        whose = self.group_rank if sender is None else sender
        number = (self.index * 64 + key) * 16 + whose
        step = self.step
        return make_values(step["dtype"], tuple(shape), number, step.get("op", "SUM"), self.size)

    def input(self, shape: list[int], key: int = 0) -> Any:
        """An array that the op must not change."""
        array = self.fill(shape, key)
        self.read.append((array, _digest(array)))
        return self.to_array(array)

    def output(self, shape: list[int]) -> Any:
        """An array that the op overwrites and whose contents are a result."""
        array = make_output(self.step["dtype"], tuple(shape))
        self.written.append(array)
        return self.to_array(array)

    def in_place(self, shape: list[int], key: int = 0, *, is_result: bool = True) -> Any:
        """An array that the op reads and overwrites; `is_result`: and whose contents count."""
        array = self.fill(shape, key)
        if self.step.get("transposed"):
            array = np.asfortranarray(array)
        if is_result:
            self.written.append(array)
        return self.to_array(array)

    def reduce_op(self) -> Any:
        return getattr(self.dist.ReduceOp, self.step["op"])

    def collect(self) -> dict[str, Any]:
        """The results, once the op is done; the arrays are garbage afterwards."""
        outputs = [describe(array) for array in self.written]
        changed = [place for place, (array, was) in enumerate(self.read) if _digest(array) != was]
        for array in [*self.written, *(array for array, _ in self.read)]:
            scribble(array)
        return {"outputs": outputs, "changed_inputs": changed}


def _digest(array: Array) -> str:
    return hashlib.sha1(array.tobytes()).hexdigest()
