// Messages that both sides copy, and what a rank that gives up waits for while a peer writes to its array.
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.hpp"
#include "p2p.hpp"
#include "ranks.hpp"

namespace {

using namespace distdbg;

// Then the receiver of what is longer decides how it travels.
constexpr Tuning nothing_pushed{.pushed_nbytes = 0};

std::vector<float> numbers(std::size_t count, float first) {
  std::vector<float> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = first + static_cast<float>(i % 1000);
  return made;
}

void test_each_side_copies_a_half() {
  for (const bool is_async : {false, true})
    run_ranks(2, true, [&](Group& group) {
      group.set_tuning(nothing_pushed);
      PointToPoint messages(group);
      const bool is_sender = group.rank() == 0;
      for (const std::size_t count : {8'191UL, 8'192UL, 8'209UL, 300'001UL, 2'000'001UL}) {
        const std::vector<float> sent = numbers(count, 3);
        std::vector<float> values = is_sender ? sent : std::vector<float>(count, -1);
        const std::int64_t until = now_ns() + 20'000'000'000;
        const int peer = is_sender ? 1 : 0;
        const MessagePointer message =
            is_sender ? messages.send(region_of(values), 0, peer, 3, until, false)
                      : messages.recv(region_of(values), 0, peer, 3, until, is_async);
        messages.wait(message, in_seconds(20), !message->is_async);
        CHECK(values == sent);
        // What is shorter than 32 KiB is read by its receiver, and than 4 MiB where the sender sleeps.
        if (count < 8'192 || count > 1 << 20) CHECK(message->pieces.is_halved == (count > 1 << 20));
      }
      CHECK(messages.are_sends_received());
    });
}

void test_a_broken_group_is_not_written_to() {
  run_ranks(2, true, [&](Group& group) {
    static std::vector<float> values;
    if (group.rank() == 1) return;
    values.assign(1000, 1);
    const std::vector<float> other(1000, 2);
    const auto write = [&] {
      group.write_peer(1, reinterpret_cast<std::uint64_t>(values.data()),
                       reinterpret_cast<const std::byte*>(other.data()), 4000, Group::Writer::op);
    };
    group.break_group(Fault::timeout, 1, "timed out");
    Fault fault = Fault::usage;
    try {
      write();
    } catch (const Error& error) {
      fault = error.fault();
    }
    CHECK(fault == Fault::timeout);
    CHECK(values == std::vector<float>(1000, 1));
    CHECK(group.segment().rank(0).writes_to[0] == 0);
  });
}

// `is_ended`: the peer comes to the end of its piece.
void gives_up_while_it_is_written(bool is_ended) {
  std::atomic<bool> has_given_up{false};
  run_ranks(2, true, [&](Group& group) {
    if (group.rank() == 1) {
      auto& writes_to = group.segment().rank(1).writes_to[1];
      writes_to = 1;
      while (!group.is_broken()) ::usleep(100);
      ::usleep(100'000);
      CHECK(!has_given_up);
      if (is_ended) writes_to = 0;
      while (!has_given_up) ::usleep(100);
      return;
    }
    PointToPoint messages(group);
    std::vector<float> values(1000);
    const MessagePointer message =
        messages.recv(region_of(values), 0, 1, 3, now_ns() + 20'000'000'000, false);
    message->pieces.is_exposed = true;
    Fault fault = Fault::usage;
    try {
      messages.wait(message, in_seconds(0.05), true);
    } catch (const Error& error) {
      fault = error.fault();
    }
    has_given_up = true;
    CHECK(fault == Fault::timeout);
    CHECK(message->is_left_written == !is_ended);
    // Who is known to be stopped is not waited for again.
    const std::int64_t began = now_ns();
    group.await_writers(Group::Writer::message);
    CHECK(now_ns() - began < 500'000'000);
    CHECK(Group::take_left_written() == !is_ended);
    CHECK(!Group::take_left_written());
  });
}

void test_who_gives_up_waits_for_who_writes_to_it() {
  gives_up_while_it_is_written(true);
  gives_up_while_it_is_written(false);
}

}  // namespace

int main() {
  test_each_side_copies_a_half();
  test_a_broken_group_is_not_written_to();
  test_who_gives_up_waits_for_who_writes_to_it();
  return 0;
}
