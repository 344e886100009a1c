// Bytes of strangers through the parser of frames and both halves of the handshake, guided by coverage: an
// input that reaches code which none before it has reached is kept, and changed further. No socket and no
// thread, so that some ten thousand are tried in a second; an argument is for how many seconds.
//
// The compiler reports every branch of this file, and of tcp_wire.cpp and the headers compiled into it
// (-fsanitize-coverage=trace-pc, see CMakeLists.txt). Where there is Clang, libfuzzer_frames.cpp tries the same.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "clock.hpp"
#include "fuzz_frames.hpp"

#if defined(__clang__)
#define NOT_COVERED __attribute__((no_sanitize("coverage")))
#else
#define NOT_COVERED __attribute__((no_sanitize_coverage))
#endif

namespace {

// No std::array: at -O0 a call of its operator would be reported, from within the report.
constexpr std::size_t places = 1 << 16;
bool reached[places];
std::size_t reached_count = 0;

}  // namespace

extern "C" NOT_COVERED void __sanitizer_cov_trace_pc() {
  const auto at = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  bool& is_reached = reached[(at ^ (at >> 16)) % places];
  if (!is_reached) ++reached_count;
  is_reached = true;
}

namespace distdbg {
namespace {

Bytes change(Bytes bytes, const std::vector<Bytes>& corpus, std::mt19937_64& chance) {
  constexpr std::uint64_t telling[] = {0,          1,          2,       63,      64,
                                       4096,       1 << 19,    1 << 20, 1 << 21, 1u << 31,
                                       1ull << 56, 1ull << 63, ~0ull,   ~1ull};
  for (std::uint64_t i = 1 + chance() % 4; i > 0; --i) {
    const std::size_t at = bytes.empty() ? 0 : chance() % bytes.size();
    switch (chance() % 6) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << chance() % 8));
        break;
      case 1: bytes.insert(at, 1 + chance() % 64, static_cast<char>(chance())); break;
      case 2: bytes.erase(at, 1 + chance() % 64); break;
      case 3: {
        const std::uint64_t value = telling[chance() % std::size(telling)];
        const std::size_t word = 2 + (at & ~std::size_t{7});
        if (word + sizeof value <= bytes.size()) std::memcpy(&bytes[word], &value, sizeof value);
        break;
      }
      case 4: {
        const Bytes& other = corpus[chance() % corpus.size()];
        bytes.insert(at, other.substr(chance() % other.size(), 1 + chance() % 128));
        break;
      }
      default: bytes.resize(at); break;
    }
  }
  bytes.resize(std::min<std::size_t>(bytes.size(), 4096));
  return bytes;
}

}  // namespace
}  // namespace distdbg

int main(int argc, char** argv) {
  using namespace distdbg;
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  std::mt19937_64 chance(argc > 1 ? static_cast<std::uint64_t>(now_ns()) : 1);
  std::vector<Bytes> corpus = seeds();
  CHECK(knock(good_request() + good_proof()));
  for (const Bytes& input : corpus) try_one(input);
  const std::size_t reached_by_seeds = reached_count;
  CHECK(reached_by_seeds > 50);  // else nothing reports
  std::uint64_t tried = 0;
  const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  while (now_ns() < end) {
    const Bytes input = change(corpus[chance() % corpus.size()], corpus, chance);
    const std::size_t before = reached_count;
    try_one(input);
    if (reached_count != before && !input.empty()) corpus.push_back(input);
    ++tried;
  }
  CHECK(reached_count > reached_by_seeds);
  std::printf("%llu inputs, %zu kept, %zu branches, %zu of them by what is right\n",
              static_cast<unsigned long long>(tried), corpus.size(), reached_count,
              reached_by_seeds);
}
