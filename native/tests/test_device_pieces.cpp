// Messages whose arrays are on a GPU and go through the host in pieces, served by threads of the test.
#include <unistd.h>

#include <atomic>

#include "device_messages.hpp"
#include "hosts.hpp"

namespace {

using namespace distdbg;

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 10'007);
  return values;
}

// Both sides in pieces, or one of them on the host: on one host, whose memory can be read or not, and between two.
// `from_device` and `to_device`: where the arrays are.
void staged(Group& group, std::size_t count, bool from_device, bool to_device, bool is_async,
            std::uint64_t piece) {
  PointToPoint messages(group);
  const bool is_sender = group.rank() == 0;
  Array array{is_sender ? counted(count) : std::vector<float>(count)};
  Server server{messages, nullptr, array, true, is_sender ? 2 * piece : piece};
  const std::int64_t until = now_ns() + 20'000'000'000;
  if (is_sender)
    server.message =
        from_device ? messages.send_device(array.on_device(), dtype, 1, 3, until, is_async, {}, {})
                    : messages.send(array.on_host(), dtype, 1, 3, until, is_async);
  else
    server.message =
        to_device
            ? messages.recv_device(array.on_device(), dtype, any_source, 3, until, is_async, {})
            : messages.recv(array.on_host(), dtype, any_source, 3, until, is_async);
  if (is_async && server.message->is_on_device) {
    for (bool has_ended = false; !has_ended;) {
      const MessagePointer wanted = messages.next_wanted(100'000'000);
      if (!wanted) continue;
      has_ended = wanted->done();
      if (!has_ended) server.serve();
    }
    server.message->rethrow();
  } else {
    server.finish();
  }
  CHECK(array.values == counted(count));
  CHECK(server.places.size() <= 3 * server.piece);
  // As much as the receiver asks for, where it has places of its own.
  if (is_sender && from_device && to_device)
    CHECK(server.piece == std::min(piece, server.nbytes()));
}

