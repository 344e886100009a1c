#include "nonfinite.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace distdbg {

namespace {

// How a dtype writes what is not finite. A number is not finite when all bits of `exponent` are set:
// adding the lowest of them then carries into the sign bit. That takes an `and`, an addition and an `or`
// per element, which every vector unit has for every width.
template <class Word, Word Exponent>
struct Ieee {
  using word = Word;
  static constexpr Word top = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
  static constexpr Word lowest = static_cast<Word>(Exponent & (~Exponent + 1));
  static Word test(Word bits) { return static_cast<Word>((bits & Exponent) + lowest); }
  static bool is_bad(Word bits) { return (bits & Exponent) == Exponent; }
  static bool is_nan(Word bits) { return (bits & static_cast<Word>(top - 1)) > Exponent; }
};

// Only NaN, with all bits but the sign set.
struct E4m3fn : Ieee<std::uint8_t, 0x7f> {
  static bool is_nan(std::uint8_t) { return true; }
};

// Only NaN, the pattern of -0.0.
struct Fnuz {
  using word = std::uint8_t;
  static constexpr word top = 0x80;
  static word test(word bits) {
    const auto other = static_cast<word>(bits ^ top);
    return static_cast<word>(~(((other & 0x7f) + 0x7f) | other));
  }
  static bool is_bad(word bits) { return bits == top; }
  static bool is_nan(word) { return true; }
};

template <class Format>
typename Format::word at(const void* data, std::uint64_t index) {
  typename Format::word word;
  std::memcpy(&word, static_cast<const std::byte*>(data) + index * sizeof word, sizeof word);
  return word;
}

template <class Format>
bool any(const void* data, std::uint64_t count) {
  // A piece at a time, so that a bad array is told early and the inner loop has no exit.
  constexpr std::uint64_t piece = 16 * 1024;
  for (std::uint64_t begin = 0; begin < count; begin += piece) {
    const std::uint64_t end = std::min(count, begin + piece);
    typename Format::word seen = 0;
    for (std::uint64_t i = begin; i < end; ++i)
      seen = static_cast<typename Format::word>(seen | Format::test(at<Format>(data, i)));
    if ((seen & Format::top) != 0) return true;
  }
  return false;
}

template <class Format>
NonFinite find(const void* data, std::uint64_t count, std::uint64_t parts) {
  NonFinite found;
  for (std::uint64_t i = 0; i < count; ++i) {
    for (std::uint64_t part = 0; part < parts; ++part) {
      const auto bits = at<Format>(data, i * parts + part);
      if (!Format::is_bad(bits)) continue;
      if (found.bad_count++ == 0) {
        found.first = i;
        found.first_is_nan = Format::is_nan(bits);
      }
      break;
    }
  }
  return found;
}

using Float16 = Ieee<std::uint16_t, 0x7c00>;
using Bfloat16 = Ieee<std::uint16_t, 0x7f80>;
using E5m2 = Ieee<std::uint8_t, 0x7c>;
using Float32 = Ieee<std::uint32_t, 0x7f80'0000>;
using Float64 = Ieee<std::uint64_t, 0x7ff0'0000'0000'0000>;

// Calls `use` with the format of the dtype and how many numbers make one element.
template <class Result, class Use>
Result with_format(Dtype dtype, Use&& use) {
  switch (dtype) {
    case Dtype::float16: return use(Float16{}, std::uint64_t{1});
    case Dtype::bfloat16: return use(Bfloat16{}, std::uint64_t{1});
    case Dtype::float8_e4m3fn: return use(E4m3fn{}, std::uint64_t{1});
    case Dtype::float8_e5m2: return use(E5m2{}, std::uint64_t{1});
    case Dtype::float8_e4m3fnuz:
    case Dtype::float8_e5m2fnuz: return use(Fnuz{}, std::uint64_t{1});
    case Dtype::float32: return use(Float32{}, std::uint64_t{1});
    case Dtype::float64: return use(Float64{}, std::uint64_t{1});
    case Dtype::complex64: return use(Float32{}, std::uint64_t{2});
    case Dtype::complex128: return use(Float64{}, std::uint64_t{2});
    case Dtype::bool_:
    case Dtype::uint8:
    case Dtype::int8:
    case Dtype::uint16:
    case Dtype::int16:
    case Dtype::uint32:
    case Dtype::int32:
    case Dtype::uint64:
    case Dtype::int64: break;
  }
  return Result{};
}

}  // namespace

bool can_be_nonfinite(Dtype dtype) {
  return with_format<bool>(dtype, [](auto, std::uint64_t) { return true; });
}

bool any_nonfinite(Dtype dtype, const void* data, std::uint64_t count) {
  return with_format<bool>(dtype, [&](auto format, std::uint64_t parts) {
    return any<decltype(format)>(data, count * parts);
  });
}

NonFinite find_nonfinite(Dtype dtype, const void* data, std::uint64_t count) {
  return with_format<NonFinite>(dtype, [&](auto format, std::uint64_t parts) {
    return find<decltype(format)>(data, count, parts);
  });
}

}  // namespace distdbg
