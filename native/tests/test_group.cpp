// Threads as ranks of one group: plans, asynchronous ops, messages and failures, under the sanitizers.
#include <unistd.h>

#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "check.hpp"
#include "p2p.hpp"
#include "ranks.hpp"
#include "runner.hpp"

using namespace distdbg;

namespace {

void open_like_a_peer() {
  const Segment segment = Segment::create(2, slot_nbytes, 4096, cookie);
  const Segment opened = Segment::open(::getpid(), segment.fd(), cookie);
  CHECK(opened.size() == 2 && opened.channel_nbytes() == 4096);
  opened.rank(1).seq.store(5);
  CHECK(segment.rank(1).seq.load() == 5);
  bool was_refused = false;
  try {
    Segment::open(::getpid(), segment.fd(), cookie + 1);
  } catch (const Error&) {
    was_refused = true;
  }
  CHECK(was_refused);
}

void reduce_in_both_ways(Group& group) {
  for (int round = 0; round < 30; ++round) {
    for (const bool through_slots : {true, false}) {
      const std::uint64_t count = 12 * 64;
      std::vector<float> x(count, static_cast<float>(group.rank() + 1));
      const Region region{reinterpret_cast<std::byte*>(x.data()), count * 4};
      group.run(all_reduce(group.rank(), group.size(), count * 4, through_slots), nothing,
                {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
      const float want = static_cast<float>(group.size() * (group.size() + 1) / 2);
      for (const float value : x) CHECK(value == want);
    }
  }
}

void exchange_unevenly(Group& group) {
  const std::uint32_t n = group.size();
  // Rank i sends (i + 2 j) * unit bytes to rank j; the large unit needs rounds or direct reads.
  for (const std::uint64_t unit : {std::uint64_t{8}, std::uint64_t{9000}}) {
    Plan plan;
    plan.fingerprint = unit;
    std::uint64_t in_nbytes = 0;
    std::uint64_t out_nbytes = 0;
    for (std::uint32_t p = 0; p < n; ++p) {
      plan.in_cuts.push_back({0, in_nbytes, (group.rank() + 2 * p) * unit});
      plan.out_cuts.push_back({0, out_nbytes, (p + 2 * group.rank()) * unit});
      in_nbytes += plan.in_cuts.back().nbytes;
      out_nbytes += plan.out_cuts.back().nbytes;
    }
    plan.steps = {gate(), {StepKind::exchange, Space::input, Space::output, -1, 0, 0, 0, 0, 0}};
    plan.finish(n, slot_nbytes);
    std::vector<std::uint8_t> in(in_nbytes + 1, static_cast<std::uint8_t>(group.rank()));
    std::vector<std::uint8_t> out(out_nbytes + 1, 255);
    const Region from{reinterpret_cast<std::byte*>(in.data()), in_nbytes};
    const Region to{reinterpret_cast<std::byte*>(out.data()), out_nbytes};
    group.run(plan, nothing, {&from, 1}, {&to, 1}, in_seconds(20), false, unrecorded);
    for (std::uint32_t p = 0; p < n; ++p)
      for (std::uint64_t i = 0; i < plan.out_cuts[p].nbytes; ++i)
        CHECK(out[plan.out_cuts[p].offset + i] == p);
    CHECK(out[out_nbytes] == 255);
  }
}

void differ_and_go_on(Group& group) {
  const bool is_odd = group.rank() == 1;
  std::vector<float> x(24, 1.0F);
  const Region region{reinterpret_cast<std::byte*>(x.data()), 96};
  Plan plan = all_reduce(group.rank(), group.size(), 96, true);
  plan.fingerprint = is_odd ? 1 : 2;
  const std::string words(100'000, is_odd ? 'b' : 'a');  // longer than a slot
  const Describe describe{[](void* text) { return *static_cast<const std::string*>(text); },
                          const_cast<std::string*>(&words)};
  bool was_refused = false;
  std::vector<std::string> all;
  try {
    group.run(plan, describe, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
  } catch (const Error& error) {
    was_refused = error.fault() == Fault::mismatch && error.descriptions;
    if (was_refused) all = *error.descriptions;
  }
  CHECK(was_refused);
  for (const float value : x) CHECK(value == 1.0F);
  CHECK(all.size() == group.size());
  CHECK(all[1] == std::string(100'000, 'b'));
  CHECK(all[0] == std::string(100'000, 'a'));
  reduce_in_both_ways(group);
}

void run_in_background(Group& group) {
  Runner runner(group);
  std::vector<std::vector<float>> arrays;
  std::vector<OpPointer> ops;
  for (int k = 0; k < 8; ++k) arrays.emplace_back(240, static_cast<float>(k));
  for (auto& x : arrays) {
    const Region region{reinterpret_cast<std::byte*>(x.data()), x.size() * 4};
    ops.push_back(runner.submit(
        std::make_shared<Plan>(all_reduce(group.rank(), group.size(), x.size() * 4, true)),
        CallWords{}, RecordedOp{}, {region}, {region}, in_seconds(20).deadline_ns));
  }
  for (std::size_t k = 0; k < ops.size(); ++k) {
    runner.wait(*ops[k], in_seconds(20));
    for (const float value : arrays[k]) CHECK(value == static_cast<float>(k * group.size()));
  }
  runner.drain(in_seconds(20));
}

void send_around(Group& group) {
  PointToPoint messages(group);
  const int n = static_cast<int>(group.size());
  const int rank = static_cast<int>(group.rank());
  // Inline, direct or staged by size; more at once than a channel holds; out of order by tag.
  for (const std::size_t nbytes :
       {std::size_t{0}, std::size_t{5}, std::size_t{700}, std::size_t{50'001}}) {
    std::vector<std::vector<std::uint8_t>> out;
    std::vector<std::vector<std::uint8_t>> in;
    std::vector<MessagePointer> all;
    for (int k = 0; k < 20; ++k) {
      out.emplace_back(nbytes, static_cast<std::uint8_t>(10 * rank + k));
      in.emplace_back(nbytes, std::uint8_t{0});
    }
    for (std::size_t k = 0; k < 20; ++k)
      all.push_back(messages.send({reinterpret_cast<std::byte*>(out[k].data()), nbytes}, 1,
                                  (rank + 1) % n, static_cast<int>(k % 3),
                                  in_seconds(20).deadline_ns, k % 2 == 0));
    std::vector<std::size_t> order;
    for (const std::size_t tag : {2U, 0U, 1U})
      for (std::size_t k = tag; k < 20; k += 3) order.push_back(k);
    for (const std::size_t k : order)
      all.push_back(messages.recv({reinterpret_cast<std::byte*>(in[k].data()), nbytes}, 1,
                                  k % 2 == 0 ? any_source : (rank + n - 1) % n,
                                  static_cast<int>(k % 3), in_seconds(20).deadline_ns, k % 2 == 1));
    for (const MessagePointer& message : all) messages.wait(message, in_seconds(20), true);
    const int from = (rank + n - 1) % n;
    for (std::size_t k = 0; k < 20; ++k)
      for (const std::uint8_t value : in[k])
        CHECK(value == static_cast<std::uint8_t>(10 * from + static_cast<int>(k)));
  }
  while (!messages.is_idle()) ::usleep(100);
}

void notice_who_left(Group& group) {
  if (group.rank() == 1) {
    group.leave();
    return;
  }
  Plan plan = all_reduce(group.rank(), group.size(), 96, true);
  std::vector<float> x(24, 1.0F);
  const Region region{reinterpret_cast<std::byte*>(x.data()), 96};
  Fault fault = Fault::system;
  int peer = -1;
  try {
    group.run(plan, nothing, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
  } catch (const Error& error) {
    fault = error.fault();
    peer = error.peer();
  }
  CHECK(fault == Fault::peer_lost && peer == 1);
}

bool has_left(const Group& group, std::uint32_t rank) { return group.facts(rank).left; }

bool has_all_left(const Group& group) {
  for (std::uint32_t r = 1; r < group.size(); ++r)
    if (!has_left(group, r)) return false;
  return true;
}

void time_out(Group& group) {
  if (group.rank() == 1) {
    while (!group.is_broken()) ::usleep(1000);
    return;
  }
  Plan plan = all_reduce(group.rank(), group.size(), 96, true);
  std::vector<float> x(24, 1.0F);
  const Region region{reinterpret_cast<std::byte*>(x.data()), 96};
  std::uint64_t failed_gate = 0;
  for (const Fault want : {Fault::timeout, Fault::broken}) {
    Fault fault = Fault::system;
    try {
      group.run(plan, nothing, {&region, 1}, {&region, 1}, in_seconds(0.2), false, unrecorded);
    } catch (const Error& error) {
      fault = error.fault();
      failed_gate = std::max(failed_gate, error.gate);
    }
    CHECK(fault == want);
  }
  CHECK(group.facts(1).gate < failed_gate);
}

// Rank 0 gives up while the others still read its array: they must not take what they got for good.
void give_up_while_peers_read(Group& group) {
  Plan plan;
  plan.steps = {gate()};
  plan.in_cuts = plan.out_cuts = {{0, 0, 4 << 20}};
  if (group.rank() != 0)
    for (int i = 0; i < 1000; ++i)
      plan.steps.push_back({StepKind::pull, Space::input, Space::output, 0, 0, 0, 0, 0, 4 << 20});
  plan.steps.push_back(gate());
  plan.finish(group.size(), slot_nbytes);
  std::vector<std::byte> in(4 << 20);
  std::vector<std::byte> out(4 << 20);
  const Region from{in.data(), in.size()};
  const Region into{out.data(), out.size()};
  bool has_failed = false;
  try {
    group.run(plan, nothing, {&from, 1}, {&into, 1}, in_seconds(group.rank() == 0 ? 0.03 : 20),
              false, unrecorded);
  } catch (const Error& error) {
    has_failed = error.fault() == Fault::timeout || error.fault() == Fault::broken;
    // The array goes when all are done with it: the ranks of this test are threads.
    while (group.rank() == 0 && !has_all_left(group)) ::usleep(1000);
  }
  CHECK(has_failed);
  group.leave();
}

void close_while_waiting(Group& group) {
  if (group.rank() == 1) {
    while (!has_left(group, 0)) ::usleep(1000);
    return;
  }
  if (group.rank() != 0) return;
  std::thread closes([&] {
    while (group.facts(0).gate < 2) ::usleep(1000);
    group.leave();
  });
  Plan plan = all_reduce(0, group.size(), 96, true);
  std::vector<float> x(24, 1.0F);
  const Region region{reinterpret_cast<std::byte*>(x.data()), 96};
  Fault fault = Fault::system;
  try {
    group.run(plan, nothing, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
  } catch (const Error& error) {
    fault = error.fault();
  }
  closes.join();
  CHECK(fault == Fault::usage);
}

}  // namespace

int main() {
  open_like_a_peer();
  for (const bool single_copy : {true, false}) {
    for (const std::uint32_t size : {1U, 2U, 3U, 4U}) {
      run_ranks(size, single_copy, reduce_in_both_ways);
      run_ranks(size, single_copy, exchange_unevenly);
      run_ranks(size, single_copy, run_in_background);
      if (size == 1) continue;
      run_ranks(size, single_copy, differ_and_go_on);
      run_ranks(size, single_copy, send_around);
      run_ranks(size, single_copy, notice_who_left);
      run_ranks(size, single_copy, time_out);
      if (size == 2) run_ranks(size, single_copy, close_while_waiting);
      if (size == 2 && single_copy) run_ranks(size, single_copy, give_up_while_peers_read);
    }
  }
  std::puts("test_group: passed");
}