void test_pieces() {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{100'003}})
    for (const int kind : {1, 2, 3})
      for (const bool is_async : {false, true}) {
        const bool from = (kind & 1) != 0;
        const bool to = (kind & 2) != 0;
        const auto body = [&](Group& group) { staged(group, count, from, to, is_async, 4096); };
        run_ranks(2, true, body);
        run_ranks(2, false, body);
        run_hosts({0, 1}, Net::rings, body);
        run_hosts({0, 1}, Net::tcp, body);
      }
}

// Two ranks on one host and one on another: each sends to the next, and receives from the one before.
void test_hosts_of_two_and_one() {
  for (const Layout& layout : {Layout{0, 0, 1}, Layout{0, 1, 0}})
    for (const Net net : {Net::rings, Net::tcp})
      run_hosts(layout, net, [](Group& group) {
        constexpr std::size_t count = 200'000;
        PointToPoint messages(group);
        const auto rank = static_cast<int>(group.rank());
        Array out{counted(count + static_cast<std::size_t>(rank))};
        const int before = (rank + 2) % 3;
        Array in{std::vector<float>(count + static_cast<std::size_t>(before))};
        const std::int64_t until = now_ns() + 20'000'000'000;
        std::vector<Server> servers{{messages, nullptr, out, true, 1 << 16},
                                    {messages, nullptr, in, true, 1 << 16}};
        servers[0].message =
            messages.send_device(out.on_device(), dtype, (rank + 1) % 3, 3, until, true, {}, {});
        servers[1].message =
            messages.recv_device(in.on_device(), dtype, before, 3, until, true, {});
        while (!servers[0].message->done() || !servers[1].message->done()) {
          const MessagePointer wanted = messages.next_wanted(100'000'000);
          if (wanted && !wanted->done()) servers[wanted == servers[0].message ? 0 : 1].serve();
        }
        for (const Server& server : servers) server.message->rethrow();
        CHECK(in.values == counted(in.values.size()));
      });
}

// More pieces than places: no place is written before what was in it is copied, whoever is slow.
void test_a_slow_device() {
  run_hosts({0, 1}, Net::tcp, [](Group& group) {
    PointToPoint messages(group);
    const bool is_sender = group.rank() == 0;
    constexpr std::size_t count = 64 * 1024;
    Array array{is_sender ? counted(count) : std::vector<float>(count)};
    Server server{messages, nullptr, array, true, 8192};
    if (is_sender) {
      server.message =
          messages.send_device(array.on_device(), dtype, 1, 0, no_deadline, false, {}, {});
      server.finish();
      CHECK(server.most_in_places == 3 * 8192);
      return;
    }
    server.message = messages.recv_device(array.on_device(), dtype, 0, 0, no_deadline, false, {});
    messages.wait(server.message, in_seconds(20), true);
    CHECK(server.message->want == Want::memory);
    server.places.resize(3UL * 8192);
    messages.give(server.message, {server.places.data(), server.places.size()}, 8192, false);
    // It copies nothing: three pieces come, and no more.
    while (messages.move_pieces(server.message, 0) < 3UL * 8192) ::usleep(100);
    const std::vector<std::byte> before = server.places;
    for (int i = 0; i < 100; ++i) {
      CHECK(messages.move_pieces(server.message, 0) == 3UL * 8192);
      ::usleep(100);
    }
    CHECK(server.places == before);
    server.move();
    server.finish();
    CHECK(array.values == counted(count));
  });
}

// A sender that has sent all of it may leave before the receiver's device has copied the rest.
void test_a_sender_that_leaves() {
  for (const bool are_hosts : {false, true}) {
    std::atomic<bool> has_left = false;
    const auto body = [&](Group& group) {
      Array array{group.rank() == 0 ? counted(5000) : std::vector<float>(5000)};
      if (group.rank() == 0) {
        {
          PointToPoint messages(group);
          Server server{messages, nullptr, array, true, 8192};
          server.message =
              messages.send_device(array.on_device(), dtype, 1, 0, no_deadline, false, {}, {});
          server.finish();
        }
        group.leave();
        has_left = true;
        return;
      }
      PointToPoint messages(group);
      Server server{messages, nullptr, array, true, 8192};
      server.message = messages.recv_device(array.on_device(), dtype, 0, 0, no_deadline, false, {});
      messages.wait(server.message, in_seconds(20), true);
      server.places.resize(3UL * 8192);
      messages.give(server.message, {server.places.data(), server.places.size()}, 8192, false);
      while (messages.move_pieces(server.message, 0) < 20'000) ::usleep(100);
      while (!has_left) ::usleep(100);
      messages.look(server.message, in_seconds(20));
      server.move();
      CHECK(server.message->done());
      server.message->rethrow();
      CHECK(array.values == counted(5000));
    };
    if (are_hosts)
      run_hosts({0, 1}, Net::tcp, body);
    else
      run_ranks(2, true, body);
  }
}

// A difference is told before there is any memory of the host, also where an empty offer has no payload.
void test_a_difference() {
  const auto body = [](Group& group) {
    PointToPoint messages(group);
    for (const bool from_device : {true, false}) {
      const bool is_sender = group.rank() == 0;
      Array array{std::vector<float>(is_sender ? 100'000 : 10)};
      MessagePointer message;
      if (!is_sender)
        message = messages.recv_device(array.on_device(), dtype, 0, 0, no_deadline, false, {});
      else if (from_device)
        message = messages.send_device(array.on_device(), dtype, 1, 0, no_deadline, false, {}, {});
      else
        message = messages.send(array.on_host(), dtype, 1, 0, no_deadline, false);
      bool differs = false;
      try {
        messages.wait(message, in_seconds(20), true);
      } catch (const Error& error) {
        differs = error.fault() == Fault::mismatch;
      }
      CHECK(differs);
      CHECK(message->want == Want::nothing);
    }
  };
  run_ranks(2, true, body);
  run_hosts({0, 1}, Net::tcp, body);
}

// A side that gives up in the middle ends the other one, and nobody touches its places any more.
void test_a_side_that_gives_up() {
  for (const std::uint32_t who : {0U, 1U})
    for (const bool is_async : {false, true})
      run_hosts({0, 1}, Net::tcp, [&](Group& group) {
        PointToPoint messages(group);
        Array array{std::vector<float>(64 * 1024)};
        const MessagePointer message =
            group.rank() == 0
                ? messages.send_device(array.on_device(), dtype, 1, 0, no_deadline, is_async, {},
                                       {})
                : messages.recv_device(array.on_device(), dtype, 0, 0, no_deadline, is_async, {});
        // An asynchronous one moves by a thread of its own.
        if (!is_async) messages.wait(message, in_seconds(20), true);
        while (message->want == Want::nothing && !message->done()) ::usleep(100);
        CHECK(!message->done());
        std::vector<std::byte> places(3UL * 8192);
        messages.give(message, {places.data(), places.size()}, 8192, false);
        // The sender puts three pieces in; the receiver copies one of them.
        std::uint64_t served = group.rank() == 0 ? 3UL * 8192 : 0;
        bool has_failed = false;
        try {
          while (!message->done()) {
            const std::uint64_t moved = messages.move_pieces(message, served);
            if (group.rank() == 1 && moved > 0) served = 8192;
            // The limit of one side is over as soon as something has moved.
            const bool is_over = group.rank() == who && moved > 0;
            messages.look(message, in_seconds(is_over ? 0 : 20));
            ::usleep(1000);
          }
          message->rethrow();
        } catch (const Error& error) {
          has_failed = true;
          if (group.rank() == who) CHECK(error.fault() == Fault::timeout);
        }
        CHECK(has_failed);
        CHECK(message->done());
      });
}

}  // namespace

int main() {
  test_pieces();
  test_hosts_of_two_and_one();
  test_a_slow_device();
  test_a_sender_that_leaves();
  test_a_difference();
  test_a_side_that_gives_up();
  return 0;
}
