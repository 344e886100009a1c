// Element-wise reductions over raw memory, for every dtype.
//
// All results are bit for bit those of NumPy and ml_dtypes for `a op b`, on every instruction set
// (a NaN may carry another payload). float16, bfloat16 and float8 are computed in float and rounded to
// nearest even after every op. Where NumPy and torch leave room:
//   bool            sum, max, bor: or; product, min, band: and; bxor: xor. A byte other than 0 is true.
//   min, max        a NaN on any side wins. torch gloo keeps or drops it by its place in the buffer.
//                   Between 0.0 and -0.0 the left operand wins.
//   integers        wrap around; avg divides toward zero, as NCCL (gloo refuses it).
//   complex         sum, avg, premul_sum: torch's list.
//   premul_sum      floating point and complex only, as NCCL.
#pragma once

#include <cstdint>

#include "dtype.hpp"

namespace distdbg {

// The numbers are those of distdbg/ops/reduce_op.py and of torch.distributed.
enum class ReduceKind : std::uint8_t {
  sum = 0,
  avg = 1,
  product = 2,
  min = 3,
  max = 4,
  band = 5,
  bor = 6,
  bxor = 7,
  premul_sum = 8,
};

constexpr int reduce_kind_count = 9;

bool supports(ReduceKind kind, Dtype dtype);

// All functions below throw Error(Fault::usage) for what supports() refuses. Pointers need no
// alignment. `dst` may be `a` or `b` itself; any other overlap gives garbage.

// dst = a op b; avg and premul_sum do as sum.
void reduce(ReduceKind kind, Dtype dtype, void* dst, const void* a, const void* b,
            std::uint64_t count);

// dst = sources[0] op sources[1] op ... from left to right, in one pass over memory; avg then
// divides by `source_count`. `dst` may be one of the sources. At least one source.
void fold(ReduceKind kind, Dtype dtype, void* dst, const void* const* sources,
          std::uint32_t source_count, std::uint64_t count);

// data /= by, for avg: rounded once for floats, toward zero for integers.
void divide(Dtype dtype, void* data, std::uint64_t count, std::uint32_t by);

// Instruction sets that the kernels were built for and this machine can run, the best one last;
// choose_kernels() is for tests and benchmarks, and not safe while others reduce.
int kernel_level_count();
const char* kernel_level_name(int level);
void choose_kernels(int level);

}  // namespace distdbg
