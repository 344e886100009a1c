"""The reduction kernels against NumPy and ml_dtypes, bit for bit, on every instruction set.

A NaN equals any NaN: which payload and sign survive is the processor's choice.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg import _native
from distdbg.ops.dtypes import Dtype
from distdbg.ops.reduce_op import RedOpType, ReduceOp, check_reduce, make_premul_sum

Values = np.ndarray[Any, np.dtype[Any]]

# NaN and infinity are among the operands on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")

LEVELS = list(enumerate(_native.kernel_levels()))
BEST = LEVELS[-1][0]
SIZES = [0, 1, 7, 8, 33, 1000, 70_001]
SMALL_FLOATS = [dtype for dtype in Dtype if dtype.is_floating and dtype.itemsize < 4]


@pytest.fixture(params=[level for level, _ in LEVELS], ids=[name for _, name in LEVELS])
def level(request: pytest.FixtureRequest) -> Iterator[int]:
    _native.choose_kernels(request.param)
    yield request.param
    _native.choose_kernels(BEST)


def is_defined(kind: RedOpType, dtype: Dtype) -> bool:
    return _native.supports(kind, dtype)


PAIRS = [(kind, dtype) for dtype in Dtype for kind in RedOpType if is_defined(kind, dtype)]
PAIR_IDS = [f"{kind.name}-{dtype.label}" for kind, dtype in PAIRS]


def raw(values: Values) -> Values:
    return values.view(np.dtype(f"u{min(values.itemsize, 8)}"))


def view(values: Values, writable: bool = False) -> _native.View:
    return _native.View(raw(values), writable)


def random_values(dtype: Dtype, count: int, seed: int) -> Values:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    if dtype is Dtype.bool_:
        bits &= 1
    return bits.view(dtype.to_numpy())


def reference(kind: RedOpType, a: Values, b: Values) -> Values:
    if a.dtype == np.bool_:
        kind = {
            RedOpType.SUM: RedOpType.BOR,
            RedOpType.MAX: RedOpType.BOR,
            RedOpType.PRODUCT: RedOpType.BAND,
            RedOpType.MIN: RedOpType.BAND,
        }.get(kind, kind)
    with np.errstate(all="ignore"):
        match kind:
            case RedOpType.SUM | RedOpType.AVG | RedOpType.PREMUL_SUM:
                return np.add(a, b)
            case RedOpType.PRODUCT:
                return np.multiply(a, b)
            case RedOpType.MIN:
                return np.where((a <= b) | np.isnan(a), a, b)
            case RedOpType.MAX:
                return np.where((a >= b) | np.isnan(a), a, b)
            case RedOpType.BAND:
                return np.bitwise_and(a, b)
            case RedOpType.BOR:
                return np.bitwise_or(a, b)
            case RedOpType.BXOR:
                return np.bitwise_xor(a, b)


def real_parts(values: Values) -> Values:
    return values.view(f"f{values.itemsize // 2}") if values.dtype.kind == "c" else values


def assert_same(result: Values, expected: Values) -> None:
    assert result.dtype == expected.dtype
    result, expected = real_parts(result), real_parts(expected)
    same = (raw(result) == raw(expected)) | (np.isnan(result) & np.isnan(expected))
    wrong = np.flatnonzero(~same)
    assert wrong.size == 0, (wrong[:5], result[wrong[:5]], expected[wrong[:5]])


def run(kind: RedOpType, dtype: Dtype, a: Values, b: Values) -> Values:
    dst = np.empty_like(a)
    _native.reduce(kind, dtype, view(dst, True), view(a), view(b))
    return dst


@pytest.mark.parametrize(("kind", "dtype"), PAIRS, ids=PAIR_IDS)
def test_reduce_gives_the_bits_of_numpy(level: int, kind: RedOpType, dtype: Dtype) -> None:
    for count in SIZES:
        a, b = random_values(dtype, count, count), random_values(dtype, count, count + 1)
        assert_same(run(kind, dtype, a, b), reference(kind, a, b))


@pytest.mark.parametrize("dtype", [d for d in SMALL_FLOATS if d.itemsize == 1], ids=str)
@pytest.mark.parametrize("kind", [RedOpType.SUM, RedOpType.PRODUCT, RedOpType.MIN, RedOpType.MAX])
def test_reduce_of_float8_is_right_for_every_pair_of_values(
    level: int, kind: RedOpType, dtype: Dtype
) -> None:
    codes = np.arange(256, dtype=np.uint8)
    a = np.repeat(codes, 256).view(dtype.to_numpy())
    b = np.tile(codes, 256).view(dtype.to_numpy())
    assert_same(run(kind, dtype, a, b), reference(kind, a, b))


@pytest.mark.parametrize("dtype", [Dtype.float16, Dtype.bfloat16], ids=str)
def test_reduce_of_16_bit_floats_is_right_for_every_value_beside_special_ones(
    level: int, dtype: Dtype
) -> None:
    a = np.arange(65536, dtype=np.uint16).view(dtype.to_numpy())
    # Zero, the least and greatest denormal, one, the largest, infinity, NaN, and their negatives.
    one = int(raw(np.array([1], dtype.to_numpy()))[0])
    inf = int(raw(np.array([np.inf], dtype.to_numpy()))[0])
    for code in (0, 1, 3, 0x7F, 0x3FF, one, one + 1, inf - 1, inf, inf + 1):
        for sign in (0, 0x8000):
            b = np.full(a.shape, code | sign, np.uint16).view(dtype.to_numpy())
            for kind in (RedOpType.SUM, RedOpType.PRODUCT, RedOpType.MIN, RedOpType.MAX):
                assert_same(run(kind, dtype, a, b), reference(kind, a, b))


@pytest.mark.parametrize("dtype", [d for d in Dtype if d.is_floating], ids=str)
def test_min_and_max_agree_with_numpy_on_values(level: int, dtype: Dtype) -> None:
    a, b = random_values(dtype, 20_000, 1), random_values(dtype, 20_000, 2)
    for kind, function in ((RedOpType.MIN, np.minimum), (RedOpType.MAX, np.maximum)):
        result, expected = run(kind, dtype, a, b), function(a, b)
        assert np.all((result == expected) | (np.isnan(result) & np.isnan(expected)))


def test_a_byte_other_than_0_is_true(level: int) -> None:
    a = np.array([0, 2, 255, 0, 4], np.uint8)
    b = np.array([0, 1, 0, 128, 2], np.uint8)
    for kind in (RedOpType.SUM, RedOpType.BAND, RedOpType.BXOR):
        dst = np.empty_like(a)
        _native.reduce(kind, Dtype.bool_, view(dst, True), view(a), view(b))
        expected = reference(kind, a.astype(bool), b.astype(bool))
        assert dst.tolist() == expected.view(np.uint8).tolist()


@pytest.mark.parametrize(("kind", "dtype"), PAIRS, ids=PAIR_IDS)
@pytest.mark.slow
def test_destination_may_be_a_source(level: int, kind: RedOpType, dtype: Dtype) -> None:
    a, b = random_values(dtype, 1001, 3), random_values(dtype, 1001, 4)
    for which in ("a", "b", "both"):
        left, right = a.copy(), b.copy()
        expected = reference(kind, left, left if which == "both" else right)
        dst = right if which == "b" else left
        if which == "both":
            right = left
        _native.reduce(kind, dtype, view(dst, True), view(left), view(right))
        assert_same(dst, expected)


@pytest.mark.parametrize("dtype", Dtype, ids=str)
def test_memory_needs_no_alignment(level: int, dtype: Dtype) -> None:
    count = 999
    a, b = random_values(dtype, count, 5), random_values(dtype, count, 6)
    nbytes = a.nbytes
    memory = bytearray(3 * nbytes + 3)
    parts = [memoryview(memory)[i * (nbytes + 1) :][:nbytes] for i in range(3)]
    parts[1][:], parts[2][:] = raw(a).tobytes(), raw(b).tobytes()
    dst = _native.View(parts[0], True)
    _native.reduce(RedOpType.SUM, dtype, dst, *(_native.View(part, False) for part in parts[1:]))
    result = np.frombuffer(bytes(parts[0]), dtype.to_numpy())
    assert_same(result, reference(RedOpType.SUM, a, b))


@pytest.mark.parametrize(("kind", "dtype"), PAIRS, ids=PAIR_IDS)
def test_fold_goes_from_left_to_right_whatever_the_destination(
    kind: RedOpType, dtype: Dtype
) -> None:
    count = 3 * 16384 // dtype.itemsize + 5
    for n in (1, 2, 3, 5):
        sources = [random_values(dtype, count, seed) for seed in range(n)]
        expected = sources[0]
        for source in sources[1:]:
            expected = reference(kind, expected, source)
        if kind is RedOpType.AVG and n > 1:
            expected = expected.copy()
            _native.divide(dtype, view(expected, True), n)
        for own in range(-1, n):
            places = [source.copy() for source in sources]
            dst = np.empty_like(expected) if own < 0 else places[own]
            _native.fold(kind, dtype, view(dst, True), [view(place) for place in places])
            assert_same(dst, expected)


@pytest.mark.parametrize("dtype", [d for d in Dtype if d is not Dtype.bool_], ids=str)
def test_divide_rounds_once_for_floats_and_toward_zero_for_integers(
    level: int, dtype: Dtype
) -> None:
    values = random_values(dtype, 4099, 7)
    for by in (1, 2, 3, 7, 1000):
        result = values.copy()
        _native.divide(dtype, view(result, True), by)
        if dtype.is_integral:
            quotients = [abs(v) // by * (1 if v >= 0 else -1) for v in values.tolist()]
            assert_same(result, np.array(quotients, values.dtype))
        else:
            parts = real_parts(values)
            with np.errstate(all="ignore"):
                expected = (
                    parts / parts.dtype.type(by)
                    if dtype.itemsize >= 4
                    else (parts.astype(np.float32) / np.float32(by)).astype(parts.dtype)
                )
            assert_same(real_parts(result), expected)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_reduce_is_right_for_any_bits(data: st.DataObject) -> None:
    kind, dtype = data.draw(st.sampled_from(PAIRS))
    count = data.draw(st.integers(0, 40))
    bits = st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)
    a, b = (np.frombuffer(data.draw(bits), dtype.to_numpy()) for _ in range(2))
    if dtype is Dtype.bool_:
        a, b = a.view(np.uint8) > 127, b.view(np.uint8) > 127
    assert_same(run(kind, dtype, a, b), reference(kind, a, b))


def test_native_and_python_agree_on_what_is_defined() -> None:
    assert _native.dtype_codes() == {dtype.label: dtype for dtype in Dtype}
    for dtype in Dtype:
        for kind in RedOpType:
            op = make_premul_sum(1.0) if kind is RedOpType.PREMUL_SUM else ReduceOp(kind)
            try:
                check_reduce(op, dtype)
                allowed = True
            except ValueError:
                allowed = False
            assert allowed == is_defined(kind, dtype), (kind, dtype)


def test_undefined_combinations_are_refused() -> None:
    values = np.zeros(4, np.float32)
    nothing: list[Any] = [None]
    calls: list[Callable[[], None]] = [
        lambda: _native.reduce(
            RedOpType.BAND, Dtype.float32, view(values, True), view(values), view(values)
        ),
        lambda: _native.fold(RedOpType.MAX, Dtype.complex64, view(values, True), [view(values)]),
        lambda: _native.divide(Dtype.bool_, view(values, True), 2),
        lambda: _native.reduce(99, Dtype.float32, view(values, True), view(values), view(values)),
        lambda: _native.divide(Dtype.float32, view(values), 2),
        lambda: _native.divide(Dtype.float32, view(values, True), 0),
        lambda: _native.fold(RedOpType.SUM, Dtype.float32, view(values, True), []),
        lambda: _native.fold(RedOpType.SUM, Dtype.float32, view(values, True), nothing),
    ]
    for call in calls:
        with pytest.raises(_native.Error) as caught:
            call()
        assert caught.value.fault == "usage"


def test_reductions_run_without_the_gil() -> None:
    values = np.zeros(1 << 22, np.float32)
    dst = view(np.empty_like(values), True)
    sources = [view(values)] * 24
    started, done = threading.Event(), []

    def work() -> None:
        started.set()
        _native.fold(RedOpType.SUM, Dtype.float32, dst, sources)
        done.append(True)

    thread = threading.Thread(target=work)
    interval = sys.getswitchinterval()
    # Nobody takes the GIL away within the test: this thread runs early only if fold gives it up.
    sys.setswitchinterval(30.0)
    try:
        thread.start()
        started.wait()
        ran_beside = not done
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert ran_beside
