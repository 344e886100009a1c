#include "cores.hpp"

#include <sched.h>

#include <algorithm>

namespace distdbg {

std::uint32_t this_core() { return static_cast<std::uint32_t>(::sched_getcpu() + 1); }

std::uint32_t better_core(std::span<const std::uint32_t> cores, std::size_t me) {
  if (std::ranges::find(cores, 0U) != cores.end()) return 0;
  const std::uint32_t mine = cores[me];
  const auto after_me = cores.subspan(me + 1);
  if (std::ranges::find(after_me, mine) != after_me.end()) return 0;
  // Cores without a rank are none of ours: the kernel gives an idle one work by itself.
  const auto ranks_on = [&](std::uint32_t core) { return std::ranges::count(cores, core); };
  const std::uint32_t least = *std::ranges::min_element(cores, {}, ranks_on);
  const std::uint32_t most = *std::ranges::max_element(cores, {}, ranks_on);
  const bool is_crowded = mine == most && ranks_on(mine) >= ranks_on(least) + 2;
  return is_crowded ? least : 0;
}

void move_to_core(std::uint32_t core) {
  cpu_set_t allowed;
  if (core == 0 || core > CPU_SETSIZE || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return;
  const auto number = static_cast<std::size_t>(core - 1);
  if (!CPU_ISSET(number, &allowed)) return;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(number, &there);
  if (::sched_setaffinity(0, sizeof there, &there) == 0)
    ::sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace distdbg
