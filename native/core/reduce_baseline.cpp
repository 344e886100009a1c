// The kernels for what every machine of this architecture has.
#include "reduce_kernels.hpp"

namespace distdbg {

constinit const KernelTable baseline_kernels = make_table("baseline");

}  // namespace distdbg
