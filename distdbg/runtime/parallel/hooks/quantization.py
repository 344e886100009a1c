"""Hooks that send one byte for each number: all ranks gather all quantized buckets and average them.

    quantized = round(x / scale) + zero_point, from 0 to 255; scale and zero point of each rank and each row

A row is the whole bucket (per tensor), or 512 numbers (per channel).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from distdbg.ops.dtypes import Dtype
from distdbg.runtime.api.collectives import all_gather_into_tensor
from distdbg.runtime.arrays.torch_arrays import is_tensor
from distdbg.runtime.groups.group_argument import Group
from distdbg.runtime.parallel.hooks.allreduce import assign, cast, group_of
from distdbg.runtime.parallel.hooks.deferred import Later
from distdbg.runtime.parallel.reducer.bucket import GradBucket

Floats = npt.NDArray[np.float32]

_ROW = 512
_LEVELS = 255


def quantization_pertensor_hook(process_group: Group, bucket: GradBucket) -> Later:
    """Average with one scale for each rank's bucket."""
    return _gather(process_group, bucket, bucket.buffer().shape[0])


def quantization_perchannel_hook(
    process_group: Group, bucket: GradBucket, bucket_size: int = _ROW
) -> Later:
    """Average with one scale for each `bucket_size` numbers."""
    return _gather(process_group, bucket, bucket_size)


def _gather(process_group: Group, bucket: GradBucket, row: int) -> Later:
    group = group_of(process_group)
    buffer = bucket.buffer()
    if not buffer.shape[0]:  # has no range, and nothing to send
        return Later(lambda: buffer)
    numbers = _to_floats(buffer)
    rows = -(-numbers.size // row)
    padded = np.zeros((rows, row), np.float32)
    padded.reshape(-1)[: numbers.size] = numbers
    scales = find_scales(padded)
    bytes_ = quantize(padded, scales)
    all_scales = np.empty((group.size(), *scales.shape), np.float32)
    all_bytes = np.empty((group.size(), *bytes_.shape), np.uint8)
    works = [
        all_gather_into_tensor(all_scales, scales[None], group=group, async_op=True),
        all_gather_into_tensor(all_bytes, bytes_[None], group=group, async_op=True),
    ]

    def make() -> Any:
        for work in works:
            assert work is not None  # it is asynchronous
            work.wait()
        total = np.zeros((rows, row), np.float32)
        for of_rank, scales_of_rank in zip(all_bytes, all_scales, strict=True):
            total += dequantize(of_rank, scales_of_rank)
        total /= np.float32(group.size())
        return assign(buffer, _like(total.reshape(-1)[: numbers.size], buffer))

    return Later(make)


def find_scales(rows: Floats) -> Floats:
    """Scale and zero point of each row: zero itself is always one of the levels."""
    low = np.minimum(rows.min(axis=1), 0)
    high = np.maximum(rows.max(axis=1), 0)
    scale = np.maximum((high - low) / _LEVELS, np.finfo(np.float32).eps).astype(np.float32)
    zero = np.clip(np.round(-low / scale), 0, _LEVELS)
    return np.stack([scale, zero.astype(np.float32)], axis=1)


def quantize(rows: Floats, scales: Floats) -> npt.NDArray[np.uint8]:
    """Each number as a byte."""
    levels = np.round(rows / scales[:, :1]) + scales[:, 1:]
    return np.clip(levels, 0, _LEVELS).astype(np.uint8)


def dequantize(levels: npt.NDArray[np.uint8], scales: Floats) -> Floats:
    """The numbers that bytes stand for."""
    return scales[:, :1] * (levels.astype(np.float32) - scales[:, 1:])


def _to_floats(buffer: Any) -> Floats:
    floats = cast(buffer, Dtype.float32)
    numbers: Floats = floats.numpy() if is_tensor(floats) else floats
    return numbers


def _like(numbers: Floats, buffer: Any) -> Any:
    if not is_tensor(buffer):
        return numbers
    return sys.modules["torch"].from_numpy(np.ascontiguousarray(numbers))
