"""PowerSGD (Vogels, Karimireddy, Jaggi 2019): the product of two thin matrices in place of each gradient.

    M            the gradient of a rank as an n x m matrix, plus what the last pass has lost
    P = M Q      n x r; summed over ranks, its columns made orthonormal
    Q = M' P     m x r; averaged over ranks; the next pass begins with it
    P Q'         the average that all ranks use; M - P Q' is what it has lost

What is small or has one dimension is averaged as it is. Before `start_powerSGD_iter` passes everything is.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distdbg.errors import UsageError
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.api.collectives import all_reduce
from distdbg.runtime.arrays.buffers import copy_of, empty_like
from distdbg.runtime.arrays.torch_arrays import is_tensor
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import Group
from distdbg.runtime.parallel.hooks.allreduce import allreduce_hook, assign, cast, group_of
from distdbg.runtime.parallel.hooks.deferred import Later
from distdbg.runtime.parallel.reducer.arrays import Array
from distdbg.runtime.parallel.reducer.bucket import GradBucket


@dataclass(slots=True)
class PowerSGDState:
    """Options, and what one pass leaves for the next; torch's names."""

    process_group: Group
    matrix_approximation_rank: int = 1
    start_powerSGD_iter: int = 1_000
    min_compression_rate: float = 2
    use_error_feedback: bool = True
    warm_start: bool = True
    orthogonalization_epsilon: float = 0
    random_seed: int = 0
    iter: int = 0
    #: By bucket: what was lost, and the Q of each matrix.
    errors: dict[int, Array] = field(default_factory=dict)
    factors: dict[int, list[Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needs_two = self.use_error_feedback or self.warm_start
        if self.start_powerSGD_iter <= 1 and needs_two:
            raise UsageError(
                "PowerSGDState: start_powerSGD_iter is 2 or more with error feedback or warm start: "
                "the buckets are made anew after the first pass"
            )
        if self.matrix_approximation_rank < 1:
            raise UsageError("PowerSGDState: matrix_approximation_rank is 1 or more")


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Later:
    """Average the matrices of a bucket one by one."""
    if _is_before(state, bucket):
        return allreduce_hook(state.process_group, bucket)
    buffer = bucket.buffer()
    matrices, vectors = [], []
    begin = 0
    for parameter in bucket.parameters():
        count = math.prod(parameter.shape)
        part = buffer[begin : begin + count]
        begin += count
        rows = parameter.shape[0] if len(parameter.shape) > 1 else 1
        if _is_worth_it(state, rows, count):
            matrices.append(part.reshape(rows, -1))
        else:
            vectors.append(part)
    return _Compression(state, bucket.index(), buffer, matrices, vectors).begin()


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Later:
    """Average a whole bucket as one square matrix: fewer ops, and more is lost."""
    if _is_before(state, bucket):
        return allreduce_hook(state.process_group, bucket)
    buffer = bucket.buffer()
    count = buffer.shape[0]
    side = math.isqrt(count - 1) + 1 if count else 0
    if side * side == count:
        matrix = buffer.reshape(side, side)
        return _Compression(state, bucket.index(), buffer, [matrix], []).begin()
    padded = empty_like(buffer, (side * side,))
    padded[count:] = 0
    assign(padded[:count], buffer)
    matrix = padded.reshape(side, side)
    later = _Compression(state, bucket.index(), padded, [matrix], []).begin()
    return later.then(lambda done: assign(buffer, done.value()[:count]))


def _is_before(state: PowerSGDState, bucket: GradBucket) -> bool:
    """Whether this pass is averaged as it is; counts passes."""
    is_before = state.iter < state.start_powerSGD_iter
    if bucket.is_last():
        state.iter += 1
    return is_before


def _is_worth_it(state: PowerSGDState, rows: int, count: int) -> bool:
    columns = count // max(rows, 1)
    sent = (rows + columns) * state.matrix_approximation_rank
    return rows > 1 and sent * state.min_compression_rate < count


class _Compression:
    """One bucket of one pass."""

    def __init__(
        self,
        state: PowerSGDState,
        index: int,
        flat: Array,
        matrices: list[Array],
        vectors: list[Array],
    ) -> None:
        self._state = state
        self._index = index
        self._flat = flat
        self._matrices = matrices
        self._vectors = vectors
        self._group: ProcessGroup = group_of(state.process_group)
        self._whole: Array = None

    def begin(self) -> Later:
        """Start the sums of the first factors and of what is not compressed."""
        state, flat = self._state, self._flat
        if state.use_error_feedback:
            lost = state.errors.get(self._index)
            if lost is not None:
                flat += lost
            self._whole = copy_of(flat)
        right = self._right_factors()
        left = [matrix @ factor for matrix, factor in zip(self._matrices, right, strict=True)]
        packed_left, left = _pack(flat, left)
        packed_vectors, vectors = _pack(flat, self._vectors)
        works = [
            all_reduce(packed, group=self._group, async_op=True)
            for packed in (packed_vectors, packed_left)
            if packed.shape[0]
        ]

        def make() -> Array:
            for work in works:
                assert work is not None  # it is asynchronous
                work.wait()
            return self._end(left, vectors)

        return Later(make)

    def _end(self, left: list[Array], vectors: list[Array]) -> Array:
        state, size = self._state, self._group.size()
        for part, total in zip(self._vectors, vectors, strict=True):
            assign(part, total / size)
        for factor in left:
            orthogonalize(factor, state.orthogonalization_epsilon)
        right = [matrix.T @ factor for matrix, factor in zip(self._matrices, left, strict=True)]
        packed, right = _pack(self._flat, right)
        if packed.shape[0]:
            all_reduce(packed, group=self._group)
            packed /= size
        for matrix, one, other in zip(self._matrices, left, right, strict=True):
            assign(matrix, one @ other.T)
        if state.use_error_feedback:
            self._whole -= self._flat
            state.errors[self._index] = self._whole
        if state.warm_start:
            state.factors[self._index] = right
        return self._flat

    def _right_factors(self) -> list[Array]:
        """Those of the pass before, or random ones, the same on all ranks; with orthonormal columns."""
        state = self._state
        kept = state.factors.get(self._index)
        shapes = [
            (matrix.shape[1], min(*matrix.shape, state.matrix_approximation_rank))
            for matrix in self._matrices
        ]
        if kept is None or [tuple(one.shape) for one in kept] != shapes:
            rng = np.random.default_rng([state.random_seed, state.iter, self._index])
            kept = [_like(rng.standard_normal(shape), self._flat) for shape in shapes]
        for factor in kept:
            orthogonalize(factor, state.orthogonalization_epsilon)
        return kept


def orthogonalize(matrix: Array, epsilon: float) -> None:
    """Make the columns orthonormal, in place: by QR, or with an epsilon by Gram-Schmidt, as torch does.

    Only QR gives orthonormal columns where some depend on others.
    """
    if epsilon == 0:
        library = sys.modules["torch"] if is_tensor(matrix) else np
        wide = cast(matrix, Dtype.float64 if matrix.dtype.itemsize == 8 else Dtype.float32)
        assign(matrix, library.linalg.qr(wide)[0])
        return
    columns = matrix.shape[1]
    for at in range(columns):
        column = matrix[:, at : at + 1]
        column /= float((column * column).sum()) ** 0.5 + epsilon
        rest = matrix[:, at + 1 :]
        rest -= (column * rest).sum(0) * column


def _pack(like: Array, arrays: list[Array]) -> tuple[Array, list[Array]]:
    """One flat array of all elements, and the arrays as views of it."""
    counts = [math.prod(array.shape) for array in arrays]
    flat = empty_like(like, (sum(counts),))
    views, begin = [], 0
    for array, count in zip(arrays, counts, strict=True):
        view = flat[begin : begin + count].reshape(array.shape)
        assign(view, array)
        views.append(view)
        begin += count
    return flat, views


def _like(numbers: Any, array: Array) -> Array:
    if is_tensor(array):
        return sys.modules["torch"].from_numpy(numbers).to(array.dtype)
    return numbers.astype(array.dtype)
