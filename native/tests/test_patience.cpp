// How often a wait looks before it lets go of its core.
#include <cstdio>

#include "check.hpp"
#include "futex.hpp"

using distdbg::Patience;
using distdbg::Rest;

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
  // A rank that shares cores looks once between two yields, and for a while as long as nobody needs its core.
  const auto yielding = [] { return Patience(0, 1); };
  CHECK(looks([&](auto look) { return yielding().stay_awake(look); }) == 2);
  CHECK(looks([&](auto look) { return yielding().stay_awake(look, [] { return true; }); }) == 2);
  CHECK(looks([&](auto look) { return yielding().stay_awake(look, [] { return false; }); }) == 102);

  // Strangers that come again have it sleep longer; one that comes later does not.
  constexpr std::int64_t ms = distdbg::ns_per_ms;
  Rest rest;
  CHECK(!rest.is_on(0));
  std::int64_t now = 1'000 * ms;
  rest.begin(now);
  CHECK(rest.is_on(now) && !rest.is_on(now + Rest::least_ns));
  for (std::int64_t length = 2 * Rest::least_ns; length < Rest::most_ns; length *= 2) {
    now += length / 2 + 10 * ms;
    rest.begin(now);
    CHECK(rest.is_on(now + length - 1) && !rest.is_on(now + length));
  }
  now += Rest::most_ns - 10 * ms;
  rest.begin(now);
  CHECK(rest.is_on(now + Rest::most_ns - 1) && !rest.is_on(now + Rest::most_ns));
  now += Rest::most_ns + 20 * ms;
  rest.begin(now);
  CHECK(!rest.is_on(now + Rest::least_ns));
  std::puts("test_patience: passed");
}
