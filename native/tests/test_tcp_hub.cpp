// A hub among strangers: what they send and how many they are does no harm to those who know the token. Then
// mutated handshakes and messages through the code that reads them; an argument is for how many seconds.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "error.hpp"
#include "messages.hpp"
#include "store_address.hpp"
#include "store_wire.hpp"
#include "tcp_dial.hpp"
#include "tcp_hub.hpp"
#include "tcp_socket.hpp"
#include "tcp_wire.hpp"
#include "transports.hpp"

using namespace distdbg;

namespace {

constexpr std::uint64_t cookie = 99;
constexpr TcpWay way{cookie, 1, 1, 0};

std::size_t count_fds() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

template <class Ready>
void wait_until(const Ready& ready) {
  const std::int64_t end = now_ns() + 30'000 * ns_per_ms;
  while (!ready()) {
    CHECK(now_ns() < end);
    ::usleep(1000);
  }
}

Fd dial_plainly(const TcpHub& hub) {
  const Addresses at = resolve(split_address(hub.address()));
  Fd socket = Fd::from([&] { return ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  if (socket) CHECK(::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0);
  return socket;
}

std::string read_all(const Fd& socket, std::size_t nbytes) {
  std::string bytes(nbytes, '\0');
  const ssize_t got = ::recv(socket.get(), bytes.data(), nbytes, MSG_WAITALL);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

void send_all(const Fd& socket, const std::string& bytes) {
  ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::string request_of(const Fd& socket) {
  return encode_tcp_request(way, std::string(32, 'n'), peer_store_address(socket.get()),
                            own_store_address(socket.get()));
}

bool lets_in(const TcpHub& hub, double seconds = 20) {
  return static_cast<bool>(
      dial_tcp({hub.address()}, way, "token", until_s(seconds), [] { return false; }));
}

std::string all_complaints(TcpHub& hub) {
  std::string text;
  for (const std::string& each : hub.complaints()) text += each + "\n";
  return text;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void test_each_misbehaviour_is_told_once() {
  TcpHubLimits limits;
  limits.proof_ns = 300 * ns_per_ms;
  TcpHub hub("127.0.0.1", "0", "token", limits);
  std::uint64_t refused = 0;
  const auto expect = [&](const std::string& words) {
    ++refused;
    wait_until([&] { return hub.refused() == refused; });
    CHECK(says(all_complaints(hub), words));
  };
  std::string recorded;
  {
    const Fd socket = dial_plainly(hub);
    send_all(socket, "GET / HTTP/1.1\r\n\r\n");
    expect("sent what is no request");
  }
  {
    const Fd socket = dial_plainly(hub);
    CHECK(read_all(socket, tcp_hello_nbytes).starts_with("distdbgH"));
    send_all(socket, request_of(socket).substr(0, 50));
  }
  expect("left before");
  {
    const Fd socket = dial_plainly(hub);
    send_all(socket, "dist");
    expect("did not say in time");
  }
  {
    const Fd socket = dial_plainly(hub);
    std::string request = request_of(socket);
    request[8] = 77;
    send_all(socket, request);
    expect("another version");
  }
  {
    const Fd socket = dial_plainly(hub);
    std::string request = request_of(socket);
    request[64 + 15] ^= 1;
    send_all(socket, request);
    CHECK(read_all(socket, tcp_hello_nbytes + tcp_verdict_nbytes).size() ==
          tcp_hello_nbytes + tcp_verdict_nbytes);
    expect("addresses");
  }
  {
    const Fd socket = dial_plainly(hub);
    const std::string nonce = read_all(socket, tcp_hello_nbytes).substr(16);
    const std::string request = request_of(socket);
    recorded = request + prove_tcp_role(TcpRole::dialler, "other", nonce, request);
    send_all(socket, recorded);
    CHECK(read_all(socket, tcp_verdict_nbytes + 1).size() == tcp_verdict_nbytes);
    expect("does not know the token");
  }
  {
    const Fd socket = dial_plainly(hub);
    send_all(socket, "junk");
    ++refused;
    wait_until([&] { return hub.refused() == refused; });
    CHECK(hub.complaints().empty());  // the first of its kind was told
  }
  CHECK(lets_in(hub));
}

// From the same port, so that only the nonces differ. False: somebody has taken that port meanwhile.
bool replay(TcpHub& hub) {
  std::string recorded;
  sockaddr_storage source{};
  socklen_t source_nbytes = sizeof source;
  {
    const Fd socket = dial_plainly(hub);
    const std::string nonce = read_all(socket, tcp_hello_nbytes).substr(16);
    const std::string request = request_of(socket);
    recorded = request + prove_tcp_role(TcpRole::dialler, "token", nonce, request);
    CHECK(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&source), &source_nbytes) == 0);
    const linger at_once{1, 0};  // its port is free again
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  const Addresses at = resolve(split_address(hub.address()));
  const Fd socket = Fd::from([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&source), source_nbytes) != 0) return false;
  CHECK(::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0);
  send_all(socket, recorded);
  wait_until([&] { return says(all_complaints(hub), "does not know the token"); });
  return true;
}

void test_a_recorded_handshake_opens_nothing() {
  TcpHub hub("127.0.0.1", "0", "token");
  int tries = 1;
  while (!replay(hub)) CHECK(++tries < 100);
}

// A stranger between a rank and its hub, who knows no token, and one who answers like a hub.
void test_a_stranger_is_no_hub() {
  const Fd listener = Fd::from([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  const Addresses any = resolve({"127.0.0.1", "0"});
  CHECK(::bind(listener.get(), any->ai_addr, any->ai_addrlen) == 0);
  CHECK(::listen(listener.get(), 8) == 0);
  TcpHub hub("127.0.0.1", "0", "token");
  for (const bool relays : {false, true}) {
    std::thread stranger([&] {
      pollfd entry{listener.get(), POLLIN, 0};
      CHECK(::poll(&entry, 1, 30'000) == 1);
      const Fd near = Fd::from([&] { return ::accept(listener.get(), nullptr, nullptr); });
      if (!relays) {
        send_all(near, encode_tcp_hello(std::string(32, 'h')));
        const std::string request = read_all(near, tcp_request_nbytes);
        send_all(near, encode_tcp_verdict(
                           TcpVerdict::proven,
                           prove_tcp_role(TcpRole::hub, "no", std::string(32, 'h'), request)));
        CHECK(read_all(near, 1).empty());
        return;
      }
      const Fd far = dial_plainly(hub);
      send_all(near, read_all(far, tcp_hello_nbytes));
      send_all(far, read_all(near, tcp_request_nbytes));
      send_all(near, read_all(far, tcp_verdict_nbytes));
      CHECK(read_all(near, 1).empty());
    });
    try {
      dial_tcp({own_address_words(listener.get())}, way, "token", until_s(10),
               [] { return false; });
      CHECK(false);
    } catch (const Error& error) {
      CHECK(error.error_number() == EACCES);
      CHECK(says(error.what(), relays ? "something is in between" : "does not know the token"));
    }
    stranger.join();
  }
}

void test_silent_strangers_do_not_keep_others_out() {
  TcpHubLimits limits;
  limits.proof_ns = 60'000 * ns_per_ms;
  limits.patience_ns = 20 * ns_per_ms;
  TcpHub hub("127.0.0.1", "0", "token", limits);
  const std::size_t before = count_fds();
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(dial_plainly(hub));
  const std::int64_t begin = now_ns();
  CHECK(lets_in(hub));
  CHECK(now_ns() - begin < 10'000 * ns_per_ms);
  // At most 64 of them are held, and the one that was let in.
  CHECK(count_fds() - before <= 300 + 64 + 2);
}

void test_thousands_come_and_go() {
  TcpHub hub("127.0.0.1", "0", "token");
  const std::size_t before = count_fds();
  for (int i = 0; i < 2'000; ++i) {
    const Fd socket = dial_plainly(hub);
    if (i % 3 == 0) send_all(socket, "\xff\xff\xff\xff\xff\xff\xff\xff");
    const linger at_once{1, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  CHECK(lets_in(hub));
  wait_until([&] { return count_fds() <= before + 1; });
}

// In a process of its own: a hard limit, which the hub cannot raise, never rises again.
void test_it_goes_on_when_files_have_run_out() {
  const pid_t child = ::fork();
  if (child != 0) {
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return;
  }
  TcpHub hub("127.0.0.1", "0", "token");
  const rlimit tight{count_fds() + 10, count_fds() + 10};
  CHECK(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
  std::vector<Fd> mine;
  while (true) {
    mine.push_back(Fd::from([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }));
    if (!mine.back()) break;
  }
  const Addresses at = resolve(split_address(hub.address()));
  for (int i = 0; i < 3; ++i)
    CHECK(::connect(mine[static_cast<std::size_t>(i)].get(), at->ai_addr, at->ai_addrlen) == 0);
  ::usleep(50'000);  // time for the hub to fail at them
  mine.clear();
  CHECK(lets_in(hub));
  hub.close();
  ::_exit(0);
}

void test_those_who_come_too_early_are_bounded() {
  TcpHubLimits limits;
  limits.most_early = 3;
  TcpHub hub("127.0.0.1", "0", "token", limits);
  std::vector<Fd> early;
  for (int i = 0; i < 5; ++i)
    early.push_back(dial_tcp({hub.address()}, way, "token", until_s(10), [] { return false; }));
  wait_until([&] { return hub.refused() == 2; });
  CHECK(says(all_complaints(hub), "no group here has"));
  Keeper keeper;
  TcpHub other("127.0.0.1", "0", "token");
  const auto transport = other.transport({cookie, 0, 2, 1, {}, 5}, keeper);
  // A rank that the group does not have.
  const Fd wrong =
      dial_tcp({other.address()}, {cookie, 1, 2, 0}, "token", until_s(10), [] { return false; });
  wait_until([&] { return other.refused() == 1; });
}

void test_who_comes_after_its_transport_was_shut_is_not_kept() {
  Keeper keeper;
  TcpHub hub("127.0.0.1", "0", "token");
  hub.transport({cookie, 0, 2, 1, {}, 5}, keeper)->close();
  const std::size_t fds = count_fds();
  const Fd late = dial_tcp({hub.address()}, way, "token", until_s(10), [] { return false; });
  pollfd entry{late.get(), POLLIN, 0};
  CHECK(::poll(&entry, 1, 10'000) == 1);
  const Envelope last = last_envelope(had_closed_before);
  CHECK(read_all(late, 100) == std::string(reinterpret_cast<const char*>(&last), sizeof last));
  wait_until([&] { return count_fds() == fds + 1; });
  CHECK(hub.refused() == 0);  // and was no stranger
  // The next one of that kind is expected again.
  const auto next = hub.transport({cookie, 0, 2, 1, {}, 5}, keeper);
  CHECK(lets_in(hub));
}

void test_it_listens_where_it_was_told_to() {
  for (const char* host : {"0.0.0.0", "::", "", "::ffff:0.0.0.0"}) {
    try {
      TcpHub hub(host, "0", "token");
      CHECK(false);
    } catch (const Error& error) {
      CHECK(error.fault() == Fault::usage);
    }
  }
  try {
    TcpHub hub("192.0.2.1", "0", "token");
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::network && says(error.what(), "192.0.2.1"));
  }
  const TcpHub named("localhost", "0", "token");
  CHECK(!says(named.address(), "localhost:"));
  try {
    const TcpHub six("::1", "0", "token");
    CHECK(six.address().starts_with("[::1]:"));
    CHECK(lets_in(six));
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::network);  // no IPv6 here
  }
}

void test_close_leaves_nothing() {
  const std::size_t before = count_fds();
  for (int i = 0; i < 20; ++i) {
    TcpHub hub("127.0.0.1", "0", "token");
    const Fd stranger = dial_plainly(hub);
    CHECK(lets_in(hub));
    hub.close();
    hub.close();
    CHECK(hub.complaints().empty());
  }
  CHECK(count_fds() == before);
}

// ------------------------------------------------------------------------------------- mutations

struct Random {
  std::uint64_t state = 1;
  std::uint64_t below(std::uint64_t end) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33) % end;
  }
};

void mutate(std::string& bytes, Random& random) {
  for (std::uint64_t i = random.below(4); i > 0 && !bytes.empty(); --i) {
    const std::size_t at = random.below(bytes.size());
    switch (random.below(4)) {
      case 0: bytes[at] = static_cast<char>(random.below(256)); break;
      case 1: bytes.erase(at, random.below(40)); break;
      case 2: bytes.insert(at, bytes.substr(random.below(bytes.size()), random.below(60))); break;
      default: bytes[at] = static_cast<char>(random.below(2) == 0 ? 0xff : 0); break;
    }
  }
}

void feed_a_door(Random& random) {
  const std::string nonce(32, 'n');
  const std::string hub_address(18, 'h');
  const std::string dialler_address(18, 'd');
  TcpDoor door("token", nonce, hub_address, dialler_address);
  std::string bytes = encode_tcp_request(way, std::string(32, 'd'), hub_address, dialler_address);
  const std::string good = bytes;
  bytes += prove_tcp_role(TcpRole::dialler, "token", nonce, bytes);
  const std::string untouched = bytes;
  mutate(bytes, random);
  std::string reply;
  auto state = TcpDoor::State::listens;
  for (std::size_t at = 0; at < bytes.size() && state == TcpDoor::State::listens;) {
    const std::size_t wants = door.wants();
    CHECK(wants > 0 && wants <= tcp_request_nbytes);
    const std::size_t n = std::min({wants, bytes.size() - at, 1 + random.below(120)});
    state = door.take(std::string_view(bytes).substr(at, n), reply);
    at += n;
  }
  CHECK(reply.size() <= tcp_verdict_nbytes);
  const bool is_as_it_was = bytes.starts_with(untouched);
  CHECK((state == TcpDoor::State::open) == is_as_it_was);
  CHECK((state == TcpDoor::State::refused) == (door.misbehaviour() != TcpDoor::Misbehaviour::none));
}

void feed_a_dialler(Random& random) {
  TcpDialler dialler(way, "token");
  std::string hello = encode_tcp_hello(std::string(32, 'n'));
  mutate(hello, random);
  hello.resize(tcp_hello_nbytes);
  try {
    const std::string request =
        dialler.take_hello(hello, std::string(18, 'h'), std::string(18, 'd'));
    std::string verdict = encode_tcp_verdict(
        TcpVerdict::proven, prove_tcp_role(TcpRole::hub, "token", hello.substr(16), request));
    const std::string good = verdict;
    mutate(verdict, random);
    verdict.resize(tcp_verdict_nbytes);
    const std::string proof = dialler.take_verdict(verdict);
    // The four bytes of zeros mean nothing.
    CHECK(proof.size() == tcp_proof_nbytes && verdict.substr(8) == good.substr(8));
  } catch (const Error& error) {
    CHECK(error.error_number() == EPROTO || error.error_number() == EACCES);
  }
}

// Bytes as they came, in parts of any length.
struct Bytes {
  std::string_view left;
  Random& random;
  std::size_t read(std::byte* into, std::size_t nbytes) {
    const std::size_t n = std::min({nbytes, left.size(), random.below(300)});
    if (into != nullptr && n > 0) std::memcpy(into, left.data(), n);
    left.remove_prefix(n);
    return n;
  }
};

// What an outbox sends.
struct Sent {
  std::string bytes;
  std::size_t write(const Piece* pieces, std::size_t count) {
    const std::size_t before = bytes.size();
    for (std::size_t i = 0; i < count; ++i)
      bytes.append(reinterpret_cast<const char*>(pieces[i].data), pieces[i].nbytes);
    return bytes.size() - before;
  }
};

// With sums nothing that was changed is taken for a message.
void feed_an_inbox(Random& random, bool with_sums) {
  Sent sent;
  Outbox<Sent> outbox(with_sums);
  for (std::uint64_t i = 0; i < 6; ++i) {
    const auto payload = pattern(random.below(3) == 0 ? random.below(1000) : random.below(3), i);
    CHECK(outbox.post(sent, envelope_of(payload.size(), i),
                      one_piece(payload.data(), payload.size()), nullptr));
  }
  mutate(sent.bytes, random);
  Keeper keeper;
  // As an owner does who knows the sizes that may come.
  keeper.may_come = [&](const Envelope& envelope) {
    keeper.throws_away = envelope.nbytes > 10'000;
    return random.below(4) != 0;
  };
  Bytes stream{sent.bytes, random};
  Inbox<Bytes> inbox(with_sums);
  try {
    for (int round = 0; round < 400; ++round) {
      inbox.read(stream, 1, keeper);
      if (!with_sums && random.below(50) == 0) {
        auto& coming = keeper.coming(1);
        inbox.cancel(coming.data(), coming.data() + coming.size());
      }
    }
  } catch (const WrongSum&) {
    CHECK(with_sums);
  }
  for (const Keeper::Kept& kept : keeper.kept) {
    CHECK(kept.bytes.empty() || kept.bytes.size() == kept.envelope.nbytes);
    if (with_sums)
      check_kept(kept, 1, kept.envelope.words[0],
                 pattern(kept.envelope.nbytes, kept.envelope.words[0]));
  }
}

void test_mutations(double seconds) {
  Random random;
  const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  do {
    for (int i = 0; i < 50; ++i) {
      feed_a_door(random);
      feed_a_dialler(random);
      feed_an_inbox(random, i % 2 == 0);
    }
  } while (now_ns() < end);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    test_mutations(std::atof(argv[1]));
    return 0;
  }
  test_each_misbehaviour_is_told_once();
  test_a_recorded_handshake_opens_nothing();
  test_a_stranger_is_no_hub();
  test_silent_strangers_do_not_keep_others_out();
  test_thousands_come_and_go();
  test_it_goes_on_when_files_have_run_out();
  test_those_who_come_too_early_are_bounded();
  test_who_comes_after_its_transport_was_shut_is_not_kept();
  test_it_listens_where_it_was_told_to();
  test_close_leaves_nothing();
  test_mutations(0.5);
  return 0;
}
