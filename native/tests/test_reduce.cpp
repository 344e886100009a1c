// The kernels without Python: all instruction sets give the same bits, exact aliasing is harmless,
// nothing is touched outside of the arrays (the sanitizers look), and what is undefined is refused.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "error.hpp"
#include "reduce.hpp"

using namespace distdbg;

namespace {

void check(bool condition, const char* what, int kind, int dtype, std::uint64_t count) {
  if (condition) return;
  std::fprintf(stderr, "%s: kind %d, dtype %s, %llu elements\n", what, kind,
               dtype_name(static_cast<Dtype>(dtype)), static_cast<unsigned long long>(count));
  std::exit(1);
}

using Bytes = std::vector<std::uint8_t>;

// Of exactly the right size on the heap, so a step beyond the end is seen.
Bytes random_bytes(std::uint64_t nbytes, std::mt19937& random) {
  Bytes bytes(nbytes);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

template <class T>
T element(const Bytes& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

bool is_nan16(unsigned code, unsigned infinity) { return (code & 0x7fffu) > infinity; }

// The payload and the sign of a NaN are the processor's choice.
bool both_nan(Dtype dtype, const Bytes& a, const Bytes& b, std::size_t byte) {
  const auto nan = [&](const Bytes& bytes) {
    switch (dtype) {
      case Dtype::float64:
      case Dtype::complex128: return std::isnan(element<double>(bytes, byte / 8));
      case Dtype::float32:
      case Dtype::complex64: return std::isnan(element<float>(bytes, byte / 4));
      case Dtype::float16: return is_nan16(element<std::uint16_t>(bytes, byte / 2), 0x7c00);
      case Dtype::bfloat16: return is_nan16(element<std::uint16_t>(bytes, byte / 2), 0x7f80);
      case Dtype::float8_e5m2: return (bytes[byte] & 0x7f) > 0x7c;
      case Dtype::float8_e4m3fn: return (bytes[byte] & 0x7f) == 0x7f;
      default: return false;
    }
  };
  return nan(a) && nan(b);
}

bool same(Dtype dtype, const Bytes& a, const Bytes& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !both_nan(dtype, a, b, i)) return false;
  }
  return true;
}

void check_combination(ReduceKind kind, Dtype dtype, std::uint64_t count, std::mt19937& random) {
  const int k = static_cast<int>(kind), d = static_cast<int>(dtype);
  const std::uint64_t nbytes = count * itemsize(dtype);
  const Bytes a = random_bytes(nbytes, random), b = random_bytes(nbytes, random);
  Bytes first;
  for (int level = 0; level < kernel_level_count(); ++level) {
    choose_kernels(level);
    Bytes fresh(nbytes), left = a, right = b;
    reduce(kind, dtype, fresh.data(), a.data(), b.data(), count);
    reduce(kind, dtype, left.data(), left.data(), b.data(), count);
    reduce(kind, dtype, right.data(), a.data(), right.data(), count);
    check(same(dtype, fresh, left), "dst == a differs", k, d, count);
    check(same(dtype, fresh, right), "dst == b differs", k, d, count);
    if (level == 0) first = fresh;
    check(same(dtype, fresh, first), "instruction sets differ", k, d, count);

    Bytes last = b;
    const void* sources[] = {a.data(), b.data(), last.data()};
    fold(kind, dtype, last.data(), sources, 3, count);
    Bytes expected = fresh;
    reduce(kind, dtype, expected.data(), expected.data(), b.data(), count);
    if (kind == ReduceKind::avg) divide(dtype, expected.data(), count, 3);
    check(same(dtype, last, expected), "fold differs from reduce", k, d, count);
  }
}

void check_refusal(ReduceKind kind, Dtype dtype) {
  std::uint8_t memory[16] = {};
  try {
    reduce(kind, dtype, memory, memory, memory, 1);
  } catch (const Error& error) {
    if (error.fault() == Fault::usage) return;
  }
  check(false, "not refused", static_cast<int>(kind), static_cast<int>(dtype), 1);
}

}  // namespace

int main() {
  std::mt19937 random(1);
  for (int k = 0; k < reduce_kind_count; ++k) {
    for (int d = 0; d < dtype_count; ++d) {
      const auto kind = static_cast<ReduceKind>(k);
      const auto dtype = static_cast<Dtype>(d);
      if (!supports(kind, dtype)) {
        check_refusal(kind, dtype);
        continue;
      }
      for (std::uint64_t count = 0; count < 70; ++count) {
        check_combination(kind, dtype, count, random);
      }
      check_combination(kind, dtype, 20'001, random);  // more than one chunk of fold()
    }
  }
  return 0;
}
