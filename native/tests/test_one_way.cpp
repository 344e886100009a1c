// Ops one way: who leaves them before all have come, how far it gets, and how differences are told then.
#include <atomic>
#include <cstring>
#include <set>

#include "check.hpp"
#include "ranks.hpp"
#include "runner.hpp"

using namespace distdbg;

namespace {

constexpr std::uint64_t count = 4;
constexpr std::uint64_t nbytes = count * sizeof(float);
constexpr std::uint64_t lag = long_ring / 2;

Plan broadcast(std::uint32_t rank, std::uint32_t size, std::uint32_t root,
               std::uint64_t fingerprint) {
  Plan plan;
  plan.dtype = Dtype::float32;
  plan.fingerprint = fingerprint;
  plan.in_cuts = plan.out_cuts = {{0, 0, nbytes}};
  plan.is_one_way = true;
  if (rank == root)
    plan.steps.push_back({StepKind::copy, Space::input, Space::slot, -1, 0, 0, 0, 0, nbytes});
  plan.steps.push_back(gate());
  if (rank != root)
    plan.steps.push_back({StepKind::pull, Space::slot, Space::output,
                          static_cast<std::int32_t>(root), 0, 0, 0, 0, nbytes});
  plan.finish(size, slot_nbytes);
  return plan;
}

Plan reduce_to(std::uint32_t rank, std::uint32_t size, std::uint32_t root) {
  Plan plan;
  plan.dtype = Dtype::float32;
  plan.fingerprint = 1000 + root;
  plan.in_cuts = {{0, 0, nbytes}};
  if (rank == root) plan.out_cuts = plan.in_cuts;
  plan.is_one_way = true;
  plan.steps = {{StepKind::copy, Space::input, Space::slot, -1, 0, 0, 0, 0, nbytes}, gate()};
  if (rank == root)
    plan.steps.push_back({StepKind::fold_all, Space::slot, Space::output, -1, 0, 0, 0, 0, nbytes});
  plan.finish(size, slot_nbytes);
  return plan;
}

// What a rank calls, with words of its own.
struct Caller {
  Group& group;
  std::string words{};
  std::vector<float> x = std::vector<float>(count, 0.0F);

  void run(const Plan& plan, double seconds = 20) {
    const Region region = region_of(x);
    const std::span<const Region> out(&region, plan.out_cuts.empty() ? 0 : 1);
    const Describe describe{[](void* text) { return *static_cast<std::string*>(text); }, &words};
    group.run(plan, describe, {&region, 1}, out, in_seconds(seconds), false, unrecorded);
  }
  // The difference that `call` throws.
  template <class Call>
  Error difference(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      CHECK(error.fault() == Fault::mismatch && error.breaks && error.descriptions);
      return error;
    }
    CHECK(false);
    return Error(Fault::usage, "");
  }
};

void await(const std::atomic<int>& counter, int least) {
  while (counter.load() < least) std::this_thread::yield();
}

void roles_follow_from_the_steps() {
  CHECK(!broadcast(0, 4, 0, 1).needs_all && broadcast(0, 4, 0, 1).giver == -1);
  CHECK(!broadcast(2, 4, 0, 1).needs_all && broadcast(2, 4, 0, 1).giver == 0);
  CHECK(!reduce_to(1, 4, 0).needs_all && reduce_to(1, 4, 0).giver == -1);
  CHECK(reduce_to(0, 4, 0).needs_all);
  const auto is_refused = [](const std::function<void(Plan&)>& change) {
    Plan plan = broadcast(1, 4, 0, 1);
    change(plan);
    try {
      plan.finish(4, slot_nbytes);
    } catch (const Error& error) {
      return error.fault() == Fault::usage;
    }
    return false;
  };
  CHECK(is_refused([](Plan& plan) { plan.steps.push_back(gate()); }));
  CHECK(is_refused([](Plan& plan) { plan.steps[1].src_offset = cell_nbytes; }));
  CHECK(is_refused([](Plan& plan) { plan.steps[1].src_space = Space::input; }));
  // A barrier gives nothing, and waits for all.
  Plan barrier;
  barrier.is_one_way = true;
  barrier.steps = {gate()};
  barrier.finish(4, slot_nbytes);
  CHECK(barrier.needs_all);
}

