// The element types that the data plane knows. The numbers are those of distdbg/ops/dtypes.py
// (a test compares them); they are part of the wire and of the record and never change.
#pragma once

#include <cstdint>

namespace distdbg {

enum class Dtype : std::uint8_t {
  bool_ = 0,
  uint8 = 1,
  int8 = 2,
  uint16 = 3,
  int16 = 4,
  uint32 = 5,
  int32 = 6,
  uint64 = 7,
  int64 = 8,
  float16 = 9,
  bfloat16 = 10,
  float8_e4m3fn = 11,
  float8_e5m2 = 12,
  float8_e4m3fnuz = 13,
  float8_e5m2fnuz = 14,
  float32 = 15,
  float64 = 16,
  complex64 = 17,
  complex128 = 18,
};

constexpr int dtype_count = 19;

constexpr bool is_dtype(int code) { return code >= 0 && code < dtype_count; }

constexpr std::uint64_t itemsize(Dtype dtype) {
  switch (dtype) {
    case Dtype::bool_:
    case Dtype::uint8:
    case Dtype::int8:
    case Dtype::float8_e4m3fn:
    case Dtype::float8_e5m2:
    case Dtype::float8_e4m3fnuz:
    case Dtype::float8_e5m2fnuz: return 1;
    case Dtype::uint16:
    case Dtype::int16:
    case Dtype::float16:
    case Dtype::bfloat16: return 2;
    case Dtype::uint32:
    case Dtype::int32:
    case Dtype::float32: return 4;
    case Dtype::uint64:
    case Dtype::int64:
    case Dtype::float64:
    case Dtype::complex64: return 8;
    case Dtype::complex128: return 16;
  }
  return 0;
}

constexpr const char* dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::bool_: return "bool";
    case Dtype::uint8: return "uint8";
    case Dtype::int8: return "int8";
    case Dtype::uint16: return "uint16";
    case Dtype::int16: return "int16";
    case Dtype::uint32: return "uint32";
    case Dtype::int32: return "int32";
    case Dtype::uint64: return "uint64";
    case Dtype::int64: return "int64";
    case Dtype::float16: return "float16";
    case Dtype::bfloat16: return "bfloat16";
    case Dtype::float8_e4m3fn: return "float8_e4m3fn";
    case Dtype::float8_e5m2: return "float8_e5m2";
    case Dtype::float8_e4m3fnuz: return "float8_e4m3fnuz";
    case Dtype::float8_e5m2fnuz: return "float8_e5m2fnuz";
    case Dtype::float32: return "float32";
    case Dtype::float64: return "float64";
    case Dtype::complex64: return "complex64";
    case Dtype::complex128: return "complex128";
  }
  return "unknown";
}

}  // namespace distdbg
