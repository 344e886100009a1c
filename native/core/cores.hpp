// Where the ranks of a host run when they share cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace distdbg {

// 1 + the number of the core that the calling thread runs on, so that 0 can say "not known".
std::uint32_t this_core();

// The core that rank `me` should go to, or 0: it stays. `cores`: where each rank was last seen. All ranks that
// see the same come to answers that fit: the last one of the most crowded core goes where at least two fewer are.
std::uint32_t better_core(std::span<const std::uint32_t> cores, std::size_t me);

// Has the calling thread go on there, if it may; it may leave again.
void move_to_core(std::uint32_t core);

}  // namespace distdbg
