#include "copy.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace distdbg {

#if defined(__x86_64__)

namespace {

// Whole lines: stores of half a line each to two halves leave the core as one.
__attribute__((target("avx2"))) void stream_lines_avx2(std::byte* dst, const std::byte* src,
                                                       std::uint64_t count) {
  for (; count > 0; --count, dst += 64, src += 64) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst + 32), high);
  }
}

void stream_lines_sse2(std::byte* dst, const std::byte* src, std::uint64_t count) {
  for (; count > 0; --count, dst += 64, src += 64) {
    __m128i line[4];
    for (int i = 0; i < 4; ++i)
      line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src) + i);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(dst) + i, line[i]);
  }
}

using StreamLines = void (*)(std::byte*, const std::byte*, std::uint64_t);
const StreamLines stream_lines =
    __builtin_cpu_supports("avx2") ? &stream_lines_avx2 : &stream_lines_sse2;

}  // namespace

void copy_around_cache(std::byte* dst, const std::byte* src, std::uint64_t nbytes) {
  const std::uint64_t head =
      std::min<std::uint64_t>(nbytes, (64 - reinterpret_cast<std::uintptr_t>(dst) % 64) % 64);
  std::memcpy(dst, src, head);
  const std::uint64_t lines = (nbytes - head) / 64;
  stream_lines(dst + head, src + head, lines);
  _mm_sfence();  // streamed stores are not ordered by the gate's release
  const std::uint64_t done = head + lines * 64;
  std::memcpy(dst + done, src + done, nbytes - done);
}

#else

void copy_around_cache(std::byte* dst, const std::byte* src, std::uint64_t nbytes) {
  std::memcpy(dst, src, nbytes);
}

#endif

}  // namespace distdbg
