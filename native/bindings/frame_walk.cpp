#include "frame_walk.hpp"

#include "bindings.hpp"

namespace distdbg {

std::optional<FrameLayout> FrameLayout::of_this_python() {
  const nb::module_ sys = nb::module_::import_("sys");
  // Not for debugging ("d"), not without a GIL ("t"), and without lists of all objects.
  if (!nb::object(sys.attr("abiflags")).equal(nb::str("")) || nb::hasattr(sys, "getobjects") ||
      !nb::object(sys.attr("implementation").attr("name")).equal(nb::str("cpython")))
    return std::nullopt;
  switch (Py_Version >> 16) {
    case 0x030b: return FrameLayout{56, 8, 32, 48, 56, 184};
    case 0x030c: return FrameLayout{56, 0, 0, 8, 56, 192};
    case 0x030d: return FrameLayout{72, none, 0, 8, 56, 200};
    default: return std::nullopt;
  }
}

}  // namespace distdbg
