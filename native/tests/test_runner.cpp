// Asynchronous ops that who waits for them runs itself, leaves standing at a gate, or leaves to the thread.
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"
#include "ranks.hpp"
#include "runner.hpp"

using namespace distdbg;

namespace {

constexpr std::uint64_t nbytes = 96;

// One rank's arrays and plan for ops that are submitted one by one.
class Ops {
 public:
  explicit Ops(Group& group) : group_(group), runner_(group) {
    static const std::string facts = "{\"facts\": 0";
    words_.facts = &facts;
    set_fingerprint(nbytes);
  }

  void set_fingerprint(std::uint64_t fingerprint) {
    auto plan =
        std::make_shared<Plan>(all_reduce(group_.rank(), group_.size(), nbytes, is_through_slots_));
    plan->fingerprint = fingerprint;
    plan_ = std::move(plan);
  }
  void set_through_slots(bool is_through_slots) {
    is_through_slots_ = is_through_slots;
    set_fingerprint(nbytes);
  }
  OpPointer submit() {
    x_.assign(nbytes / 4, 1.0F);
    return runner_.submit(plan_, words_, RecordedOp{}, {region_of(x_)}, {region_of(x_)},
                          in_seconds(20).deadline_ns);
  }
  OpPointer submit_lazily() {
    Plan plan;
    plan.steps = {gate()};
    plan.fingerprint = plan_->fingerprint;
    plan.finish(group_.size(), slot_nbytes);
    return runner_.submit_lazily(std::make_shared<Plan>(std::move(plan)), words_, RecordedOp{},
                                 in_seconds(20).deadline_ns);
  }
  // Nobody waits for it.
  static void see_end(const OpPointer& op) {
    for (const std::int64_t until = now_ns() + 10'000 * ns_per_ms; !op->done(); ::usleep(100))
      CHECK(now_ns() < until);
  }
  void check_sum() const {
    for (const float value : x_) CHECK(value == static_cast<float>(group_.size()));
  }
  // As a program that has no limit for its waits.
  void wait(const OpPointer& op) { runner_.wait(*op, group_.wait_until(no_deadline)); }
  Fault fault_of_wait(const OpPointer& op, double seconds = 30) {
    try {
      runner_.wait(*op, in_seconds(seconds));
    } catch (const Error& error) {
      return error.fault();
    }
    return Fault{};
  }
  // Often enough that the thread dozes.
  void wait_right_after(int count) {
    for (int i = 0; i < count; ++i) {
      wait(submit());
      check_sum();
    }
  }

 private:
  Group& group_;
  CallWords words_;
  std::shared_ptr<const Plan> plan_;
  std::vector<float> x_;
  bool is_through_slots_ = true;
  Runner runner_;  // the last member: it uses the others
};

// Now and then another rank is late: a little, so that the others sleep at the gate themselves, or so much
// that they hand the op over.
void wait_while_ranks_are_late(Group& group) {
  Ops ops(group);
  for (const bool through_slots : {true, false}) {
    ops.set_through_slots(through_slots);
    for (std::uint32_t round = 0; round < 40; ++round) {
      if (round % 5 == 0 && round / 5 % group.size() == group.rank())
        ::usleep(round % 20 == 0 ? 60'000 : 3000);
      ops.wait_right_after(1);
    }
  }
}

void leave_ops_to_the_thread(Group& group) {
  Ops ops(group);
  for (int round = 0; round < 5; ++round) {
    ops.wait_right_after(50);
    const OpPointer op = ops.submit();
    for (const std::int64_t until = now_ns() + 10'000 * ns_per_ms; !op->done(); ::usleep(100))
      CHECK(now_ns() < until);
    ops.check_sum();
  }
}

void differ_while_standing(Group& group) {
  Ops ops(group);
  for (int round = 0; round < 4; ++round) {
    ops.wait_right_after(20);
    if (group.rank() == 0) ::usleep(3000);
    ops.set_fingerprint(group.rank() == 0 ? 1 : 2);
    CHECK(ops.fault_of_wait(ops.submit()) == Fault::mismatch);
    ops.set_fingerprint(nbytes);
  }
}

void lose_a_peer_while_standing(Group& group) {
  Ops ops(group);
  ops.wait_right_after(20);
  if (group.rank() == 1) {
    ::usleep(20'000);
    group.leave();
    return;
  }
  const OpPointer op = ops.submit();
  CHECK(ops.fault_of_wait(op) == Fault::peer_lost);
  CHECK(ops.fault_of_wait(op) == Fault::peer_lost);
}

// A limit of the wait alone leaves the op going, and nobody runs it beyond that limit.
void give_up_waiting(Group& group) {
  Ops ops(group);
  ops.wait_right_after(20);
  if (group.rank() == 0) ::usleep(100'000);
  const OpPointer op = ops.submit();
  if (group.rank() != 0) CHECK(ops.fault_of_wait(op, 0.01) == Fault::timeout);
  ops.wait(op);
  ops.check_sum();
}

// The thread ends the op that stands, and takes the arrival back: the others are told.
void close_while_standing(Group& group) {
  Ops ops(group);
  ops.wait_right_after(20);
  if (group.rank() == 0) {
    Ops dropped(group);
    const OpPointer op = dropped.submit();
    CHECK(dropped.fault_of_wait(op, 0.01) == Fault::timeout);
    return;
  }
  while (!group.is_broken()) ::usleep(100);
  try {
    ops.submit();
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::broken);
  }
}

// Agreements, of which each rank is ahead at some time, with ops that are waited for in between.
void agree_lazily(Group& group) {
  Ops ops(group);
  for (std::uint32_t round = 0; round < 8; ++round) {
    if (round % group.size() == group.rank()) ::usleep(3000);
    std::vector<OpPointer> agreements;
    for (int i = 0; i < 20; ++i) agreements.push_back(ops.submit_lazily());
    if (round % 2 == 0) ops.wait_right_after(2);
    if (round % 4 == 1) ops.wait(agreements.back());
    for (const OpPointer& each : agreements) {
      Ops::see_end(each);
      each->rethrow();
    }
  }
}

void differ_lazily(Group& group) {
  Ops ops(group);
  for (int round = 0; round < 4; ++round) {
    ops.wait(ops.submit_lazily());
    ops.set_fingerprint(group.rank() == 0 ? 1 : 2);
    const OpPointer op = ops.submit_lazily();
    ops.set_fingerprint(nbytes);
    ops.submit_lazily();
    Ops::see_end(op);
    CHECK(ops.fault_of_wait(op) == Fault::mismatch);
    ops.wait_right_after(1);
  }
}

// Who waits for a moment leaves the agreement standing, and it goes on.
void wait_for_a_moment(Group& group) {
  Ops ops(group);
  for (std::uint32_t round = 0; round < 3; ++round) {
    const bool is_late = round % group.size() == group.rank();
    if (is_late) ::usleep(60'000);
    const OpPointer op = ops.submit_lazily();
    const Fault early = ops.fault_of_wait(op, 0.01);
    CHECK(early == Fault::timeout || op->done());
    CHECK(ops.fault_of_wait(op, 10) == Fault{});
  }
}

void lose_a_peer_lazily(Group& group) {
  Ops ops(group);
  ops.wait(ops.submit_lazily());
  if (group.rank() == 1) {
    ::usleep(20'000);
    group.leave();
    return;
  }
  const OpPointer op = ops.submit_lazily();
  Ops::see_end(op);
  CHECK(ops.fault_of_wait(op) == Fault::peer_lost);
}

}  // namespace

int main() {
  for (const std::uint32_t size : {1U, 2U, 4U}) {
    run_ranks(size, true, wait_while_ranks_are_late);
    run_ranks(size, true, leave_ops_to_the_thread);
    run_ranks(size, true, agree_lazily);
    if (size == 1) continue;
    run_ranks(size, true, differ_lazily);
    run_ranks(size, true, wait_for_a_moment);
    run_ranks(size, true, lose_a_peer_lazily);
    run_ranks(size, true, differ_while_standing);
    run_ranks(size, true, lose_a_peer_while_standing);
    run_ranks(size, true, give_up_waiting);
    run_ranks(size, true, close_while_standing);
  }
  std::puts("test_runner: passed");
}
