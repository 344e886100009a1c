// The search for NaN and Inf in an array of any floating-point or complex dtype.
#pragma once

#include <cstdint>

#include "dtype.hpp"

namespace distdbg {

// Whether the dtype has values that are not finite.
bool can_be_nonfinite(Dtype dtype);

// Whether any of `count` elements is NaN or infinite; as fast as memory. No alignment needed.
bool any_nonfinite(Dtype dtype, const void* data, std::uint64_t count);

struct NonFinite {
  std::uint64_t bad_count = 0;  // a complex number counts once
  std::uint64_t first = 0;
  bool first_is_nan = false;
};

// Which; one element after the other, for when there are some.
NonFinite find_nonfinite(Dtype dtype, const void* data, std::uint64_t count);

}  // namespace distdbg
