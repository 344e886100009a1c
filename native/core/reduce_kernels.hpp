// The kernels as templates, and the table of them that reduce.cpp dispatches on.
//
// Compiled once per instruction set (reduce_baseline.cpp, reduce_avx2.cpp, reduce_avx512.cpp), so all
// of it has internal linkage and instantiates nothing of std: a shared inline function compiled
// for AVX-512 could otherwise be the copy the linker keeps for everyone.
#pragma once

#include <cstdint>
#include <type_traits>

#include "dtype.hpp"
#include "reduce_table.hpp"
#include "small_float.hpp"

// An iteration touches one index of each array, so exact aliasing (dst == a) is harmless; the compiler
// has to be told, or it makes run-time checks that send in-place calls to the scalar loop.
#if defined(__clang__)
#define DISTDBG_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define DISTDBG_VECTORISE _Pragma("GCC ivdep")
#endif

namespace distdbg {
namespace {

// bool as a byte: anything but 0 is true, results are 0 or 1.
struct Bool {
  std::uint8_t bits;
};

template <class T>
constexpr bool is_small_float = requires(T value) { value.widen(); };
template <class T>
constexpr bool is_native_float = false;
template <>
constexpr bool is_native_float<float> = true;
template <>
constexpr bool is_native_float<double> = true;

// Wraps around also for signed types, where plain + would be undefined; small types are widened to
// unsigned int, not int, since 65535 * 65535 overflows an int.
template <class T>
struct Wrapping {
  using type = T;
};
template <>
struct Wrapping<std::int64_t> {
  using type = std::uint64_t;
};
template <>
struct Wrapping<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct Wrapping<std::int16_t> {
  using type = std::uint32_t;
};
template <>
struct Wrapping<std::uint16_t> {
  using type = std::uint32_t;
};
template <>
struct Wrapping<std::int8_t> {
  using type = std::uint32_t;
};
template <>
struct Wrapping<std::uint8_t> {
  using type = std::uint32_t;
};

template <class T>
using Wrap = typename Wrapping<T>::type;

template <class T>
T choose(int condition, T a, T b) {
  return {static_cast<decltype(a.bits)>(select(condition != 0, a.bits, b.bits))};
}

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (is_small_float<T>) {
      return T::narrow(a.widen() + b.widen());
    } else {
      return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b));
    }
  }
  static Bool apply(Bool a, Bool b) { return {static_cast<std::uint8_t>((a.bits | b.bits) != 0)}; }
};

struct Product {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (is_small_float<T>) {
      return T::narrow(a.widen() * b.widen());
    } else {
      return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b));
    }
  }
  static Bool apply(Bool a, Bool b) {
    return {
        static_cast<std::uint8_t>(static_cast<int>(a.bits != 0) & static_cast<int>(b.bits != 0))};
  }
};

// NaN != NaN: `a` is kept when it is NaN, `b` when the comparison fails because of it.
struct Min {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (is_small_float<T>) {
      const float x = a.widen(), y = b.widen();
      return choose(static_cast<int>(x <= y) | static_cast<int>(x != x), a, b);
    } else if constexpr (is_native_float<T>) {
      return static_cast<int>(a <= b) | static_cast<int>(a != a) ? a : b;
    } else {
      return a < b ? a : b;
    }
  }
  static Bool apply(Bool a, Bool b) { return Product::apply(a, b); }
};

struct Max {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (is_small_float<T>) {
      const float x = a.widen(), y = b.widen();
      return choose(static_cast<int>(x >= y) | static_cast<int>(x != x), a, b);
    } else if constexpr (is_native_float<T>) {
      return static_cast<int>(a >= b) | static_cast<int>(a != a) ? a : b;
    } else {
      return a > b ? a : b;
    }
  }
  static Bool apply(Bool a, Bool b) { return Sum::apply(a, b); }
};

struct And {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
  static Bool apply(Bool a, Bool b) { return Product::apply(a, b); }
};

struct Or {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
  static Bool apply(Bool a, Bool b) { return Sum::apply(a, b); }
};

struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
  static Bool apply(Bool a, Bool b) {
    return {
        static_cast<std::uint8_t>(static_cast<int>(a.bits != 0) ^ static_cast<int>(b.bits != 0))};
  }
};

}  // namespace
}  // namespace distdbg

#if defined(DISTDBG_F16C)
#include "reduce_f16c.hpp"
#endif

