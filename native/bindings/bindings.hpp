// The parts of the extension module; one function per file, called once by module.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include "clock.hpp"

namespace distdbg {

namespace nb = nanobind;

void bind_errors(nb::module_& module);
void bind_reduce(nb::module_& module);
void bind_store(nb::module_& module);
void bind_group(nb::module_& module);

// True when a Python signal handler raised (KeyboardInterrupt); takes the GIL, and only on the main
// thread, since Python runs handlers nowhere else. Call it without the GIL.
bool python_interrupted();

inline Wait wait_until(std::int64_t deadline_ns) { return Wait{deadline_ns, &python_interrupted}; }

}  // namespace distdbg
