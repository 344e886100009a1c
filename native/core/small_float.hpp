// float16, bfloat16 and the float8 types as bits, and their exact conversions from and to float.
//
// No branches, so loops over them vectorise; no denormal float is ever an operand, so a process that
// flushes denormals (torch.set_flush_denormal) gets the same results.
// Everything has internal linkage: each kernel file compiles its own copy for its instruction set.
#pragma once

#include <cstdint>

namespace distdbg {
namespace {

enum class Special {
  ieee,  // the highest exponent is infinity and NaN
  fn,    // no infinity; all ones is NaN
  fnuz,  // no infinity, no negative zero: its code is the only NaN
};

inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// Both sides are computed, and blended with a mask: written with ?: the compiler is free to jump, and
// then the loop around it stays scalar.
inline std::uint32_t mask_of(bool condition) { return 0u - static_cast<std::uint32_t>(condition); }
inline std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) {
  return (a & mask_of(condition)) | (b & ~mask_of(condition));
}

// Bits without a sign bit compare as signed numbers, which is what vector instructions can do.
inline bool at_least(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a) >= static_cast<std::int32_t>(b);
}

template <class Storage, int mantissa_bits, int exponent_bits, int bias, Special special>
struct SmallFloat {
  Storage bits;

  static constexpr int width = 1 + exponent_bits + mantissa_bits;
  static constexpr int shift = 23 - mantissa_bits;
  static constexpr std::uint32_t sign_bit = 1u << (width - 1);
  static constexpr std::uint32_t magnitude_mask = sign_bit - 1;
  static constexpr std::uint32_t exponent_mask = ((1u << exponent_bits) - 1) << mantissa_bits;
  // Adding this to shifted bits turns the small exponent into float's.
  static constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - bias) << 23;
  // The smallest normal number, as float bits.
  static constexpr std::uint32_t least_normal = static_cast<std::uint32_t>(128 - bias) << 23;
  // A float whose last bit weighs as much as the smallest denormal: adding it rounds to one.
  static constexpr std::uint32_t rounder = static_cast<std::uint32_t>(128 - bias + shift) << 23;
  static constexpr std::uint32_t nan_bits = special == Special::ieee
                                                ? (exponent_mask | (1u << (mantissa_bits - 1)))
                                            : special == Special::fn ? magnitude_mask
                                                                     : sign_bit;
  static constexpr std::uint32_t overflow_bits =
      special == Special::ieee ? exponent_mask : nan_bits;
  // The first magnitude that is not finite.
  static constexpr std::uint32_t finite_end = special == Special::ieee ? exponent_mask
                                              : special == Special::fn ? magnitude_mask
                                                                       : sign_bit;

  static bool is_nan(std::uint32_t code) {
    if constexpr (special == Special::ieee) return (code & magnitude_mask) > exponent_mask;
    if constexpr (special == Special::fn) return (code & magnitude_mask) == magnitude_mask;
    return code == sign_bit;
  }

  float widen() const {
    const std::uint32_t code = bits;
    const std::uint32_t magnitude = code & magnitude_mask;
    const std::uint32_t sign = (code & sign_bit) << (32 - width);
    const std::uint32_t normal = (magnitude << shift) + rebias;
    const std::uint32_t denormal =
        bits_of(float_of((magnitude << shift) + least_normal) - float_of(least_normal));
    std::uint32_t result = select((magnitude >> mantissa_bits) == 0, denormal, normal);
    if constexpr (special == Special::ieee) {
      result =
          select(at_least(magnitude, exponent_mask), (magnitude << shift) | 0x7f800000u, result);
    } else {
      result = select(is_nan(code), 0x7fc00000u, result);
    }
    return float_of(result | sign);
  }

  static SmallFloat narrow(float value) {
    const std::uint32_t code = bits_of(value);
    const std::uint32_t magnitude = code & 0x7fffffffu;
    const std::uint32_t sign = (code >> (32 - width)) & sign_bit;
    const std::uint32_t odd = (magnitude >> shift) & 1u;
    const std::uint32_t normal = (magnitude + odd + ((1u << (shift - 1)) - 1) - rebias) >> shift;
    const std::uint32_t denormal = bits_of(float_of(magnitude) + float_of(rounder)) - rounder;
    std::uint32_t result = select(at_least(magnitude, least_normal), normal, denormal);
    result = select(at_least(result, finite_end), overflow_bits, result);
    if constexpr (special == Special::ieee) {
      // The top of the payload is kept, and the NaN is quiet, as the hardware does it.
      const std::uint32_t nan = nan_bits | ((magnitude >> shift) & magnitude_mask);
      result = select(at_least(magnitude, 0x7f800001u), nan, result);
      return {static_cast<Storage>(result | sign)};
    }
    result = select(at_least(magnitude, 0x7f800001u), nan_bits, result);
    if constexpr (special == Special::fnuz) {
      return {static_cast<Storage>(select(result == 0, 0u, result | sign))};
    }
    return {static_cast<Storage>(result | sign)};
  }
};

using Float16 = SmallFloat<std::uint16_t, 10, 5, 15, Special::ieee>;
using Float8E4M3FN = SmallFloat<std::uint8_t, 3, 4, 7, Special::fn>;
using Float8E5M2 = SmallFloat<std::uint8_t, 2, 5, 15, Special::ieee>;
using Float8E4M3FNUZ = SmallFloat<std::uint8_t, 3, 4, 8, Special::fnuz>;
using Float8E5M2FNUZ = SmallFloat<std::uint8_t, 2, 5, 16, Special::fnuz>;

// Float with its lower half cut off: the same exponent, so neither denormals nor overflow are special.
struct BFloat16 {
  std::uint16_t bits;

  static bool is_nan(std::uint32_t code) { return (code & 0x7fffu) > 0x7f80u; }

  float widen() const { return float_of(static_cast<std::uint32_t>(bits) << 16); }

  static BFloat16 narrow(float value) {
    const std::uint32_t code = bits_of(value);
    const std::uint32_t rounded = (code + 0x7fffu + ((code >> 16) & 1u)) >> 16;
    const std::uint32_t nan = ((code >> 16) & 0x8000u) | 0x7fc0u;
    return {static_cast<std::uint16_t>(
        select(at_least(code & 0x7fffffffu, 0x7f800001u), nan, rounded))};
  }
};

}  // namespace
}  // namespace distdbg
