// The transport over UCX passes the suite of transports.hpp over each of UCX's own transports that a host
// without a fabric has; below it, what only UCX has to: strangers, parts out of order, peers that are lost.
//
// Without the library nothing can be tested: the exit code is 77 then.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "error.hpp"
#include "tcp_hub.hpp"
#include "transports.hpp"
#include "ucx_transport.hpp"

using namespace distdbg;

namespace {

constexpr const char* library = "libucp.so.0";
constexpr std::uint64_t cookie = 0x1234'5678'9abc'def0;

// Whether the ranks count as on one host: where they do, the library is not asked for errors of the peer.
bool is_here = false;

struct UcxRanks final : Ranks {
  explicit UcxRanks(std::uint32_t size, bool connects = true) {
    for (std::uint32_t r = 0; r < size; ++r) {
      hubs.push_back(std::make_unique<TcpHub>("127.0.0.1", "0", "token"));
      engines.push_back(std::make_shared<UcxEngine>(library, "token"));
      keepers.push_back(std::make_unique<Keeper>());
      place.addresses.push_back({hubs.back()->address()});
      workers.push_back({engines.back()->address(), is_here});
    }
    place.cookie = cookie;
    place.size = size;
    place.kind = 3;
    all.resize(size);
    for (std::uint32_t r = 0; r < size && connects; ++r) make(r);
    if (connects) connect_all();
  }
  ~UcxRanks() override {
    // All at once, as processes do: each waits for the others to have taken what it has said.
    std::vector<std::thread> threads;
    for (auto& each : all) threads.emplace_back([&each] { each.reset(); });
    for (std::thread& thread : threads) thread.join();
  }
  void make(std::uint32_t rank) {
    TcpPlace mine = place;
    mine.rank = rank;
    all[rank] =
        std::make_unique<UcxTransport>(*hubs[rank], mine, workers, engines[rank], *keepers[rank]);
  }
  Transport& at(std::uint32_t rank) override { return *all[rank]; }
  TcpPlace place;
  std::vector<UcxTransport::Worker> workers;
  std::vector<std::unique_ptr<TcpHub>> hubs;
  std::vector<std::shared_ptr<UcxEngine>> engines;
  std::vector<std::unique_ptr<Transport>> all;
};

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void test_what_a_peer_sent_before_it_left_still_arrives() {
  UcxRanks ranks(2);
  for (std::uint64_t i = 0; i < 100; ++i) post(ranks.at(0), 1, pattern(1000, i), i, nullptr);
  post(ranks.at(1), 0, pattern(5000, 1), 0, nullptr);  // which rank 0 never reads
  ranks.at(0).close();
  ranks.engines[0]->close();
  ranks.run_until([&] { return ranks.keeper(1).kept.size() == 100; });
  for (int i = 0; i < 100; ++i) {
    post(ranks.at(1), 0, pattern(10, 1), 0, nullptr);
    ranks.at(1).poll();
    ::usleep(2'000);
  }
  CHECK(ranks.keeper(1).kept.size() == 100 && ranks.keeper(1).losses.empty());
}

// Nobody of the receiver's process polls; the sender does not either once it has posted.
void test_words_arrive_while_both_ranks_are_elsewhere() {
  UcxRanks ranks(2, false);
  ranks.make(0);
  ranks.make(1);
  ranks.at(0).connect(1, until_s(10));
  post(ranks.at(0), 1, pattern(100, 1), 0, nullptr);
  post(ranks.at(0), 1, pattern(300'000, 2), 1, nullptr);
  const std::int64_t end = now_ns() + 10'000 * ns_per_ms;
  while (ranks.keeper(1).kept.size() < 2) {
    CHECK(now_ns() < end);
    ::usleep(20'000);
    ranks.at(1).poll();
  }
  check_kept(ranks.keeper(1).kept[1], 0, 1, pattern(300'000, 2));
}

void test_what_comes_before_its_transport_waits_for_it() {
  UcxRanks ranks(2, false);
  ranks.make(0);
  ranks.at(0).connect(1, until_s(10));
  post(ranks.at(0), 1, pattern(100, 1), 0, nullptr);
  post(ranks.at(0), 1, pattern(100'000, 2), 1, nullptr);
  ::usleep(100'000);
  ranks.make(1);
  ranks.run_until([&] { return ranks.keeper(1).kept.size() == 2; });
  check_kept(ranks.keeper(1).kept[0], 0, 0, pattern(100, 1));
  check_kept(ranks.keeper(1).kept[1], 0, 1, pattern(100'000, 2));
}

void test_strangers_are_not_heard() {
  UcxRanks ranks(2);
  UcxEngine stranger(library, "another token");
  UcxStream stream;
  stream.open(stranger, ranks.workers[1].address, {cookie, 3, 0, 1}, is_here);
  const Envelope envelope = envelope_of(0, 99);
  const Piece piece{reinterpret_cast<std::byte*>(const_cast<Envelope*>(&envelope)),
                    sizeof envelope};
  CHECK(stream.write(&piece, 1) == sizeof envelope);
  const auto bytes = pattern(200'000, 1);  // which would have to be fetched
  const Piece large{const_cast<std::byte*>(bytes.data()), bytes.size()};
  CHECK(stream.write(&large, 1) == bytes.size());
  ranks.run_until([&] { return ranks.engines[1]->refused() >= 2; });
  post(ranks.at(0), 1, pattern(10, 1), 7, nullptr);
  ranks.run_until([&] { return ranks.keeper(1).kept.size() == 1; });
  check_kept(ranks.keeper(1).kept[0], 0, 7, pattern(10, 1));
}

void test_who_does_not_read_is_not_sent_more_than_the_window() {
  UcxRanks ranks(2);
  Keeper& keeper = ranks.keeper(1);
  keeper.may_come = [](const Envelope&) { return false; };
  std::vector<std::vector<std::byte>> sent;
  const auto are_sent = std::make_unique<bool[]>(100);
  for (std::uint64_t i = 0; i < 100; ++i) {
    sent.push_back(pattern(100'000, i));
    post(ranks.at(0), 1, sent.back(), i, &are_sent[i]);
  }
  for (int i = 0; i < 2'000; ++i) ranks.run_until([] { return true; });
  CHECK(are_sent[0] && !are_sent[20]);
  keeper.may_come = nullptr;
  ranks.run_until([&] { return keeper.kept.size() == 100; });
  for (std::uint64_t i = 0; i < 100; ++i) check_kept(keeper.kept[i], 0, i, sent[i]);
}

void test_a_cut_message_ends_the_way() {
  UcxRanks ranks(2);
  const auto large = pattern(suite::huge_nbytes, 1);
  bool is_sent = false;
  post(ranks.at(0), 1, large, 0, &is_sent);
  ranks.at(0).cancel(large.data(), large.size());
  ranks.run_until([&] { return !ranks.keeper(1).losses.empty(); });
  CHECK(says(ranks.keeper(1).losses[0].second, "in the middle of"));
}

// A process that dies takes its part of UCX with it, in whatever state that is.
void test_a_peer_that_dies_is_lost() {
  int to_child[2];
  int to_parent[2];
  CHECK(::pipe(to_child) == 0 && ::pipe(to_parent) == 0);
  const pid_t child = ::fork();  // before either has touched the library
  const std::uint32_t me = child == 0 ? 1 : 0;
  const int out = child == 0 ? to_parent[1] : to_child[1];
  const int in = child == 0 ? to_child[0] : to_parent[0];
  const auto tell = [&](const std::string& text) {
    const std::uint64_t nbytes = text.size();
    CHECK(::write(out, &nbytes, sizeof nbytes) == sizeof nbytes);
    CHECK(::write(out, text.data(), nbytes) == static_cast<ssize_t>(nbytes));
  };
  const auto hear = [&] {
    std::uint64_t nbytes = 0;
    CHECK(::read(in, &nbytes, sizeof nbytes) == sizeof nbytes);
    std::string text(nbytes, '\0');
    CHECK(::read(in, text.data(), nbytes) == static_cast<ssize_t>(nbytes));
    return text;
  };
  TcpHub hub("127.0.0.1", "0", "token");
  const auto engine = std::make_shared<UcxEngine>(library, "token");
  tell(hub.address());
  tell(engine->address());
  TcpPlace place{cookie, me, 2, 3, {{}, {}}, 5};
  std::vector<UcxTransport::Worker> workers(2);
  place.addresses[1 - me] = {hear()};
  workers[1 - me] = {hear(), is_here};
  Keeper keeper;
  UcxTransport transport(hub, place, workers, engine, keeper);
  transport.connect(1 - me, until_s(10));
  const auto large = pattern(suite::huge_nbytes, 1);
  bool is_sent = false;
  post(transport, 1 - me, pattern(100, me), 0, nullptr);
  post(transport, 1 - me, large, 1, &is_sent);
  const std::int64_t end = now_ns() + 30'000 * ns_per_ms;
  const auto goes_on = [&] {
    CHECK(now_ns() < end);
    transport.wait(10 * ns_per_ms, [&] { return transport.poll(); });
    transport.poll();
  };
  while (keeper.kept.empty()) goes_on();
  if (child == 0) ::kill(::getpid(), SIGKILL);
  while (keeper.losses.empty()) goes_on();
  CHECK(keeper.losses[0].first == 1 && keeper.losses.size() == 1);
  try {
    transport.connect(1, until_s(5));
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::network && error.peer() == 1);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child && WIFSIGNALED(status));
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(fd);
}

void test_failures_are_told_in_words() {
  try {
    const UcxEngine engine("/nowhere/libucp.so", "token");
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::network);
    CHECK(says(error.what(), "libucp cannot be opened") && says(error.what(), "/nowhere"));
  }
  try {
    const UcxEngine engine("libc.so.6", "token");
    CHECK(false);
  } catch (const Error& error) {
    CHECK(says(error.what(), "libc.so.6 has no ucp_get_version"));
  }
}

int run_over(const std::string& tls, bool is_one_host) {
  is_here = is_one_host;
  ::setenv("UCX_TLS", tls.c_str(), 1);
  std::fprintf(stderr, "over %s, %s\n", tls.c_str(), is_here ? "one host" : "several hosts");
  test_failures_are_told_in_words();
  test_a_peer_that_dies_is_lost();
  suite::run_all([](std::uint32_t size) { return std::make_unique<UcxRanks>(size); });
  test_what_a_peer_sent_before_it_left_still_arrives();
  test_words_arrive_while_both_ranks_are_elsewhere();
  test_what_comes_before_its_transport_waits_for_it();
  test_strangers_are_not_heard();
  test_who_does_not_read_is_not_sent_more_than_the_window();
  test_a_cut_message_ends_the_way();
  return 0;
}

}  // namespace

int main(int count, char** words) {
  ::setenv("UCX_HANDLE_ERRORS", "none", 0);
#ifdef DISTDBG_SANITIZED
  // Its hooks in madvise run in threads that a sanitizer has ended already.
  ::setenv("UCX_MEM_EVENTS", "n", 0);
#endif
  if (count == 3) return run_over(words[1], words[2][0] == '1');
  try {
    ucx::open_library(library);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 77;
  }
  // The library reads its settings once in a process.
  const std::vector<std::pair<const char*, const char*>> all = {
      {"tcp", "0"}, {"tcp", "1"}, {"posix,sysv,self", "1"}, {"posix,sysv,cma,self,tcp", "1"}};
  for (const auto& [tls, is_one_host] : all) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/proc/self/exe", words[0], tls, is_one_host, nullptr);
      ::_exit(127);
    }
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  std::puts("test_ucx: passed");
}
