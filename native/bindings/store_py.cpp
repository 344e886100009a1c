#include "bindings.hpp"

namespace distdbg {

void bind_store(nb::module_&) {}

}  // namespace distdbg
