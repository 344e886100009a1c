// Copies into the user's arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace distdbg {

// memcpy that writes around the cache where the machine can. No overlap.
void copy_around_cache(std::byte* dst, const std::byte* src, std::uint64_t nbytes);

inline void copy_out(std::byte* dst, const std::byte* src, std::uint64_t nbytes, bool is_large) {
  if (is_large)
    copy_around_cache(dst, src, nbytes);
  else
    std::memcpy(dst, src, nbytes);
}

}  // namespace distdbg
