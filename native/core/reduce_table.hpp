// The seam between reduce.cpp and the kernels compiled for each instruction set.
#pragma once

#include <cstdint>

#include "dtype.hpp"
#include "reduce.hpp"

namespace distdbg {

// An empty place: the op is not defined for the dtype. Complex kernels count their real parts.
struct KernelTable {
  using Reduce = void (*)(void* dst, const void* a, const void* b, std::uint64_t count);
  using Divide = void (*)(void* data, std::uint64_t count, std::uint32_t by);

  const char* name;
  Reduce reduce[reduce_kind_count][dtype_count];
  Divide divide[dtype_count];
};

extern const KernelTable baseline_kernels;
#if defined(__x86_64__)
extern const KernelTable avx2_kernels;
extern const KernelTable avx512_kernels;
#endif

}  // namespace distdbg
