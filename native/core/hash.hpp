// A fast 64-bit hash of memory, to find out whether two arrays differ. No defence against an
// adversary. The same bytes give the same hash in every process and on every machine of one byte order.
#pragma once

#include <cstdint>

namespace distdbg {

std::uint64_t hash_bytes(const void* data, std::uint64_t nbytes, std::uint64_t seed = 0);

}  // namespace distdbg
