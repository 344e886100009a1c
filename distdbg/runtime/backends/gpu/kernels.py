"""The CUDA text of reductions: for a dtype, a reduce op and numbers of sources and targets.

An element is computed as by the host's engine (native/core/reduce.hpp), bit for bit: from the first source to
the last, rounded after every op; small floats are computed in float; integers wrap around, AVG divides
toward zero; a NaN on any side wins; a bool is whether a byte is not 0. Nothing is included, so that nothing
but the compiler of CUDA is needed, or one of C++: tests compile the text for the host as well.

Two kernels: of words of 16 bytes, and of single elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType
from distdbg.runtime.backends.gpu.driver import Driver
from distdbg.runtime.backends.gpu.schedule import WORD_NBYTES, Reduction

#: Of a block; and at most so many of them, enough for every GPU there is: more would wait for their turn.
_THREADS: Final = 512
_MOST_BLOCKS: Final = 2048

WORDS: Final = "words"
SINGLES: Final = "singles"

#: What is stored, and how it is computed.
_INTEGERS: Final = {
    Dtype.uint8: ("unsigned char", "unsigned int"),
    Dtype.int8: ("signed char", "unsigned int"),
    Dtype.uint16: ("unsigned short", "unsigned int"),
    Dtype.int16: ("short", "unsigned int"),
    Dtype.uint32: ("unsigned int", "unsigned int"),
    Dtype.int32: ("int", "unsigned int"),
    Dtype.uint64: ("unsigned long long", "unsigned long long"),
    Dtype.int64: ("long long", "unsigned long long"),
}
#: Bits of the exponent and of the mantissa, the bias, and what is beyond the largest number:
#: infinity (0), NaN with a sign (1), one NaN in the place of -0 (2).
_SMALL: Final = {
    Dtype.float16: ("unsigned short", 5, 10, 15, 0),
    Dtype.float8_e4m3fn: ("unsigned char", 4, 3, 7, 1),
    Dtype.float8_e5m2: ("unsigned char", 5, 2, 15, 0),
    Dtype.float8_e4m3fnuz: ("unsigned char", 4, 3, 8, 2),
    Dtype.float8_e5m2fnuz: ("unsigned char", 5, 2, 16, 2),
}
_REAL: Final = {Dtype.float32: "float", Dtype.float64: "double"}
_COMPLEX: Final = {Dtype.complex64: "float", Dtype.complex128: "double"}


def kernel_name(shape: str, dtype: Dtype, op: RedOpType) -> str:
    """Of one of the kernels in a text."""
    return f"reduce_{op.name.lower()}_{dtype.label}_{shape}"


def kernel_text(dtype: Dtype, op: RedOpType, sources: int, targets: int) -> str:
    """Both kernels of one reduction. The first lines say what it is."""
    factors = [f"double f{i}" for i in range(sources)] if op is RedOpType.PREMUL_SUM else []
    takes = [
        *[f"const T* s{i}" for i in range(sources)],
        *[f"T* t{i}" for i in range(targets)],
        *factors,
        "unsigned long long count",
    ]
    from_many = ", ".join(f"s{i}" for i in range(sources))
    to_many = ", ".join(f"t{i}" for i in range(targets))
    by = ", ".join(f"f{i}" for i in range(sources)) if factors else "0.0"
    kernels = [
        _KERNEL.format(
            name=kernel_name(shape, dtype, op), takes=", ".join(takes), sources=from_many,
            targets=to_many, factors=by, width=width,
            is_scaled="true" if factors else "false",
        )
        for shape, width in ((WORDS, f"{WORD_NBYTES} / sizeof(T)"), (SINGLES, "1"))
    ]  # fmt: skip
    return "\n".join(
        [
            f"// {int(dtype)} {int(op)} {sources} {targets}: {dtype.label} {op.name}, "
            "sources and targets",
            f"constexpr int sources = {sources}, targets = {targets};",
            _type_text(dtype),
            _combine_text(dtype, op),
            _average_text(dtype, op, sources),
            _BODY,
            *kernels,
        ]
    )


def _type_text(dtype: Dtype) -> str:
    """T as stored, A as computed, and the ways between them; `scaled` rounds the factor first."""
    if dtype is Dtype.bool_:
        return _AS_IS.format(stored="unsigned char", computed="unsigned char", load="v != 0")
    if dtype in _INTEGERS:
        stored = _INTEGERS[dtype][0]
        return _AS_IS.format(stored=stored, computed=stored, load="v")
    if dtype in _REAL:
        return _AS_IS.format(stored=_REAL[dtype], computed=_REAL[dtype], load="v")
    if dtype in _COMPLEX:
        return _PAIR.replace("REAL", _COMPLEX[dtype])
    if dtype is Dtype.bfloat16:
        return _BFLOAT16
    stored, exponent, mantissa, bias, beyond = _SMALL[dtype]
    text = _SMALL_FLOAT
    for name, value in {
        "STORED": stored, "EXPONENT": exponent, "MANTISSA": mantissa, "BIAS": bias, "BEYOND": beyond,
    }.items():  # fmt: skip
        text = text.replace(name, str(value))
    return text


def _combine_text(dtype: Dtype, op: RedOpType) -> str:
    kind = RedOpType.SUM if op in (RedOpType.AVG, RedOpType.PREMUL_SUM) else op
    if dtype is Dtype.bool_:
        how = {
            RedOpType.SUM: "a | b", RedOpType.MAX: "a | b", RedOpType.BOR: "a | b",
            RedOpType.PRODUCT: "a & b", RedOpType.MIN: "a & b", RedOpType.BAND: "a & b",
            RedOpType.BXOR: "a ^ b",
        }[kind]  # fmt: skip
        return _COMBINE.format(result=f"(A)({how})")
    if dtype in _COMPLEX:
        return _COMBINE.format(result="{a.re + b.re, a.im + b.im}")
    if kind is RedOpType.MIN:
        return _COMBINE.format(result="a != a ? a : b != b ? b : b < a ? b : a")
    if kind is RedOpType.MAX:
        return _COMBINE.format(result="a != a ? a : b != b ? b : b > a ? b : a")
    sign = {
        RedOpType.SUM: "+", RedOpType.PRODUCT: "*", RedOpType.BAND: "&", RedOpType.BOR: "|",
        RedOpType.BXOR: "^",
    }[kind]  # fmt: skip
    if dtype in _INTEGERS:  # without a sign, where it is defined that they wrap around
        wide = _INTEGERS[dtype][1]
        return _COMBINE.format(result=f"(A)(({wide})a {sign} ({wide})b)")
    if dtype in _REAL:
        return _COMBINE.format(result=f"a {sign} b")
    return _COMBINE.format(result=f"load(store(a {sign} b))")


def _average_text(dtype: Dtype, op: RedOpType, sources: int) -> str:
    if op is not RedOpType.AVG:
        return "__device__ inline A finished(A a) { return a; }"
    if dtype in _COMPLEX:
        part = _COMPLEX[dtype]
        result = f"{{a.re / ({part}){sources}, a.im / ({part}){sources}}}"
        return f"__device__ inline A finished(A a) {{ return {result}; }}"
    return f"__device__ inline A finished(A a) {{ return (A)(a / (A){sources}); }}"


_AS_IS: Final = """
typedef {stored} T;
typedef {computed} A;
__device__ inline A load(T v) {{ return {load}; }}
__device__ inline T store(A a) {{ return (T)a; }}
__device__ inline A scaled(A a, double factor) {{ return (A)(a * (A)factor); }}
"""

_PAIR: Final = """
struct alignas(2 * sizeof(REAL)) T { REAL re, im; };
typedef T A;
__device__ inline A load(T v) { return v; }
__device__ inline T store(A a) { return a; }
__device__ inline A scaled(A a, double factor) {
  return {a.re * (REAL)factor, a.im * (REAL)factor};
}
"""

_BITS: Final = """
__device__ inline unsigned int bits_of(float a) {
  union { float a; unsigned int bits; } both;
  both.a = a;
  return both.bits;
}
__device__ inline float float_of(unsigned int bits) {
  union { float a; unsigned int bits; } both;
  both.bits = bits;
  return both.a;
}
"""

_BFLOAT16: Final = (
    _BITS
    + """
