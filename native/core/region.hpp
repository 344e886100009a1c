// A user's array, kept alive by the caller until the op has ended.
#pragma once

#include <cstddef>
#include <cstdint>

namespace distdbg {

struct Region {
  std::byte* data;
  std::uint64_t nbytes;
};

}  // namespace distdbg
