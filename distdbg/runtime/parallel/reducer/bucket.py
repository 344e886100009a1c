"""A Bucket of the reducer: gradients of several parameters in one flat array; and what hooks see of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdbg.errors import UsageError
from distdbg.runtime.parallel.reducer.arrays import Array, Arrays
from distdbg.runtime.parallel.reducer.buckets import Buckets
from distdbg.runtime.parallel.reducer.names import bucket_name
from distdbg.runtime.parallel.reducer.parameters import Parameter


class Bucket:
    """Some parameters whose gradients are reduced by one op."""

    __slots__ = ("flat", "index", "indices", "name", "nbytes", "views", "waits_for", "whole")

    def __init__(
        self,
        index: int,
        indices: Sequence[int],
        whole: Array,
        flat: Array,
        views: Sequence[Array],
        name: str,
        nbytes: int,
    ) -> None:
        self.index = index
        #: `flat`, and behind it in the last bucket the status of the pass.
        self.whole = whole
        #: Numbers of the parameters, in the order of their places in `flat`.
        self.indices = tuple(indices)
        self.flat = flat
        self.views = list(views)
        #: 'DDP bucket 3 of layer4'.
        self.name = name
        self.nbytes = nbytes
        #: How many gradients have not come in this pass.
        self.waits_for = len(self.indices)


def make_buckets(
    buckets: Buckets, parameters: Sequence[Parameter], values: Sequence[Array], arrays: Arrays
) -> list[Bucket]:
    """Buckets of these parameters; `values` are what the gradients are of."""
    made = []
    for at, indices in enumerate(buckets):
        counts = [parameters[i].count for i in indices]
        count = sum(counts)
        whole = arrays.make(values[indices[0]], count + (at == len(buckets) - 1))
        flat = whole[:count]
        views, begin = [], 0
        for i, length in zip(indices, counts, strict=True):
            views.append(arrays.part(flat, begin, values[i]))
            begin += length
        name = bucket_name(at, [parameters[i].name for i in indices])
        nbytes = sum(parameters[i].nbytes for i in indices)
        made.append(Bucket(at, indices, whole, flat, views, name, nbytes))
    return made


class GradBucket:
    """One bucket, as a comm hook is given it; torch's methods."""

    __slots__ = ("_buffer", "_gradients", "_index", "_is_last", "_parameters")

    def __init__(
        self,
        index: int,
        buffer: Array,
        gradients: Sequence[Array],
        parameters: Sequence[Array],
        is_last: bool,
    ) -> None:
        self._index = index
        self._buffer = buffer
        self._gradients = list(gradients)
        self._parameters = list(parameters)
        self._is_last = is_last

    def index(self) -> int:
        """Return its number: buckets are reduced in this order."""
        return self._index

    def buffer(self) -> Any:
        """Return the flat array of all gradients in it; they are not divided by the number of ranks."""
        return self._buffer

    def gradients(self) -> list[Any]:
        """Return the gradient of each parameter, a view of the buffer."""
        return list(self._gradients)

    def parameters(self) -> list[Any]:
        """Return the parameters, in the order of the gradients."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Return whether no bucket follows in this pass."""
        return self._is_last

    def set_buffer(self, buffer: Any) -> None:
        """Replace the flat array; the gradients stay views of the old one."""
        if tuple(buffer.shape) != tuple(self._buffer.shape):
            raise UsageError(
                f"set_buffer: the buffer of bucket {self._index} has shape {list(self._buffer.shape)}, "
                f"the new one {list(buffer.shape)}"
            )
        self._buffer = buffer
