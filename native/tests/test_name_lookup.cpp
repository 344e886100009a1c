// Names of hosts, and a resolver that does not answer.
#include "name_lookup.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "check.hpp"
#include "error.hpp"

using namespace distdbg;

namespace {

int never_answers(const char*, const char*, const addrinfo*, addrinfo**) {
  while (true) ::pause();
}

std::ptrdiff_t count_threads() {
  const auto all = std::filesystem::directory_iterator("/proc/self/task");
  return std::distance(begin(all), end(all));
}

void test_a_resolver_that_hangs_is_not_waited_for() {
  const std::int64_t begin = now_ns();
  std::ptrdiff_t after_first = 0;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t until = now_ns() + 100 * ns_per_ms;
    try {
      look_up("silent.example", "80", [until] { return now_ns() < until; }, &never_answers);
      CHECK(false);
    } catch (const Error& error) {
      CHECK(error.fault() == Fault::network && error.error_number() == ETIMEDOUT);
      CHECK(std::string(error.what()) == "no name server answers for 'silent.example'");
    }
    if (i == 0) after_first = count_threads();
  }
  CHECK(now_ns() - begin < 5'000 * ns_per_ms);
  // All three have asked the same thread.
  CHECK(count_threads() == after_first);
  // Others are answered meanwhile, also in a child.
  CHECK(look_up("127.0.0.1", "80", [] { return false; }, &never_answers) != nullptr);
#if !defined(__SANITIZE_THREAD__)  // which refuses threads in a child
  const pid_t child = ::fork();
  if (child == 0) {
    const auto found = look_up("localhost", "80", [] { return true; });
    ::_exit(found != nullptr ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && status == 0);
#endif
}

}  // namespace

int main() {
  test_a_resolver_that_hangs_is_not_waited_for();
  return 0;
}
