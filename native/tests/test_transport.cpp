// Every transport passes the suite of transports.hpp; below it, what only connections between hosts have to:
// peers that are lost, and two that dial each other at once.
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>

#include "error.hpp"
#include "ring_transport.hpp"
#include "tcp_dial.hpp"
#include "tcp_hub.hpp"
#include "tcp_ranks.hpp"
#include "tcp_socket.hpp"
#include "transports.hpp"

using namespace distdbg;

namespace {

constexpr std::uint32_t slot_nbytes = 4096;
constexpr std::uint32_t channel_nbytes = 64 * 1024;

struct RingRanks final : Ranks {
  explicit RingRanks(std::uint32_t size)
      : segment(Segment::create(size, slot_nbytes, channel_nbytes, cookie)) {
    for (std::uint32_t r = 0; r < size; ++r) {
      std::vector<std::uint32_t> peers(size);
      std::iota(peers.begin(), peers.end(), 0U);
      std::erase(peers, r);
      keepers.push_back(std::make_unique<Keeper>());
      all.push_back(std::make_unique<RingTransport>(segment, r, peers, *keepers.back()));
    }
    connect_all();
  }
  Transport& at(std::uint32_t rank) override { return *all[rank]; }
  Segment segment;
  std::vector<std::unique_ptr<Transport>> all;
};

void test_nobody_reaches_a_peer_that_is_lost() {
  TcpRanks ranks(2, false);
  RawPeer(ranks).socket.close();
  ranks.run_until([&] { return !ranks.keeper(0).losses.empty(); });
  CHECK(ranks.keeper(0).losses[0].first == 1);
  CHECK(says(ranks.keeper(0).losses[0].second, "died: its connection was closed"));
  // There is no way to it, and nothing is told again.
  post(ranks.at(0), 1, pattern(10, 1), 0, nullptr);
  for (int i = 0; i < 10; ++i) ranks.at(0).poll();
  CHECK(ranks.keeper(0).losses.size() == 1);
  try {
    ranks.at(0).connect(1, until_s(5));
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::network && error.peer() == 1);
  }
}

