// Chooses the kernels for this machine, and what several kernels make together.
#include "reduce.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>

#include "error.hpp"
#include "reduce_table.hpp"

namespace distdbg {

namespace {

constexpr const KernelTable* all_levels[] = {
    &baseline_kernels,
#if defined(__x86_64__)
    &avx2_kernels,
    &avx512_kernels,
#endif
};

int count_levels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has_avx512 ? 3 : has_avx2 ? 2 : 1;
#else
  return 1;
#endif
}

// Null until the first reduction; every thread would compute the same value.
std::atomic<const KernelTable*> chosen{nullptr};

const KernelTable& kernels() {
  const KernelTable* table = chosen.load(std::memory_order_relaxed);
  if (table == nullptr) {
    table = all_levels[count_levels() - 1];
    chosen.store(table, std::memory_order_relaxed);
  }
  return *table;
}

constexpr const char* kind_names[reduce_kind_count] = {"sum",  "avg", "product", "min",       "max",
                                                       "band", "bor", "bxor",    "premul_sum"};

[[noreturn]] void refuse(ReduceKind kind, Dtype dtype) {
  throw Error(Fault::usage, std::string(kind_names[static_cast<int>(kind)]) +
                                " is not defined for " + dtype_name(dtype));
}

constexpr std::uint64_t parts(Dtype dtype) {
  return dtype == Dtype::complex64 || dtype == Dtype::complex128 ? 2 : 1;
}

KernelTable::Reduce find_reduce(ReduceKind kind, Dtype dtype) {
  const auto kernel = kernels().reduce[static_cast<int>(kind)][static_cast<int>(dtype)];
  if (kernel == nullptr) refuse(kind, dtype);
  return kernel;
}

// How much of dst is worked on at a time in fold(): it stays in the first-level cache while the sources
// stream through. Divides evenly by every itemsize.
constexpr std::uint64_t fold_chunk_nbytes = 16 * 1024;

}  // namespace

bool supports(ReduceKind kind, Dtype dtype) {
  return baseline_kernels.reduce[static_cast<int>(kind)][static_cast<int>(dtype)] != nullptr;
}

void reduce(ReduceKind kind, Dtype dtype, void* dst, const void* a, const void* b,
            std::uint64_t count) {
  find_reduce(kind, dtype)(dst, a, b, count * parts(dtype));
}

void divide(Dtype dtype, void* data, std::uint64_t count, std::uint32_t by) {
  const auto kernel = kernels().divide[static_cast<int>(dtype)];
  if (kernel == nullptr) refuse(ReduceKind::avg, dtype);
  if (by == 0) throw Error(Fault::usage, "division of a sum by 0 ranks");
  if (by > 1) kernel(data, count * parts(dtype), by);
}

void fold(ReduceKind kind, Dtype dtype, void* dst, const void* const* sources,
          std::uint32_t source_count, std::uint64_t count) {
  const auto kernel = find_reduce(kind, dtype);
  if (source_count == 0) throw Error(Fault::usage, "a fold of no sources");
  const std::uint64_t size = itemsize(dtype);
  const std::uint64_t chunk = fold_chunk_nbytes / size;
  // Partial results stay here, so dst may be any of the sources: it is written when all were read.
  alignas(64) std::byte partial[fold_chunk_nbytes];
  for (std::uint64_t begin = 0; begin < count; begin += chunk) {
    const std::uint64_t length = std::min(chunk, count - begin);
    const auto source = [&](std::uint32_t i) {
      return static_cast<const std::byte*>(sources[i]) + begin * size;
    };
    std::byte* const out = static_cast<std::byte*>(dst) + begin * size;
    if (source_count == 1) {
      if (out != source(0)) std::memcpy(out, source(0), length * size);
      continue;
    }
    const std::byte* left = source(0);
    for (std::uint32_t i = 1; i + 1 < source_count; ++i) {
      kernel(partial, left, source(i), length * parts(dtype));
      left = partial;
    }
    kernel(out, left, source(source_count - 1), length * parts(dtype));
    if (kind == ReduceKind::avg) divide(dtype, out, length, source_count);
  }
}

int kernel_level_count() { return count_levels(); }

const char* kernel_level_name(int level) {
  if (level < 0 || level >= count_levels()) throw Error(Fault::usage, "no such kernel level");
  return all_levels[level]->name;
}

void choose_kernels(int level) {
  if (level < 0 || level >= count_levels()) throw Error(Fault::usage, "no such kernel level");
  chosen.store(all_levels[level], std::memory_order_relaxed);
}

}  // namespace distdbg
