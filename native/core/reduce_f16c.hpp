// float16 eight at a time with the conversion instructions of F16C, for the files that are compiled
// with it; gives the bits of Float16::widen and narrow (but for the payload of a NaN).
#pragma once

namespace distdbg {
namespace {

inline __m256 of_lanes(Sum, __m256 a, __m256 b) { return _mm256_add_ps(a, b); }
inline __m256 of_lanes(Product, __m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
inline __m256 keep_first(__m256 condition, __m256 a, __m256 b) {
  const __m256 is_nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
  return _mm256_blendv_ps(b, a, _mm256_or_ps(condition, is_nan));
}
inline __m256 of_lanes(Min, __m256 a, __m256 b) {
  return keep_first(_mm256_cmp_ps(a, b, _CMP_LE_OQ), a, b);
}
inline __m256 of_lanes(Max, __m256 a, __m256 b) {
  return keep_first(_mm256_cmp_ps(a, b, _CMP_GE_OQ), a, b);
}

inline __m256 load_halves(const void* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}

// Does the elements before the last few and says how many they were.
template <class Op>
std::uint64_t reduce_halves(void* dst, const void* a, const void* b, std::uint64_t count) {
  auto* const out = static_cast<std::uint8_t*>(dst);
  const auto* const left = static_cast<const std::uint8_t*>(a);
  const auto* const right = static_cast<const std::uint8_t*>(b);
  const std::uint64_t done = count & ~std::uint64_t{7};
  for (std::uint64_t at = 0; at < 2 * done; at += 16) {
    const __m256 result = of_lanes(Op{}, load_halves(left + at), load_halves(right + at));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + at),
                     _mm256_cvtps_ph(result, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return done;
}

}  // namespace
}  // namespace distdbg
