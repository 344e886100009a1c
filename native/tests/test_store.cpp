// The TCPStore's halves without Python, under the sanitizers: the table, the wire, many clients at once.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "error.hpp"
#include "sha256.hpp"
#include "store_client.hpp"
#include "store_server.hpp"
#include "store_table.hpp"

using namespace distdbg;

namespace {

constexpr std::int64_t second_ns = 1000 * ns_per_ms;

Wait in_seconds(std::int64_t seconds) { return {now_ns() + seconds * second_ns, nullptr}; }

int listen_anywhere(std::uint16_t& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(::listen(fd, 64) == 0);
  socklen_t nbytes = sizeof address;
  CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &nbytes) == 0);
  port = ntohs(address.sin_port);
  return fd;
}

struct Running {
  std::uint16_t port = 0;
  StoreServer server{listen_anywhere(port), "token", {}, StoreLimits{}, false, 10 * second_ns};
};

std::string hex(const Digest& digest) {
  static const char* digits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest) {
    text.push_back(digits[byte >> 4]);
    text.push_back(digits[byte & 15]);
  }
  return text;
}

void test_sha256_of_the_standard() {
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(hmac_sha256("Jefe", {"what do ya want ", "for nothing?"})) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

void test_any_bytes_are_decoded_or_refused() {
  std::string bytes;
  StoreEncoder encoder(bytes, 1, -5);
  encoder.field("key");
  encoder.field("");
  encoder.finish();
  StoreMessage message;
  CHECK(decode_store_message(bytes, message));
  CHECK(message.code == 1 && message.number == -5 && message.fields.size() == 2);
  std::uint32_t state = 1;
  for (int round = 0; round < 20'000; ++round) {
    std::string changed = bytes;
    for (int i = 0; i < 3; ++i) {
      state = state * 1664525u + 1013904223u;
      changed[(state >> 8) % changed.size()] = static_cast<char>(state >> 24);
    }
    StoreTable table{StoreLimits{}};
    std::string out;
    if (decode_store_message(changed, message)) table.answer(message, out);
  }
}

void test_clients_of_many_threads() {
  Running running;
  StoreClient shared("127.0.0.1", running.port, "token");
  shared.connect(in_seconds(10));
  std::vector<std::thread> threads;
  for (int index = 0; index < 6; ++index) {
    threads.emplace_back([&, index] {
      StoreClient own("127.0.0.1", running.port, "token");
      if (index % 2 == 0) own.connect(in_seconds(10));
      StoreClient& client = index % 2 == 0 ? own : shared;
      for (int i = 0; i < 50; ++i) {
        client.call(StoreOp::add, 1, {"count"}, in_seconds(10));
        const std::string mine = "key" + std::to_string(index) + "/" + std::to_string(i);
        const std::string next = "key" + std::to_string((index + 1) % 6) + "/" + std::to_string(i);
        client.call(StoreOp::set, 0, {mine, "value"}, in_seconds(10));
        const StoreReply reply = client.call(StoreOp::get, 10 * second_ns, {next}, in_seconds(20));
        CHECK(reply.fields.size() == 1 && reply.fields[0] == "value");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(shared.call(StoreOp::add, 0, {"count"}, in_seconds(10)).number == 300);
}

void test_a_timeout_names_what_is_missing() {
  Running running;
  StoreClient client("127.0.0.1", running.port, "token");
  client.connect(in_seconds(10));
  client.call(StoreOp::set, 0, {"a", "1"}, in_seconds(10));
  const StoreReply reply =
      client.call(StoreOp::wait, 5 * ns_per_ms, {"a", "b", "c"}, in_seconds(10));
  CHECK(reply.status == StoreStatus::timeout && reply.number == 2);
  CHECK(reply.fields.size() == 2 && reply.fields[0] == "b" && reply.fields[1] == "c");
}

void test_close_on_either_side_ends_a_blocked_call() {
  for (const bool closes_server : {true, false}) {
    Running running;
    StoreClient client("127.0.0.1", running.port, "token");
    client.connect(in_seconds(10));
    std::atomic<int> fault{-1};
    std::thread blocked([&] {
      try {
        client.call(StoreOp::get, 60 * second_ns, {"never"}, in_seconds(60));
      } catch (const Error& error) {
        fault = static_cast<int>(error.fault());
      }
    });
    if (closes_server) {
      running.server.close();
    } else {
      client.close();
    }
    blocked.join();
    CHECK(fault == static_cast<int>(closes_server ? Fault::network : Fault::broken));
  }
}

void test_the_deadline_is_the_callers() {
  std::uint16_t port = 0;
  const int silent = listen_anywhere(port);
  StoreClient client("127.0.0.1", port, "token");
  const std::int64_t begin = now_ns();
  bool has_thrown = false;
  try {
    client.connect({begin + 60 * ns_per_ms, nullptr});
  } catch (const Error& error) {
    has_thrown = error.fault() == Fault::network;
  }
  CHECK(has_thrown && now_ns() - begin < second_ns);
  ::close(silent);
}

}  // namespace

int main() {
  test_sha256_of_the_standard();
  test_any_bytes_are_decoded_or_refused();
  test_clients_of_many_threads();
  test_a_timeout_names_what_is_missing();
  test_close_on_either_side_ends_a_blocked_call();
  test_the_deadline_is_the_callers();
  return 0;
}
