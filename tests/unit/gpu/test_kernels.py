"""The CUDA text of every reduction, compiled for the host, gives bit for bit what the host's engine gives."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdbg import _native
from distdbg.native import View
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType, check_reduce, make_premul_sum
from distdbg.runtime.backends.gpu.kernels import SINGLES, WORDS, kernel_name, kernel_text
from tests.unit.gpu.stand_in import scaled

SOURCES, TARGETS = 3, 2
FACTORS = (0.5, -1.75, 3.0)
WORD_NBYTES = 16
#: What CUDA gives to a kernel, for a GPU of one thread.
ONE_THREAD = """
struct Place { unsigned int x; };
static Place blockIdx{0}, blockDim{1}, threadIdx{0}, gridDim{1};
#define __device__ static
#define __global__
"""


def is_defined(op: RedOpType, dtype: Dtype) -> bool:
    try:
        check_reduce(make_premul_sum(1.0) if op is RedOpType.PREMUL_SUM else op, dtype)
    except ValueError:
        return False
    return True


REDUCTIONS = [(dtype, op) for dtype in Dtype for op in RedOpType if is_defined(op, dtype)]


def compiled(folder: Path) -> ctypes.CDLL:
    texts = [
        f"namespace of_{int(dtype)}_{int(op)} {{ {kernel_text(dtype, op, SOURCES, TARGETS)} }}"
        for dtype, op in REDUCTIONS
    ]
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text("\n".join([ONE_THREAD, *texts]))
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")))
    subprocess.run(
        [
            *compiler.split(), "-std=c++17", "-O0", "-w", "-ffp-contract=off", "-shared", "-fPIC",
            str(source), "-o", str(library),
        ],
        check=True,
        timeout=300,
    )  # fmt: skip
    return ctypes.CDLL(str(library))


def values(dtype: Dtype, count: int, random: np.random.Generator) -> Any:
    """Of small types any pattern of bits: NaN, infinity, and what is too small for full precision."""
    if dtype is Dtype.bool_:
        return random.integers(0, 2, count).astype(bool)
    if dtype.is_integral or dtype.itemsize <= 2:
        return random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype.to_numpy())
    part = np.float32 if dtype in (Dtype.float32, Dtype.complex64) else np.float64
    numbers = random.standard_normal(count * (2 if dtype.is_complex else 1)).astype(part)
    numbers[::17] = np.inf
    numbers[::19] = np.nan
    return (numbers * 10).view(dtype.to_numpy())


def expected(dtype: Dtype, op: RedOpType, sources: list[Any]) -> Any:
    if op is RedOpType.PREMUL_SUM:
        op = RedOpType.SUM
        sources = [scaled(x, factor) for x, factor in zip(sources, FACTORS, strict=True)]
    result = np.zeros_like(sources[0])
    _native.fold(int(op), int(dtype), View(result, True), [View(x, False) for x in sources])
    return result


def are_same(dtype: Dtype, found: Any, wanted: Any) -> bool:
    if dtype is Dtype.bool_ or dtype.is_integral:
        return bool((found == wanted).all())
    parts = (found, wanted)
    if dtype.is_complex:
        part = np.float32 if dtype is Dtype.complex64 else np.float64
        parts = (found.view(part), wanted.view(part))
    bits = [x.view(f"u{x.dtype.itemsize}") for x in parts]
    with np.errstate(invalid="ignore"):
        are_nan = [np.isnan(x.astype(np.float64)) for x in parts]
    return bool(((bits[0] == bits[1]) | (are_nan[0] & are_nan[1])).all())


@pytest.mark.slow
def test_every_reduction_is_that_of_the_host(tmp_path: Path) -> None:
    library = compiled(tmp_path)
    random = np.random.default_rng(1)
    for dtype, op in REDUCTIONS:
        # Copied, so that they begin where words do.
        sources = [values(dtype, 2048, random).copy() for _ in range(SOURCES)]
        wanted = expected(dtype, op, sources)
        factors = FACTORS if op is RedOpType.PREMUL_SUM else ()
        for shape in (WORDS, SINGLES):
            targets = [np.zeros_like(wanted) for _ in range(TARGETS)]
            places = [ctypes.c_void_p(x.ctypes.data) for x in (*sources, *targets)]
            count = wanted.nbytes // WORD_NBYTES if shape is WORDS else wanted.size
            getattr(library, kernel_name(shape, dtype, op))(
                *places, *map(ctypes.c_double, factors), ctypes.c_ulonglong(count)
            )
            for target in targets:
                assert are_same(dtype, target, wanted), (dtype, op, shape)


def nvrtc() -> Any:
    """The compiler of CUDA, which needs no GPU; None where the loader does not find it."""
    try:
        return ctypes.CDLL("libnvrtc.so.12")
    except OSError:
        return None


def compile_for_cuda() -> None:
    library = nvrtc()
    options = [b"--gpu-architecture=compute_80", b"--std=c++17", b"--fmad=false"]
    given = (ctypes.c_char_p * len(options))(*options)
    for dtype, op in REDUCTIONS:
        program = ctypes.c_void_p()
        text = kernel_text(dtype, op, 2, 2).encode()
        assert not library.nvrtcCreateProgram(ctypes.byref(program), text, b"k", 0, None, None)
        status = library.nvrtcCompileProgram(program, len(options), given)
        log = ctypes.create_string_buffer(1 << 16)
        if status:
            library.nvrtcGetProgramLog(program, log)
        assert not status, (dtype, op, log.value.decode())
        library.nvrtcDestroyProgram(ctypes.byref(program))


if (
    nvrtc() is not None
):  # there is no such test elsewhere: nothing that `make check` installs has it

    @pytest.mark.slow
    def test_the_compiler_of_cuda_takes_every_reduction() -> None:
        compile_for_cuda()
