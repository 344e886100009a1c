// How often a wait looks before it lets go of its core.
#include <cstdio>

#include "check.hpp"
#include "futex.hpp"

using distdbg::Patience;

namespace {

// Looks until patience is used up, where none finds anything.
template <class Stay>
int looks(const Stay& stay) {
  int count = 0;
  CHECK(!stay([&] {
    ++count;
    return false;
  }));
  return count;
}

}  // namespace

int main() {
  const Patience spinning(100, 0);
  CHECK(looks([&](auto look) { return spinning.stay_awake(look); }) == 101);
  // Each of these costs as much as many of those.
  CHECK(looks([&](auto look) { return spinning.stay_awake_by_calls(look); }) == 5);

  // A rank that spins at all looks at least once before it yields; one without a core of its own does not spin.
  CHECK(looks([&](auto look) { return Patience(1, 0).stay_awake_by_calls(look); }) == 2);
  CHECK(looks([&](auto look) { return Patience(0, 0).stay_awake_by_calls(look); }) == 1);

  int count = 0;
  CHECK(spinning.stay_awake_by_calls([&] { return ++count == 3; }));
  CHECK(count == 3);
  std::puts("test_patience: passed");
}
