// The kernels for any machine with the common part of AVX-512 (x86-64-v4).
#if defined(__x86_64__)

// All headers of others first: what follows the pragma is compiled for this instruction set only.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "dtype.hpp"
#include "reduce_table.hpp"

#if defined(__clang__)
#pragma clang attribute push(                                                         \
    __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512cd,avx512dq,avx512vl"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")
#endif

#define DISTDBG_F16C
#include "reduce_kernels.hpp"

namespace distdbg {

constinit const KernelTable avx512_kernels = make_table("avx512");

}  // namespace distdbg

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
