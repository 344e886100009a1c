// Copies into the user's arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace distdbg {

// memcpy that writes around the cache where the machine can. No overlap.
inline void copy_around_cache(std::byte* dst, const std::byte* src, std::uint64_t nbytes) {
#if defined(__SSE2__)
  const std::uint64_t head =
      std::min<std::uint64_t>(nbytes, (64 - reinterpret_cast<std::uintptr_t>(dst) % 64) % 64);
  std::memcpy(dst, src, head);
  dst += head;
  src += head;
  nbytes -= head;
  for (; nbytes >= 64; nbytes -= 64, dst += 64, src += 64) {
    // Both ranks of a pair copy at once, and then the memory is slower than the core can ask for it.
    _mm_prefetch(reinterpret_cast<const char*>(src) + 2048, _MM_HINT_NTA);
    __m128i line[4];
    for (int i = 0; i < 4; ++i)
      line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src) + i);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(dst) + i, line[i]);
  }
  _mm_sfence();  // streamed stores are not ordered by the gate's release
#endif
  std::memcpy(dst, src, nbytes);
}

inline void copy_out(std::byte* dst, const std::byte* src, std::uint64_t nbytes, bool is_large) {
  if (is_large)
    copy_around_cache(dst, src, nbytes);
  else
    std::memcpy(dst, src, nbytes);
}

}  // namespace distdbg
