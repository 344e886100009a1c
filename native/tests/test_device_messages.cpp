// Messages whose arrays are on a GPU, served by threads of the test.
#include "device_messages.hpp"

#include <unistd.h>

#include <atomic>
#include <set>

namespace {

using namespace distdbg;

// Every pair of a sender and a receiver, blocking: on the device, on the host, and one that cannot open.
void test_each_pair() {
  for (const std::size_t count : {std::size_t{2}, std::size_t{1000}, std::size_t{100'000}})
    for (const int kind : {0, 1, 2, 3})
      run_ranks(2, true, [&](Group& group) {
        PointToPoint messages(group);
        Array array{std::vector<float>(count, group.rank() == 0 ? 7.0F : 0.0F)};
        MessagePointer message;
        const std::int64_t until = now_ns() + 20'000'000'000;
        if (group.rank() == 0)
          message = kind == 2 ? messages.send(array.on_host(), dtype, 1, 3, until, false)
                              : messages.send_device(array.on_device(), dtype, 1, 3, until, false,
                                                     {}, array.description());
        else
          message = kind == 1 ? messages.recv(array.on_host(), dtype, any_source, 3, until, false)
                              : messages.recv_device(array.on_device(), dtype, any_source, 3, until,
                                                     false, {});
        Server{messages, message, array, kind != 3}.finish();
        CHECK(array.values == std::vector<float>(count, 7.0F));
        if (kind == 0) CHECK(message->ran_ns == 1234);
        if (kind == 3) CHECK(message->is_refused);
      });
}

// Many at once, in the other order of tags, served by a thread from the list of what is wanted.
void test_asynchronous() {
  constexpr int many = 40;
  run_ranks(2, true, [&](Group& group) {
    PointToPoint messages(group);
    std::vector<Array> arrays;
    for (int k = 0; k < many; ++k)
      arrays.push_back({std::vector<float>(500, group.rank() == 0 ? static_cast<float>(k) : -1)});
    std::vector<Server> servers;
    for (int k = 0; k < many; ++k)
      servers.push_back({messages, nullptr, arrays[static_cast<std::size_t>(k)], k % 3 != 0, 300});
    std::vector<MessagePointer> all(many);
    std::atomic<int> posted = 0;
    std::thread server([&] {
      std::set<std::int64_t>
          ended;  // one that has ended may come twice: it wanted something before
      while (ended.size() < many) {
        const MessagePointer message = messages.next_wanted(100'000'000);
        if (!message) continue;
        if (message->done()) {
          ended.insert(message->tag);
          continue;
        }
        const auto k = static_cast<std::size_t>(message->tag);
        servers[k].message = message;
        servers[k].serve();
      }
    });
    for (int k = 0; k < many; ++k) {
      const auto at = static_cast<std::size_t>(group.rank() == 0 ? k : many - 1 - k);
      const auto tag = static_cast<std::int64_t>(at);
      all[at] =
          group.rank() == 0
              ? messages.send_device(arrays[at].on_device(), dtype, 1, tag, no_deadline, true, {},
                                     arrays[at].description())
              : messages.recv_device(arrays[at].on_device(), dtype, 0, tag, no_deadline, true, {});
    }
    for (const MessagePointer& message : all) messages.wait(message, in_seconds(20), false);
    server.join();
    if (group.rank() == 1)
      for (std::size_t k = 0; k < many; ++k) {
        CHECK(arrays[k].values == std::vector<float>(500, static_cast<float>(k)));
      }
    while (!messages.is_idle()) ::usleep(100);
  });
}

// A sender that gives up breaks the group before its array is its own again: what was copied does not count.
void test_a_sender_that_gives_up() {
  std::atomic<int> step = 0;
  run_ranks(2, true, [&](Group& group) {
    PointToPoint messages(group);
    Array array{std::vector<float>(100, 1.0F)};
    if (group.rank() == 0) {
      const MessagePointer message = messages.send_device(
          array.on_device(), dtype, 1, 0, no_deadline, false, {}, array.description());
      while (step != 1) ::usleep(100);
      bool is_late = false;
      try {
        messages.wait(message, in_seconds(0.01), true);
      } catch (const Error& error) {
        is_late = error.fault() == Fault::timeout;
      }
      CHECK(is_late);
      step = 2;
      return;
    }
    const MessagePointer message =
        messages.recv_device(array.on_device(), dtype, 0, 0, no_deadline, false, {});
    messages.wait(message, in_seconds(20), true);
    CHECK(message->want == Want::take);
    step = 1;
    while (step != 2) ::usleep(100);
    bool has_thrown = false;
    try {
      messages.took(message, -1);
    } catch (const Error&) {
      has_thrown = true;
    }
    CHECK(has_thrown);
    CHECK(!message->done());
    try {
      messages.look(message, in_seconds(20));
      CHECK(false);
    } catch (const Error&) {
    }
    CHECK(message->done());
    messages.took(message, -1);  // which is too late, and does nothing
  });
}

// What is no offer, and what nobody could take.
void test_what_is_refused() {
  run_ranks(2, true, [&](Group& group) {
    PointToPoint messages(group);
    Array array{std::vector<float>(4)};
    const auto is_refused = [&](int peer, std::size_t nbytes) {
      try {
        messages.send_device(array.on_device(), dtype, peer, 0, no_deadline, true, {},
                             std::vector<std::byte>(nbytes));
      } catch (const Error& error) {
        return error.fault() == Fault::usage;
      }
      return false;
    };
    const int me = static_cast<int>(group.rank());
    CHECK(is_refused(me, 8));
    CHECK(is_refused(2, 8));
    CHECK(is_refused(-1, 8));
    CHECK(is_refused(1 - me, 513));
  });
}

}  // namespace

int main() {
  test_each_pair();
  test_asynchronous();
  test_a_sender_that_gives_up();
  test_what_is_refused();
  return 0;
}
