// What came out of a fork: memory that was mapped before belongs to the parent, threads are not there.
#pragma once

#include <cstdint>

namespace distdbg {

// How many forks this process came out of since this was first called. What was made in another
// generation belongs to an ancestor.
std::uint32_t fork_generation();

}  // namespace distdbg