void values_arrive_in_order() {
  run_ranks(4, false, [](Group& group) {
    Caller me{group, "rank " + std::to_string(group.rank())};
    std::vector<Plan> plans;
    for (std::uint32_t root = 0; root < 4; ++root)
      plans.push_back(broadcast(group.rank(), 4, root, 10 + root));
    const Plan to_two = reduce_to(group.rank(), 4, 2);
    const Plan sum = all_reduce(group.rank(), 4, nbytes, true);
    for (int turn = 0; turn < 600; ++turn) {
      const auto root = static_cast<std::uint32_t>(turn / 40 % 4);
      me.x.assign(count, group.rank() == root ? static_cast<float>(turn) : -1.0F);
      me.run(plans[root]);
      for (const float value : me.x) CHECK(value == static_cast<float>(turn));
      if (turn % 3 == 0) {
        me.x.assign(count, static_cast<float>(group.rank() + turn));
        me.run(to_two);
        if (group.rank() == 2) CHECK(me.x[0] == static_cast<float>(4 * turn + 6));
      }
      if (turn % 37 == 0) {
        me.x.assign(count, static_cast<float>(turn));
        me.run(sum);
        CHECK(me.x[count - 1] == static_cast<float>(4 * turn));
      }
    }
    group.settle(in_seconds(20), true);
    CHECK(group.left_early().second == 0);
  });
}

void a_root_runs_ahead_as_far_as_cells_are_free() {
  std::atomic<int> stands{0};
  run_ranks(3, false, [&](Group& group) {
    Caller me{group, "words"};
    const Plan plan = broadcast(group.rank(), 3, 0, 7);
    me.run(plan);
    CHECK(group.left_early().second == 0);  // the first time all wait for all
    if (group.rank() != 0) {
      await(stands, 1);
      for (std::uint64_t k = 0; k < lag; ++k) {
        me.run(plan);
        CHECK(me.x[0] == static_cast<float>(k));
      }
      await(stands, 2);
      return;
    }
    for (std::uint64_t k = 0; k < lag; ++k) {
      me.x.assign(count, static_cast<float>(k));
      me.run(plan);  // the others have not come
    }
    CHECK((group.left_early() == std::pair<std::uint8_t, std::uint64_t>{0, 2}));
    stands = 1;
    group.settle(in_seconds(20), true);
    CHECK(group.left_early().second == 0);
    stands = 2;
  });
}

void who_keeps_a_root_is_named() {
  std::atomic<int> has_failed{0};
  run_ranks(3, false, [&](Group& group) {
    Caller me{group, "words"};
    const Plan plan = broadcast(group.rank(), 3, 0, 7);
    me.run(plan);
    if (group.rank() == 1) me.run(plan);
    if (group.rank() != 0) return await(has_failed, 1);
    for (std::uint64_t k = 0; k < lag; ++k) me.run(plan);
    bool has_timed_out = false;
    try {
      me.run(plan, 0.1);
    } catch (const Error& error) {
      has_timed_out = error.fault() == Fault::timeout;
      CHECK(error.seq == lag + 2);
      CHECK(group.facts(1).gate >= error.gate && group.facts(2).gate < error.gate);
    }
    CHECK(has_timed_out);
    has_failed = 1;
  });
}

void a_lost_reader_is_told_when_it_is_needed() {
  std::atomic<int> has_left{0};
  run_ranks(2, false, [&](Group& group) {
    Caller me{group, "words"};
    const Plan plan = broadcast(group.rank(), 2, 0, 7);
    me.run(plan);
    if (group.rank() == 1) {
      group.leave();
      has_left = 1;
      return;
    }
    await(has_left, 1);
    me.run(plan);
    bool is_told = false;
    try {
      group.settle(in_seconds(20), true);
    } catch (const Error& error) {
      is_told = error.fault() == Fault::peer_lost && error.peer() == 1 && error.seq == 2;
    }
    CHECK(is_told);
  });
}

// Rank 1 calls `odd` where the others call a broadcast of rank 0, which some have left when it does.
void tell(const char* how, const std::function<Plan(std::uint32_t)>& odd,
          const std::set<std::string>& said, std::uint64_t seq_of_odd = 4) {
  std::printf("%s\n", how);
  std::atomic<int> left{0};
  run_ranks(3, false, [&](Group& group) {
    Caller me{group, "rank " + std::to_string(group.rank())};
    const Plan plan = broadcast(group.rank(), 3, 0, 7);
    const Plan other = odd(group.rank());
    const auto check = [&](const Error& error) {
      CHECK(error.seq == seq_of_odd);
      CHECK(group.is_broken());
      std::set<std::string> words(error.descriptions->begin(), error.descriptions->end());
      words.erase("");
      for (const std::string& each : said) CHECK(words.contains(each));
      for (std::uint32_t r = 0; r < 3; ++r) {
        const std::string& text = (*error.descriptions)[r];
        CHECK(text.empty() || text == "rank " + std::to_string(r));
      }
    };
    for (int k = 0; k < 3; ++k) me.run(plan);
    if (group.rank() == 1) {
      await(left, 1);
      const std::vector<float> before = me.x = {5, 6, 7, 8};
      try {
        me.run(other);
        check(me.difference([&] { me.run(plan); }));  // it gave only, and had left as well
      } catch (const Error& error) {
        check(error);
      }
      CHECK(me.x == before || other.giver < 0);
    } else {
      if (group.rank() == 0) {
        me.run(plan);
        me.run(plan);
        left = 1;
      } else {
        await(left, 1);
        check(me.difference([&] {
          for (;;) me.run(plan);  // two of them are there to be read
        }));
      }
      if (group.rank() == 0) check(me.difference([&] { group.settle(in_seconds(20), true); }));
    }
    check(me.difference([&] { me.run(plan); }));  // and again
    group.settle(in_seconds(20), true);           // who has been told leaves in peace
  });
}

