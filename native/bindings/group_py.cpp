#include "bindings.hpp"

namespace distdbg {

void bind_group(nb::module_&) {}

}  // namespace distdbg
