// Who sleeps on sockets is woken by a futex, each time that it is rung.
#include "bell_bridge.hpp"
#include "tcp_hub.hpp"
#include "transports.hpp"

using namespace distdbg;

namespace {

void ring_it(std::atomic<std::uint32_t>& bell) {
  bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(bell);
}

void test_each_ring_ends_a_wait() {
  TcpHub hub("127.0.0.1", "0", "token");
  Keeper keeper;
  const auto transport = hub.transport({1, 0, 2, 0, {}, 5}, keeper);
  std::atomic<std::uint32_t> bell{0};
  std::atomic<int> asked{0};
  std::atomic<int> heard{0};
  const BellBridge bridge(bell, [&] { transport->wake(); });
  std::thread sleeper([&] {
    for (int i = 1; i <= 200; ++i) {
      const std::int64_t begin = now_ns();
      while (asked.load() < i)
        transport->wait(60'000 * ns_per_ms, [&] { return asked.load() >= i; });
      CHECK(now_ns() - begin < 30'000 * ns_per_ms);
      heard.store(i);
    }
  });
  for (int i = 1; i <= 200; ++i) {
    asked.store(i);
    ring_it(bell);
    while (heard.load() < i) std::this_thread::yield();
  }
  sleeper.join();
}

void test_it_ends_at_once() {
  std::atomic<std::uint32_t> bell{0};
  std::atomic<int> woken{0};
  const std::int64_t begin = now_ns();
  for (int i = 0; i < 100; ++i) {
    const BellBridge bridge(bell, [&] { woken.fetch_add(1); });
    if (i % 2 == 0) ring_it(bell);
  }
  CHECK(now_ns() - begin < 30'000 * ns_per_ms);
  CHECK(woken.load() >= 100);  // once when it begins
}

}  // namespace

int main() {
  test_each_ring_ends_a_wait();
  test_it_ends_at_once();
  return 0;
}