void differences_are_told_to_all() {
  tell("a reader of another size", [](std::uint32_t r) { return broadcast(r, 3, 0, 8); },
       {"rank 0", "rank 1"});
  tell("a second root", [](std::uint32_t r) { return broadcast(r, 3, 1, 9); },
       {"rank 0", "rank 1"});
  tell("an op that waits for all", [](std::uint32_t r) { return all_reduce(r, 3, nbytes, true); },
       {"rank 0", "rank 1"});
}

// Alike but for the reader: the plan of its own call was never run, so that it waits for all.
void who_waits_for_all_finds_what_others_left() {
  run_ranks(4, false, [](Group& group) {
    Caller me{group, "rank " + std::to_string(group.rank())};
    const Plan plan = broadcast(group.rank(), 4, 0, 7);
    for (int k = 0; k < 3; ++k) me.run(plan);
    const Plan again = broadcast(group.rank(), 4, 0, 7);
    for (int k = 0; k < 40; ++k) {  // both ways of one op beside each other
      me.x.assign(count, group.rank() == 0 ? static_cast<float>(k) : 0.0F);
      me.run(group.rank() % 2 == 0 ? plan : again);
      again.has_agreed = false;
      CHECK(me.x[0] == static_cast<float>(k));
    }
    group.settle(in_seconds(20), true);
  });
}

void nothing_is_told_where_nobody_compares() {
  run_ranks(3, false, [](Group& group) {
    group.set_level(level_off);
    Caller me{group, "words"};
    const Plan plan = broadcast(group.rank(), 3, 0, 7);
    const Plan other = broadcast(group.rank(), 3, 0, 8);
    for (int k = 0; k < 3; ++k) me.run(plan);
    for (int k = 0; k < 40; ++k) {
      other.has_agreed = true;
      me.run(group.rank() == 1 ? other : plan);
    }
    group.settle(in_seconds(20), true);
    CHECK(!group.is_broken());
  });
}

// Where words do not fit beside a cell, all wait for all, and the difference is told at its own line.
void long_words_are_not_left_behind() {
  run_ranks(2, false, [](Group& group) {
    Caller me{group, std::string(2000, static_cast<char>('a' + group.rank()))};
    const Plan plan = broadcast(group.rank(), 2, 0, 7);
    for (int k = 0; k < 3; ++k) me.run(plan);
    CHECK(group.left_early().second == 0);
    bool was_told = false;
    try {
      me.run(group.rank() == 1 ? broadcast(1, 2, 0, 8) : plan);
    } catch (const Error& error) {
      was_told = error.fault() == Fault::mismatch && !error.breaks && error.seq == 4;
    }
    CHECK(was_told);
    me.run(plan);
  });
}

void asynchronous_ops_come_behind() {
  run_ranks(3, false, [](Group& group) {
    Caller me{group, "words"};
    const Plan plan = broadcast(group.rank(), 3, 0, 7);
    Runner runner(group);
    for (int turn = 0; turn < 200; ++turn) {
      for (int k = 0; k < 5; ++k) {
        me.x.assign(count, group.rank() == 0 ? static_cast<float>(turn + k) : 0.0F);
        me.run(plan);
        CHECK(me.x[0] == static_cast<float>(turn + k));
      }
      std::vector<float> y(count, 1.0F);
      const OpPointer op = runner.submit(
          std::make_shared<Plan>(all_reduce(group.rank(), 3, nbytes, true)), CallWords{},
          RecordedOp{}, {region_of(y)}, {region_of(y)}, in_seconds(20).deadline_ns);
      runner.wait(*op, in_seconds(20));
      for (const float value : y) CHECK(value == 3.0F);
    }
  });
}

}  // namespace

int main() {
  roles_follow_from_the_steps();
  values_arrive_in_order();
  a_root_runs_ahead_as_far_as_cells_are_free();
  who_keeps_a_root_is_named();
  a_lost_reader_is_told_when_it_is_needed();
  differences_are_told_to_all();
  who_waits_for_all_finds_what_others_left();
  nothing_is_told_where_nobody_compares();
  long_words_are_not_left_behind();
  asynchronous_ops_come_behind();
  return 0;
}
