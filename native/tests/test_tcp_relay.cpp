// Connections that another thread carries: the suite of all transports over a relay that only flips bits, where
// distdbg/secure encrypts; what becomes of connections when either side ends; nothing is left open.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <list>

#include "error.hpp"
#include "tcp_dial.hpp"
#include "tcp_hub.hpp"
#include "tcp_relay.hpp"
#include "transports.hpp"

using namespace distdbg;

namespace {

constexpr std::uint64_t cookie = 4711;
constexpr std::byte flipped{0x5a};

std::size_t count_fds() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// What distdbg/secure/relay.py is, without the encryption.
class Flipper {
 public:
  explicit Flipper(std::shared_ptr<TcpRelay> relay)
      : relay_(std::move(relay)),
        stop_(Fd::from([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })),
        thread_([this] { work(); }) {}
  ~Flipper() {
    const std::uint64_t one = 1;
    CHECK(::write(stop_.get(), &one, sizeof one) == sizeof one);
    thread_.join();
  }
  Flipper(const Flipper&) = delete;
  Flipper& operator=(const Flipper&) = delete;

 private:
  struct Way {  // one direction
    int from = -1;
    int to = -1;
    std::vector<std::byte> held;
    bool has_ended = false;
    bool is_shut = false;
  };
  struct Carried {
    std::shared_ptr<TcpRelayed> relayed;
    Way out;  // to the network
    Way in;
  };

  static bool may_block(ssize_t n) { return n < 0 && (errno == EAGAIN || errno == EINTR); }

