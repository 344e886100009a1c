// Where ranks go that share cores.
#include <sched.h>

#include <cstdio>
#include <vector>

#include "check.hpp"
#include "cores.hpp"

using distdbg::better_core;
using distdbg::move_to_core;
using distdbg::this_core;

namespace {

// Where all are once each has looked, in order of rank, and gone there.
std::vector<std::uint32_t> settle(std::vector<std::uint32_t> cores) {
  for (std::size_t r = 0; r < cores.size(); ++r)
    if (const std::uint32_t core = better_core(cores, r); core != 0) cores[r] = core;
  return cores;
}

}  // namespace

int main() {
  using Cores = std::vector<std::uint32_t>;
  // The last rank of the crowded core goes, and nobody else.
  CHECK(settle({1, 1, 2, 1}) == Cores({1, 1, 2, 2}));
  CHECK(settle({2, 1, 1, 1}) == Cores({2, 1, 1, 2}));
  CHECK(better_core(Cores({1, 1, 2, 1}), 1) == 0);
  CHECK(better_core(Cores({1, 1, 2, 1}), 2) == 0);
  // As even as it can be: nobody goes round in circles.
  CHECK(settle({1, 2, 1, 2}) == Cores({1, 2, 1, 2}));
  CHECK(settle({1, 2, 1}) == Cores({1, 2, 1}));
  CHECK(settle({3, 3, 3}) == Cores({3, 3, 3}));
  CHECK(settle({7}) == Cores({7}));
  CHECK(settle({1, 1, 1, 1, 1, 2, 3, 3}) == Cores({1, 1, 1, 1, 2, 2, 3, 3}));
  // Not before all have been seen.
  CHECK(settle({1, 1, 1, 0, 2}) == Cores({1, 1, 1, 0, 2}));

  // A thread goes to any core it may run on, and no further; what it may do stays as it was.
  cpu_set_t allowed;
  CHECK(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  std::uint32_t forbidden = 0;
  for (std::uint32_t core = 1; core <= CPU_SETSIZE; ++core) {
    cpu_set_t after;
    move_to_core(core);
    CHECK(::sched_getaffinity(0, sizeof after, &after) == 0);
    CHECK(CPU_EQUAL(&allowed, &after));
    if (!CPU_ISSET(core - 1, &allowed)) forbidden = core;
  }
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(this_core() - 1, &here);
  CHECK(::sched_setaffinity(0, sizeof here, &here) == 0);
  const std::uint32_t mine = this_core();
  move_to_core(forbidden);
  move_to_core(0);
  move_to_core(CPU_SETSIZE + 1);
  CHECK(this_core() == mine);
  std::puts("test_cores: passed");
}