typedef unsigned short T;
typedef float A;
__device__ inline A load(T v) { return float_of((unsigned int)v << 16); }
__device__ inline T store(A a) {
  if (a != a) return 0x7fc0;
  const unsigned int bits = bits_of(a);
  return (T)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // to the nearest, and to even between two
}
__device__ inline A scaled(A a, double factor) { return load(store(a * load(store((float)factor)))); }
"""
)

_SMALL_FLOAT: Final = (
    _BITS
    + """
typedef STORED T;
typedef float A;
constexpr unsigned int sign_bit = 1u << (EXPONENT + MANTISSA);
constexpr unsigned int top = sign_bit - 1;  // the largest code without a sign
__device__ inline A load(T v) {
#if defined(__CUDA_ARCH__) && EXPONENT == 5 && MANTISSA == 10
  float found;
  asm("cvt.f32.f16 %0, %1;" : "=f"(found) : "h"(v));
  return found;
#else
  const unsigned int sign = (v & sign_bit) ? 0x80000000u : 0u;
  const unsigned int code = v & top;
  const unsigned int exponent = code >> MANTISSA, mantissa = code & ((1u << MANTISSA) - 1);
  if (BEYOND == 2 && v == sign_bit) return float_of(0x7fc00000u);
  if (BEYOND == 1 && code == top) return float_of(0x7fc00000u);
  if (BEYOND == 0 && exponent == (1u << EXPONENT) - 1)
    return float_of(mantissa ? 0x7fc00000u : sign | 0x7f800000u);
  const unsigned int whole = exponent ? mantissa + (1u << MANTISSA) : mantissa;
  const int power = (int)(exponent ? exponent : 1) - BIAS - MANTISSA;
  const float size = (float)whole * float_of((unsigned int)(power + 127) << 23);
  return float_of(bits_of(size) | sign);
#endif
}
__device__ inline T store(A a) {
#if defined(__CUDA_ARCH__) && EXPONENT == 5 && MANTISSA == 10
  unsigned short found;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(found) : "f"(a));
  return found;