namespace distdbg {
namespace {

// Unaligned element access: user buffers come from anywhere (a slice of a bytearray, a message).
template <class T>
struct [[gnu::packed]] Unaligned {
  T value;
};

template <class Op, class T>
void reduce_loop(void* dst, const void* a, const void* b, std::uint64_t count) {
  auto* const out = static_cast<Unaligned<T>*>(dst);
  const auto* const left = static_cast<const Unaligned<T>*>(a);
  const auto* const right = static_cast<const Unaligned<T>*>(b);
  std::uint64_t first = 0;
#if defined(DISTDBG_F16C)
  if constexpr (std::is_same_v<T, Float16>) first = reduce_halves<Op>(dst, a, b, count);
#endif
  DISTDBG_VECTORISE
  for (std::uint64_t i = first; i < count; ++i) {
    out[i].value = Op::apply(T(left[i].value), T(right[i].value));
  }
}

template <class T>
void divide_loop(void* data, std::uint64_t count, std::uint32_t by) {
  auto* const values = static_cast<Unaligned<T>*>(data);
  if constexpr (is_small_float<T>) {
    const float divisor = static_cast<float>(by);
    DISTDBG_VECTORISE
    for (std::uint64_t i = 0; i < count; ++i) {
      values[i].value = T::narrow(T(values[i].value).widen() / divisor);
    }
  } else if constexpr (is_native_float<T>) {
    const T divisor = static_cast<T>(by);
    DISTDBG_VECTORISE
    for (std::uint64_t i = 0; i < count; ++i) values[i].value = values[i].value / divisor;
  } else {
    // In 64 bits, where every dtype and every divisor fits with its sign; uint64 has none.
    using Wide = std::conditional_t<static_cast<T>(-1) < T(0), std::int64_t, std::uint64_t>;
    for (std::uint64_t i = 0; i < count; ++i) {
      values[i].value = static_cast<T>(static_cast<Wide>(values[i].value) / static_cast<Wide>(by));
    }
  }
}

template <class Op, class T>
constexpr void add_reduce(KernelTable& table, ReduceKind kind, Dtype dtype) {
  table.reduce[static_cast<int>(kind)][static_cast<int>(dtype)] = &reduce_loop<Op, T>;
}

template <class T>
constexpr void add_arithmetic(KernelTable& table, Dtype dtype) {
  add_reduce<Sum, T>(table, ReduceKind::sum, dtype);
  add_reduce<Product, T>(table, ReduceKind::product, dtype);
  add_reduce<Min, T>(table, ReduceKind::min, dtype);
  add_reduce<Max, T>(table, ReduceKind::max, dtype);
}

template <class T>
constexpr void add_bits(KernelTable& table, Dtype dtype) {
  add_reduce<And, T>(table, ReduceKind::band, dtype);
  add_reduce<Or, T>(table, ReduceKind::bor, dtype);
  add_reduce<Xor, T>(table, ReduceKind::bxor, dtype);
}

template <class T>
constexpr void add_average(KernelTable& table, Dtype dtype) {
  add_reduce<Sum, T>(table, ReduceKind::avg, dtype);
  table.divide[static_cast<int>(dtype)] = &divide_loop<T>;
}

template <class T>
constexpr void add_integer(KernelTable& table, Dtype dtype) {
  add_arithmetic<T>(table, dtype);
  add_bits<T>(table, dtype);
  add_average<T>(table, dtype);
}

template <class T>
constexpr void add_float(KernelTable& table, Dtype dtype) {
  add_arithmetic<T>(table, dtype);
  add_average<T>(table, dtype);
  add_reduce<Sum, T>(table, ReduceKind::premul_sum, dtype);
}

// A complex number is two reals: reduce.cpp doubles the count.
template <class Real>
constexpr void add_complex(KernelTable& table, Dtype dtype) {
  add_reduce<Sum, Real>(table, ReduceKind::sum, dtype);
  add_average<Real>(table, dtype);
  add_reduce<Sum, Real>(table, ReduceKind::premul_sum, dtype);
}

constexpr KernelTable make_table(const char* name) {
  KernelTable table{};
  table.name = name;
  add_arithmetic<Bool>(table, Dtype::bool_);
  add_bits<Bool>(table, Dtype::bool_);
  add_integer<std::uint8_t>(table, Dtype::uint8);
  add_integer<std::int8_t>(table, Dtype::int8);
  add_integer<std::uint16_t>(table, Dtype::uint16);
  add_integer<std::int16_t>(table, Dtype::int16);
  add_integer<std::uint32_t>(table, Dtype::uint32);
  add_integer<std::int32_t>(table, Dtype::int32);
  add_integer<std::uint64_t>(table, Dtype::uint64);
  add_integer<std::int64_t>(table, Dtype::int64);
  add_float<Float16>(table, Dtype::float16);
  add_float<BFloat16>(table, Dtype::bfloat16);
  add_float<Float8E4M3FN>(table, Dtype::float8_e4m3fn);
  add_float<Float8E5M2>(table, Dtype::float8_e5m2);
  add_float<Float8E4M3FNUZ>(table, Dtype::float8_e4m3fnuz);
  add_float<Float8E5M2FNUZ>(table, Dtype::float8_e5m2fnuz);
  add_float<float>(table, Dtype::float32);
  add_float<double>(table, Dtype::float64);
  add_complex<float>(table, Dtype::complex64);
  add_complex<double>(table, Dtype::complex128);
  return table;
}

}  // namespace
}  // namespace distdbg