void test_a_peer_that_dies_in_the_middle_of_a_message_is_lost() {
  for (const bool resets : {false, true}) {
    TcpRanks ranks(2, false);
    RawPeer peer(ranks);
    const Envelope whole = envelope_of(0, 1);
    const Envelope half = envelope_of(1 << 20, 2);
    peer.send(&whole, sizeof whole);
    peer.send(&half, sizeof half);
    peer.send(&half, 10);
    ranks.run_until([&] { return ranks.keeper(0).kept.size() == 1; });
    if (resets) {
      const linger at_once{1, 0};
      ::setsockopt(peer.socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    peer.socket.close();
    ranks.run_until([&] { return !ranks.keeper(0).losses.empty(); });
    const std::string& why = ranks.keeper(0).losses[0].second;
    CHECK(says(why, resets ? "reset by peer" : "died: its connection was closed"));
    CHECK(says(why, "in the middle of a message"));
    CHECK(ranks.keeper(0).kept.size() == 1);
  }
}

void test_a_cut_message_ends_the_way() {
  TcpRanks ranks(2);
  const auto large = pattern(suite::huge_nbytes, 1);
  bool is_sent = false;
  post(ranks.at(0), 1, large, 0, &is_sent);
  ranks.at(0).cancel(large.data(), large.size());
  ranks.run_until([&] { return !ranks.keeper(1).losses.empty(); });
  CHECK(says(ranks.keeper(1).losses[0].second, "in the middle of a message"));
}

void test_who_has_dialled_first_is_used() {
  TcpRanks ranks(2, false);
  ranks.at(0).connect(1, until_s(10));
  post(ranks.at(0), 1, pattern(5, 1), 0, nullptr);
  ranks.run_until([&] { return ranks.keeper(1).kept.size() == 1; });
  ranks.hubs[0]->close();  // so it cannot be dialled
  ranks.at(1).connect(0, until_s(10));
  post(ranks.at(1), 0, pattern(6, 1), 0, nullptr);
  ranks.run_until([&] { return ranks.keeper(0).kept.size() == 1; });
}

void test_both_dial_at_once() {
  for (int round = 0; round < 30; ++round) {
    TcpRanks ranks(2, false);
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        ready.fetch_add(1);
        while (ready.load() < 2) continue;
        ranks.at(r).connect(1 - r, until_s(10));
        for (std::uint64_t i = 0; i < 50; ++i)
          post(ranks.at(r), 1 - r, pattern(i * 100, i), i, nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
    ranks.run_until(
        [&] { return ranks.keeper(0).kept.size() == 50 && ranks.keeper(1).kept.size() == 50; });
    for (std::uint32_t r = 0; r < 2; ++r)
      for (std::uint64_t i = 0; i < 50; ++i)
        check_kept(ranks.keeper(r).kept[i], 1 - r, i, pattern(i * 100, i));
    // Both connections say that they end.
    ranks.at(0).close();
    for (int i = 0; i < 100; ++i) ranks.at(1).poll();
    CHECK(ranks.keeper(1).losses.empty());
  }
}

void test_connections_wait_for_their_transport() {
  TcpHub hub("127.0.0.1", "0", "token");
  const TcpWay way{cookie, 3, 1, 0};
  const Fd early = dial_tcp({hub.address()}, way, "token", until_s(10), [] { return false; });
  const Envelope envelope = envelope_of(0, 7);
  CHECK(::send(early.get(), &envelope, sizeof envelope, 0) == sizeof envelope);
  Keeper keeper;
  const auto transport = hub.transport({cookie, 0, 2, 3, {}, 5}, keeper);
  transport->connect(1, until_s(10));  // has no address: it must have come by itself
  const std::int64_t end = now_ns() + 10'000 * ns_per_ms;
  while (keeper.kept.empty()) {
    CHECK(now_ns() < end);
    transport->wait(1'000 * ns_per_ms, [&] { return transport->poll(); });
  }
  CHECK(keeper.kept[0].envelope.words[0] == 7);
}

// A message of which one byte differs from what was sent, whichever it is, and one after it.
void test_what_a_link_has_changed_is_not_taken() {
  for (const std::size_t nbytes : {std::size_t{0}, std::size_t{1}, std::size_t{3'000}}) {
    const std::size_t whole =
        sizeof(Envelope) + sum_nbytes + nbytes + (nbytes == 0 ? 0 : sum_nbytes);
    const std::size_t step = nbytes > 1 ? 97 : 1;
    for (std::size_t at = 0; at < whole; at += step) {
      TcpHub hub("127.0.0.1", "0", "token");
      Keeper keeper;
      const auto transport = hub.transport({cookie, 0, 2, 3, {}, 5, true}, keeper);
      const TcpWay way{cookie, 3, 1, 0, messages_have_sums};
      const Fd peer = dial_tcp({hub.address()}, way, "token", until_s(10), [] { return false; });
      const auto payload = pattern(nbytes, at);
      std::string bytes;
      const auto add = [&bytes](const void* data, std::size_t n) {
        bytes.append(static_cast<const char*>(data), n);
      };
      for (std::uint64_t i = 0; i < 3; ++i) {
        const Envelope envelope = envelope_of(nbytes, i);
        const std::uint32_t sum = crc32c(&envelope, sizeof envelope);
        const std::uint32_t tail = crc32c(payload.data(), nbytes);
        add(&envelope, sizeof envelope);
        add(&sum, sizeof sum);
        add(payload.data(), nbytes);
        if (nbytes != 0) add(&tail, sizeof tail);
      }
      CHECK(bytes.size() == 3 * whole);
      bytes[whole + at] = static_cast<char>(bytes[whole + at] ^ 0x10);
      CHECK(::send(peer.get(), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
      transport->connect(1, until_s(10));
      const std::int64_t end = now_ns() + 10'000 * ns_per_ms;
      while (keeper.corruptions.empty()) {
        CHECK(now_ns() < end);
        transport->wait(1'000 * ns_per_ms, [&] { return transport->poll(); });
      }
      CHECK(keeper.corruptions.size() == 1 && keeper.corruptions[0].first == 1);
      CHECK(keeper.corruptions[0].second ==
            own_address_words(peer.get()) + " to " + peer_address_words(peer.get()));
      for (int i = 0; i < 10; ++i) transport->poll();
      CHECK(keeper.kept.size() == 1 && keeper.losses.empty());
      check_kept(keeper.kept[0], 1, 0, payload);
      // The other way may be sound.
      bool is_sent = false;
      post(*transport, 1, pattern(10, 1), 4, &is_sent);
      pollfd entry{peer.get(), POLLIN, 0};
      CHECK(::poll(&entry, 1, 10'000) == 1);
      char answer[sizeof(Envelope)];
      CHECK(is_sent && ::recv(peer.get(), answer, sizeof answer, MSG_WAITALL) == sizeof answer);
    }
  }
}

void test_who_has_no_sums_is_not_let_in_where_there_are_some() {
  TcpHub hub("127.0.0.1", "0", "token");
  Keeper keeper;
  const auto transport = hub.transport({cookie, 0, 2, 3, {}, 5, true}, keeper);
  const Fd peer =
      dial_tcp({hub.address()}, {cookie, 3, 1, 0}, "token", until_s(10), [] { return false; });
  pollfd entry{peer.get(), POLLIN, 0};
  CHECK(::poll(&entry, 1, 10'000) == 1);
  char byte = 0;
  CHECK(::recv(peer.get(), &byte, 1, 0) == 0);
  // It is written down after the connection has ended.
  std::vector<std::string> complaints = hub.complaints();
  for (const std::int64_t end = now_ns() + 10'000 * ns_per_ms; complaints.empty(); ::usleep(1000)) {
    CHECK(now_ns() < end);
    complaints = hub.complaints();
  }
  CHECK(complaints.size() == 1 && says(complaints[0], "another DISTDBG_LINK_CHECKSUM"));
}

std::string dial_failure(const std::vector<std::string>& addresses, const std::string& token,
                         double seconds) {
  try {
    dial_tcp(addresses, {cookie, 3, 1, 0}, token, until_s(seconds), [] { return false; });
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::network && error.peer() == 0);
    return error.what();
  }
  return {};
}

void test_failures_name_what_was_tried() {
  std::string closed;
  {
    const TcpHub gone("127.0.0.1", "0", "token");
    closed = gone.address();
  }
  const TcpHub hub("127.0.0.1", "0", "token");
  const std::string words =
      dial_failure({closed, "no.such.host.invalid:1", "nonsense", hub.address()}, "other", 0.3);
  CHECK(says(words, closed + " (Connection refused)"));
  CHECK(says(words, "no.such.host.invalid:1 ("));
  CHECK(says(words, "nonsense ('nonsense' is not host:port)"));
  CHECK(says(words, hub.address() + " (it does not know the token of this run)"));
  // Nothing can help there, so the deadline is not waited for.
  const std::int64_t begin = now_ns();
  CHECK(!dial_failure({hub.address()}, "other", 60).empty());
  CHECK(now_ns() - begin < 5'000 * ns_per_ms);
  // One that does not answer holds up the next one for a moment only.
  const Fd mute = Fd::from([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  const Addresses any = resolve({"127.0.0.1", "0"});
  CHECK(::bind(mute.get(), any->ai_addr, any->ai_addrlen) == 0 && ::listen(mute.get(), 8) == 0);
  CHECK(dial_failure({own_address_words(mute.get()), closed, hub.address()}, "token", 60).empty());
  CHECK(says(dial_failure({own_address_words(mute.get())}, "token", 0.2), "(no answer)"));
}

// Its children have copies of nothing: else a process that a rank has started would hide its death.
void test_a_child_has_no_connection() {
  TcpRanks ranks(2, false);
  const RawPeer peer(ranks);
  ranks.at(0).connect(1, until_s(10));
  int ends[2];
  CHECK(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[1]);
    char byte = 0;
    const bool has_none = !ranks.at(0).poll();
    ranks.all.clear();
    ranks.hubs.clear();
    [[maybe_unused]] const ssize_t got = ::read(ends[0], &byte, 1);  // until the parent is done
    ::_exit(has_none ? 0 : 1);
  }
  ::close(ends[0]);
  ranks.at(0).close();
  char bytes[100];
  CHECK(::recv(peer.socket.get(), bytes, sizeof bytes, MSG_WAITALL) == sizeof(Envelope));
  // Nobody has it any more: what is sent now comes back as a reset.
  const std::int64_t end = now_ns() + 10'000 * ns_per_ms;
  while (::send(peer.socket.get(), bytes, 1, MSG_NOSIGNAL) == 1) CHECK(now_ns() < end);
  ::close(ends[1]);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void test_silence_is_told_from_a_peer_that_does_not_read() {
  CHECK(!is_silent({}, 5));
  CHECK(is_silent({3, 4, 0, 5'000}, 5));
  CHECK(!is_silent({3, 4, 0, 4'999}, 5));
  CHECK(!is_silent({3, 0, 0, 60'000}, 5));  // was idle, has just sent
  CHECK(!is_silent({0, 0, 1, 60'000}, 5));  // a closed window, asked again a moment ago
  CHECK(is_silent({0, 0, 3, 60'000}, 5));   // a closed window, and nobody answers
}

void test_a_peer_that_does_not_read_is_not_lost() {
  TcpRanks ranks(2, true, 1);
  const auto large = pattern(suite::huge_nbytes, 1);
  bool is_sent = false;
  post(ranks.at(0), 1, large, 0, &is_sent);
  const std::int64_t end = now_ns() + 2'500 * ns_per_ms;
  while (now_ns() < end) ranks.at(0).wait(100 * ns_per_ms, [&] { return ranks.at(0).poll(); });
  CHECK(!is_sent && ranks.keeper(0).losses.empty());
  ranks.run_until([&] { return ranks.keeper(1).kept.size() == 1; });
  check_kept(ranks.keeper(1).kept[0], 0, 0, large);
}

void set_loopback(bool is_up) {
  const Fd any = Fd::from([] { return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  CHECK(::ioctl(any.get(), SIOCGIFFLAGS, &request) == 0);
  const int up = IFF_UP;
  request.ifr_flags = static_cast<short>(is_up ? request.ifr_flags | up : request.ifr_flags & ~up);
  CHECK(::ioctl(any.get(), SIOCSIFFLAGS, &request) == 0);
}

// The network of a process of its own goes down: no packet comes any more, and none says so.
void test_a_silent_host_is_lost() {
  const pid_t child = ::fork();
  if (child != 0) {
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return;
  }
  if (::unshare(CLONE_NEWNET) != 0) ::_exit(0);  // only some may
  set_loopback(true);
  {
    TcpRanks idle(2, true, 1);
    TcpRanks busy(2, true, 1);
    TcpRanks full(2, true, 1);
    const auto large = pattern(suite::huge_nbytes, 1);
    bool is_sent = false;
    post(full.at(0), 1, large, 0, &is_sent);
    busy.run_until([&] { return true; });
    set_loopback(false);
    post(busy.at(0), 1, pattern(100, 1), 0, nullptr);
    const std::int64_t begin = now_ns();
    const auto are_lost = [&] {
      for (TcpRanks* ranks : {&idle, &busy, &full}) ranks->at(0).poll();
      return !idle.keeper(0).losses.empty() && !busy.keeper(0).losses.empty() &&
             !full.keeper(0).losses.empty();
    };
    while (!are_lost()) {
      CHECK(now_ns() - begin < 15'000 * ns_per_ms);
      ::usleep(20'000);
    }
    for (TcpRanks* ranks : {&idle, &busy, &full})
      CHECK(says(ranks->keeper(0).losses[0].second, "has fallen silent"));
  }
  ::_exit(0);
}

}  // namespace

int main() {
  suite::run_all([](std::uint32_t size) { return std::make_unique<RingRanks>(size); });
  suite::run_all([](std::uint32_t size) { return std::make_unique<TcpRanks>(size); });
  suite::run_all(
      [](std::uint32_t size) { return std::make_unique<TcpRanks>(size, true, 5, true); });
  test_what_a_link_has_changed_is_not_taken();
  test_who_has_no_sums_is_not_let_in_where_there_are_some();
  test_nobody_reaches_a_peer_that_is_lost();
  test_a_peer_that_dies_in_the_middle_of_a_message_is_lost();
  test_a_cut_message_ends_the_way();
  test_who_has_dialled_first_is_used();
  test_both_dial_at_once();
  test_connections_wait_for_their_transport();
  test_failures_name_what_was_tried();
  test_a_child_has_no_connection();
  test_silence_is_told_from_a_peer_that_does_not_read();
  test_a_peer_that_does_not_read_is_not_lost();
  test_a_silent_host_is_lost();
  return 0;
}
