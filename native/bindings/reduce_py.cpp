// The reduction kernels for Python: tests compare them with NumPy, and the simulator of plans uses them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "error.hpp"
#include "nonfinite.hpp"
#include "reduce.hpp"
#include "view.hpp"

namespace distdbg {

void bind_view(nb::module_& module);

namespace {

ReduceKind to_kind(int code) {
  if (code < 0 || code >= reduce_kind_count) throw Error(Fault::usage, "not a reduce op");
  return static_cast<ReduceKind>(code);
}

Dtype to_dtype(int code) {
  if (!is_dtype(code)) throw Error(Fault::usage, "not a dtype code");
  return static_cast<Dtype>(code);
}

void check_sizes(const View& dst, const View& src) {
  if (dst.readonly()) throw Error(Fault::usage, "the destination is read-only");
  if (dst.nbytes() != src.nbytes()) throw Error(Fault::usage, "the views have different sizes");
}

void reduce_views(int kind, int dtype, const View& dst, const View& a, const View& b) {
  check_sizes(dst, a);
  check_sizes(dst, b);
  const Dtype type = to_dtype(dtype);
  reduce(to_kind(kind), type, dst.data(), a.data(), b.data(), dst.nbytes() / itemsize(type));
}

void fold_views(int kind, int dtype, const View& dst, const std::vector<const View*>& sources) {
  const Dtype type = to_dtype(dtype);
  std::vector<const void*> pointers;
  for (const View* source : sources) {
    if (source == nullptr) throw Error(Fault::usage, "a source is None");
    check_sizes(dst, *source);
    pointers.push_back(source->data());
  }
  fold(to_kind(kind), type, dst.data(), pointers.data(),
       static_cast<std::uint32_t>(pointers.size()), dst.nbytes() / itemsize(type));
}

void divide_view(int dtype, const View& data, std::uint32_t by) {
  check_sizes(data, data);
  const Dtype type = to_dtype(dtype);
  divide(type, data.data(), data.nbytes() / itemsize(type), by);
}

}  // namespace

void bind_reduce(nb::module_& module) {
  bind_view(module);
  using NoGil = nb::call_guard<ReleaseGil>;
  module.def("reduce", &reduce_views, nb::arg("kind"), nb::arg("dtype"), nb::arg("dst"),
             nb::arg("a"), nb::arg("b"), NoGil());
  module.def("fold", &fold_views, nb::arg("kind"), nb::arg("dtype"), nb::arg("dst"),
             nb::arg("sources"), NoGil());
  module.def("divide", &divide_view, nb::arg("dtype"), nb::arg("data"), nb::arg("by"), NoGil());
  module.def(
      "supports", [](int kind, int dtype) { return supports(to_kind(kind), to_dtype(dtype)); },
      nb::arg("kind"), nb::arg("dtype"));
  module.def(
      "find_nonfinite",
      [](const View& data) -> std::optional<std::tuple<std::uint64_t, std::uint64_t, bool>> {
        if (!is_dtype(data.dtype_code())) return std::nullopt;
        const Dtype type = to_dtype(data.dtype_code());
        if (!can_be_nonfinite(type)) return std::nullopt;
        const ReleaseGil release;
        const std::uint64_t count = data.nbytes() / itemsize(type);
        if (!any_nonfinite(type, data.data(), count)) return std::nullopt;
        const NonFinite found = find_nonfinite(type, data.data(), count);
        return std::tuple(found.bad_count, found.first, found.first_is_nan);
      },
      nb::arg("data"), "How many NaN and Inf, where the first is, and whether it is NaN; or None.");
  module.def(
      "kernel_levels",
      [] {
        nb::list names;
        for (int level = 0; level < kernel_level_count(); ++level)
          names.append(kernel_level_name(level));
        return names;
      },
      nb::sig("def kernel_levels() -> list[str]"));
  module.def("choose_kernels", &choose_kernels, nb::arg("level"));
  module.def(
      "dtype_codes",
      [] {
        nb::dict codes;
        for (int code = 0; code < dtype_count; ++code)
          codes[dtype_name(static_cast<Dtype>(code))] = code;
        return codes;
      },
      nb::sig("def dtype_codes() -> dict[str, int]"));
}

}  // namespace distdbg