  static void move(Way& way) {
    std::array<std::byte, 64 * 1024> buffer;
    if (way.held.empty() && !way.has_ended) {
      const ssize_t n = ::recv(way.from, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n > 0) {
        for (ssize_t i = 0; i < n; ++i) buffer[static_cast<std::size_t>(i)] ^= flipped;
        way.held.assign(buffer.begin(), buffer.begin() + n);
      } else if (!may_block(n)) {
        way.has_ended = true;
      }
    }
    while (!way.held.empty()) {
      const ssize_t n =
          ::send(way.to, way.held.data(), way.held.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (may_block(n)) break;
      if (n < 0) {  // nobody is there any more
        way.held.clear();
        way.has_ended = true;
      } else {
        way.held.erase(way.held.begin(), way.held.begin() + n);
      }
    }
  }

  void work() {
    std::list<Carried> all;
    while (true) {
      std::vector<pollfd> entries{{stop_.get(), POLLIN, 0}, {relay_->fd(), POLLIN, 0}};
      for (const Carried& each : all) {
        for (const Way* way : {&each.out, &each.in}) {
          const bool reads = way->held.empty() && !way->has_ended;
          entries.push_back({reads ? way->from : -1, POLLIN, 0});
          entries.push_back({way->held.empty() ? -1 : way->to, POLLOUT, 0});
        }
      }
      ::poll(entries.data(), entries.size(), 50);
      if (entries[0].revents != 0) break;
      while (const auto relayed = relay_->take()) {
        const int network = relayed->network();
        const int end = relayed->end();
        all.push_back({relayed, {end, network, {}}, {network, end, {}}});
      }
      for (Carried& each : all) {
        move(each.out);
        move(each.in);
        if (each.out.has_ended && each.out.held.empty() && !std::exchange(each.out.is_shut, true))
          each.relayed->shut_network();
        if (each.in.has_ended && each.in.held.empty() && !std::exchange(each.in.is_shut, true))
          each.relayed->shut_end();
      }
      std::erase_if(all, [](const Carried& each) {
        const bool is_over = each.out.is_shut && each.in.is_shut;
        if (is_over) each.relayed->close();
        return is_over;
      });
    }
    for (const Carried& each : all) each.relayed->close();
    relay_->release();
  }

  const std::shared_ptr<TcpRelay> relay_;
  const Fd stop_;
  std::thread thread_;
};

struct RelayedRanks final : Ranks {
  explicit RelayedRanks(std::uint32_t size) {
    for (std::uint32_t r = 0; r < size; ++r) {
      relays.push_back(std::make_shared<TcpRelay>());
      flippers.push_back(std::make_unique<Flipper>(relays.back()));
      hubs.push_back(
          std::make_unique<TcpHub>("127.0.0.1", "0", "token", TcpHubLimits{}, relays.back()));
    }
    TcpPlace place{cookie, 0, size, 3, {}, 5};
    for (const auto& hub : hubs) place.addresses.push_back({hub->address()});
    for (std::uint32_t r = 0; r < size; ++r) {
      place.rank = r;
      keepers.push_back(std::make_unique<Keeper>());
      all.push_back(hubs[r]->transport(place, *keepers.back()));
    }
    connect_all();
  }
  Transport& at(std::uint32_t rank) override { return *all[rank]; }
  std::vector<std::shared_ptr<TcpRelay>> relays;
  std::vector<std::unique_ptr<Flipper>> flippers;
  std::vector<std::unique_ptr<TcpHub>> hubs;
  std::vector<std::unique_ptr<Transport>> all;
};

void test_a_peer_that_dies_is_lost() {
  RelayedRanks ranks(2);
  post(ranks.at(0), 1, pattern(1000, 1), 0, nullptr);
  ranks.run_until([&] { return !ranks.keeper(1).kept.empty(); });
  ranks.flippers[0].reset();  // with all its connections
  ranks.run_until(
      [&] { return !ranks.keeper(0).losses.empty() && !ranks.keeper(1).losses.empty(); });
  check_kept(ranks.keeper(1).kept[0], 0, 0, pattern(1000, 1));
}

void test_the_first_failure_is_the_one_that_is_told() {
  TcpRelay relay;
  std::array<int, 2> pair{};
  CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
  TcpLine line = relay.carry(Fd::from([&] { return pair[0]; }), true);
  line.check();
  const auto relayed = relay.take();
  CHECK(relayed && relayed->is_server() && relay.take() == nullptr && relay.is_empty());
  relayed->fail(EACCES, "it shows no certificate");
  relayed->fail(EPROTO, "later");
  relayed->close();
  try {
    line.check();
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::network && error.error_number() == EACCES);
    CHECK(std::string(error.what()) == "it shows no certificate");
  }
  CHECK(relayed->network() == -1 && relayed->end() == -1);
  char byte = 0;
  CHECK(::recv(line.fd.get(), &byte, 1, 0) == 0 && ::recv(pair[1], &byte, 1, 0) == 0);
  relayed->shut_network();  // all of it may be asked of what is closed
  relayed->shut_end();
  relayed->set_options(5);
  CHECK(relayed->progress().unacked == 0);
  ::close(pair[1]);
}

// Connections come from several threads while one takes them and another closes the relay.
void test_it_is_closed_while_connections_come() {
  for (int round = 0; round < 20; ++round) {
    TcpRelay relay;
    std::atomic<bool> is_over{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        for (int k = 0; k < 20; ++k) {
          std::array<int, 2> pair{};
          if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) return;
          const TcpLine line = relay.carry(Fd::from([&] { return pair[0]; }), false);
          CHECK(line.fd && line.relayed);
          line.relayed->progress();
          ::close(pair[1]);
        }
      });
    std::thread taker([&] {
      while (!is_over.load() || !relay.is_empty())
        if (const auto relayed = relay.take()) {
          relayed->fail(EIO, "over");
          relayed->close();
        }
    });
    ::usleep(300);
    relay.close();
    for (std::thread& thread : threads) thread.join();
    is_over.store(true);
    taker.join();
    relay.release();
    CHECK(relay.fd() == -1);
  }
}

}  // namespace

int main() {
  const std::size_t before = count_fds();
  suite::run_all([](std::uint32_t size) { return std::make_unique<RelayedRanks>(size); });
  test_a_peer_that_dies_is_lost();
  test_the_first_failure_is_the_one_that_is_told();
  test_it_is_closed_while_connections_come();
  CHECK(count_fds() == before);
  return 0;
}