#else
  const unsigned int nan = BEYOND == 0 ? (((1u << EXPONENT) - 1) << MANTISSA) + (1u << (MANTISSA - 1))
                         : BEYOND == 1 ? top : sign_bit;
  if (a != a) return (T)nan;
  const unsigned int bits = bits_of(a), sign = bits >> 31 ? sign_bit : 0;
  const int least = 1 - BIAS;  // the exponent of the smallest number in full precision
  const int raw = (int)(bits >> 23 & 0xff), exponent = raw ? raw - 127 : -126;
  const unsigned int digits = (bits & 0x7fffffu) | (raw ? 0x800000u : 0);
  const int shift = 23 - MANTISSA + (exponent < least ? least - exponent : 0);
  unsigned int code = 0;
  if (shift < 26) {
    const unsigned int rest = digits & ((1u << shift) - 1), half = 1u << (shift - 1);
    code = digits >> shift;
    if (rest > half || (rest == half && (code & 1))) ++code;
    if (exponent > least) code += (unsigned int)(exponent - least) << MANTISSA;
  }
  if (BEYOND == 0 && code >= ((1u << EXPONENT) - 1) << MANTISSA)
    return (T)(sign | ((1u << EXPONENT) - 1) << MANTISSA);
  if (BEYOND == 1 && code >= top) return (T)(sign | top);
  if (BEYOND == 2 && code > top) return (T)sign_bit;
  if (BEYOND == 2 && code == 0) return 0;
  return (T)(sign | code);
#endif
}
__device__ inline A scaled(A a, double factor) { return load(store(a * load(store((float)factor)))); }
"""
)

_COMBINE: Final = "__device__ inline A combined(A a, A b) {{ return {result}; }}"

_BODY: Final = """
template <int width>
struct alignas(width * sizeof(T)) Word { T of[width]; };

template <int width, bool is_scaled>
__device__ inline void reduce_all(const T* const* from, T* const* to, const double* factors,
                                  unsigned long long count) {
  typedef Word<width> W;
  const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    W words[sources];  // all of them are on their way before one is needed
#pragma unroll
    for (int s = 0; s < sources; ++s) words[s] = ((const W*)from[s])[i];
    W result;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      A sum = load(words[0].of[k]);
      if (is_scaled) sum = scaled(sum, factors[0]);
#pragma unroll
      for (int s = 1; s < sources; ++s) {
        A next = load(words[s].of[k]);
        if (is_scaled) next = scaled(next, factors[s]);
        sum = combined(sum, next);
      }
      result.of[k] = store(finished(sum));
    }
#pragma unroll
    for (int t = 0; t < targets; ++t) ((W*)to[t])[i] = result;
  }
}
"""

_KERNEL: Final = """
extern "C" __global__ void {name}({takes}) {{
  const T* const from[sources] = {{{sources}}};
  T* const to[targets] = {{{targets}}};
  const double factors[] = {{{factors}}};
  reduce_all<{width}, {is_scaled}>(from, to, factors, count);
}}
"""


class Kernels:
    """The compiled ones of one device. CuPy keeps them on disk as well."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._made: dict[tuple[str, Dtype, RedOpType, int, int], Any] = {}

    def queue(
        self, one: Reduction, dtype: Dtype, op: RedOpType, factors: Sequence[float], stream: Any
    ) -> None:
        """Queue a reduction in the stream."""
        places = (*one.sources, *one.targets)
        is_aligned = all(place % WORD_NBYTES == 0 for place in places)
        words = one.nbytes // WORD_NBYTES if is_aligned else 0
        if words:
            self._launch(WORDS, one, dtype, op, factors, 0, words, stream)
        done = words * WORD_NBYTES
        left = (one.nbytes - done) // dtype.itemsize
        if left:
            self._launch(SINGLES, one, dtype, op, factors, done, left, stream)

    def _launch(
        self, shape: str, one: Reduction, dtype: Dtype, op: RedOpType, factors: Sequence[float],
        start: int, count: int, stream: Any,
    ) -> None:  # fmt: skip
        kernel = self._get(shape, dtype, op, len(one.sources), len(one.targets))
        arguments: list[Any] = [np.uint64(place + start) for place in (*one.sources, *one.targets)]
        if op is RedOpType.PREMUL_SUM:
            arguments += [np.float64(factor) for factor in factors]
        blocks = min(_MOST_BLOCKS, -(-count // _THREADS))
        with stream:
            kernel((blocks,), (_THREADS,), (*arguments, np.uint64(count)))

    def _get(self, shape: str, dtype: Dtype, op: RedOpType, sources: int, targets: int) -> Any:
        key = (shape, dtype, op, sources, targets)
        kernel = self._made.get(key)
        if kernel is None:
            text = kernel_text(dtype, op, sources, targets)
            kernel = self._made[key] = self._driver.kernel(text, kernel_name(shape, dtype, op))
        return kernel
