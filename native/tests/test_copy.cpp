// Copies around the cache: every byte, and none beyond, however both ends lie to their cache lines.
#include <cstdio>
#include <random>
#include <vector>

#include "check.hpp"
#include "copy.hpp"

using namespace distdbg;

int main() {
  std::mt19937 random(7);
  constexpr std::uint64_t most = 64 * 70 + 63;
  for (std::uint64_t to = 0; to < 64; to += 1 + to % 7) {
    for (std::uint64_t from = 0; from < 64; from += 1 + from % 5) {
      for (std::uint64_t nbytes = 1; nbytes <= most;
           nbytes += 1 + random() % (nbytes < 200 ? 9 : 700)) {
        // Of exactly the right size on the heap, so that a byte read beyond the end is seen.
        std::vector<std::byte> source(from + nbytes);
        for (auto& byte : source) byte = static_cast<std::byte>(random());
        std::vector<std::byte> target(to + nbytes + 64, std::byte{0xA5});
        const std::vector<std::byte> before = target;
        copy_around_cache(target.data() + to, source.data() + from, nbytes);
        CHECK(std::equal(source.begin() + static_cast<std::ptrdiff_t>(from), source.end(),
                         target.begin() + static_cast<std::ptrdiff_t>(to)));
        CHECK(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(to),
                         target.begin()));
        CHECK(std::equal(before.end() - 64, before.end(), target.end() - 64));
      }
    }
  }
  std::puts("copies around the cache: passed");
}
