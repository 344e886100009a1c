// Groups over several hosts: what their ranks do together, and how they learn what has gone wrong.
#include <unistd.h>

#include <vector>

#include "hosts.hpp"
#include "runner.hpp"

using namespace distdbg;

namespace {

const std::vector<Layout> layouts = {{0, 1},    {0, 0, 1},       {0, 1, 1, 1},      {0, 1, 0, 1},
                                     {0, 1, 2}, {0, 1, 2, 3, 4}, {0, 0, 1, 2, 2, 2}};

void reduce_through_slots(Group& group) {
  for (int round = 0; round < 30; ++round) {
    for (const std::uint64_t nbytes : {std::uint64_t{4}, std::uint64_t{40'000}}) {
      std::vector<float> x(nbytes / 4, static_cast<float>(group.rank() + 1));
      const Region region = region_of(x);
      group.run(flat_all_reduce(group.size(), nbytes), nothing, {&region, 1}, {&region, 1},
                in_seconds(20), false, unrecorded);
      const float want = static_cast<float>(group.size() * (group.size() + 1) / 2);
      for (const float value : x) CHECK(value == want);
    }
  }
}

// Each host folds its inputs, the first ranks pass the sums around a ring, and the others fetch the result.
void reduce_by_first_ranks(Group& group) {
  constexpr std::uint64_t nbytes = 80'000;
  const auto& hosts = group.hosts();
  const auto count = static_cast<std::uint32_t>(hosts.size());
  const std::uint32_t first = group.ranks_here().front();
  Plan plan;
  plan.dtype = Dtype::float32;
  plan.reduce = ReduceKind::avg;
  plan.fingerprint = 1;
  plan.in_cuts = plan.out_cuts = {{0, 0, nbytes}};
  plan.steps = {gate()};
  const Step host_gate{StepKind::host_gate, Space::input, Space::output, -1, 0, 0, 0, 0, 0};
  if (group.rank() == first) {
    plan.steps.push_back(
        {StepKind::fold_host, Space::input, Space::scratch, -1, 0, 0, 0, 0, nbytes});
    plan.steps.push_back({StepKind::copy, Space::scratch, Space::output, -1, 0, 0, 0, 0, nbytes});
    const auto next = static_cast<std::int32_t>(hosts[(group.host() + 1) % count].front());
    const auto before =
        static_cast<std::int32_t>(hosts[(group.host() + count - 1) % count].front());
    for (std::uint32_t round = 0; round + 1 < count; ++round) {
      plan.steps.push_back(
          {StepKind::send, Space::scratch, Space::output, next, 0, 0, round * nbytes, 0, nbytes});
      plan.steps.push_back({StepKind::recv, Space::input, Space::scratch, before, 0, 0, 0,
                            (round + 1) * nbytes, nbytes});
      plan.steps.push_back({StepKind::fold_after, Space::scratch, Space::output, -1, 0, 0,
                            (round + 1) * nbytes, 0, nbytes});
    }
    plan.steps.push_back({StepKind::divide, Space::output, Space::output, -1, 0, 0, 0, 0, nbytes});
  }
  plan.steps.push_back(host_gate);
  if (group.rank() != first)
    plan.steps.push_back({StepKind::pull, Space::output, Space::output,
                          static_cast<std::int32_t>(first), 0, 0, 0, 0, nbytes});
  plan.steps.push_back(host_gate);
  plan.finish(group.size(), slot_nbytes);
  for (int round = 0; round < 10; ++round) {
    std::vector<float> in(nbytes / 4, static_cast<float>(2 * group.rank() + round));
    std::vector<float> out(nbytes / 4);
    const Region from = region_of(in);
    const Region into = region_of(out);
    group.run(plan, nothing, {&from, 1}, {&into, 1}, in_seconds(20), round % 2 == 1, unrecorded);
    const float want = static_cast<float>(group.size() - 1 + static_cast<std::uint32_t>(round));
    for (const float value : out) CHECK(value == want);
  }
}

void differ_and_go_on(Group& group) {
  const std::uint32_t odd = group.size() - 1;
  std::vector<float> x(24, 1.0F);
  const Region region = region_of(x);
  Plan plan = flat_all_reduce(group.size(), 96);
  plan.fingerprint = group.rank() == odd ? 1 : 2;
  const std::string words(100'000, group.rank() == odd ? 'b' : 'a');  // longer than a slot
  const Describe describe{[](void* text) { return *static_cast<const std::string*>(text); },
                          const_cast<std::string*>(&words)};
  std::vector<std::string> all;
  try {
    group.run(plan, describe, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
  } catch (const Error& error) {
    if (error.fault() == Fault::mismatch && error.descriptions) all = *error.descriptions;
  }
  for (const float value : x) CHECK(value == 1.0F);
  CHECK(all.size() == group.size());
  for (std::uint32_t r = 0; r < group.size(); ++r)
    CHECK(all[r] == std::string(100'000, r == odd ? 'b' : 'a'));
  reduce_through_slots(group);
}

// Between all pairs at once, on one host or not: short and long, in and out of order.
void send_around(Group& group) {
  PointToPoint messages(group);
  const int size = static_cast<int>(group.size());
  const int rank = static_cast<int>(group.rank());
  for (const std::size_t nbytes :
       {std::size_t{0}, std::size_t{5}, std::size_t{5'000}, std::size_t{200'000}}) {
    std::vector<std::vector<std::uint8_t>> out;
    std::vector<std::vector<std::uint8_t>> in;
    std::vector<MessagePointer> all;
    const auto peer = [&](int k) { return k % size; };
    const int count = 3 * size;
    for (int k = 0; k < count; ++k) {
      out.emplace_back(nbytes, static_cast<std::uint8_t>(16 * rank + peer(k) + k / size));
      in.emplace_back(nbytes, std::uint8_t{0});
    }
    const auto region = [&](std::vector<std::uint8_t>& x) {
      return Region{reinterpret_cast<std::byte*>(x.data()), x.size()};
    };
    for (int k = 0; k < count; ++k)
      if (peer(k) != rank)
        all.push_back(messages.send(region(out[static_cast<std::size_t>(k)]), 0, peer(k), k / size,
                                    in_seconds(20).deadline_ns, true));
    for (int k = count - 1; k >= 0; --k)  // the last tag first
      if (peer(k) != rank)
        all.push_back(messages.recv(region(in[static_cast<std::size_t>(k)]), 0, peer(k), k / size,
                                    in_seconds(20).deadline_ns, true));
    for (const MessagePointer& message : all) messages.wait(message, in_seconds(20), true);
    for (int k = 0; k < count; ++k)
      if (peer(k) != rank)
        for (const std::uint8_t value : in[static_cast<std::size_t>(k)])
          CHECK(value == static_cast<std::uint8_t>(16 * peer(k) + rank + k / size));
  }
  reduce_through_slots(group);  // so that nobody leaves before all have got theirs
}

// Blocking, from any rank.
void gather_messages(Group& group) {
  PointToPoint messages(group);
  std::uint64_t value = group.rank();
  const Region region{reinterpret_cast<std::byte*>(&value), sizeof value};
  if (group.rank() != 0) {
    messages.wait(messages.send(region, 0, 0, 7, in_seconds(20).deadline_ns, false), in_seconds(20),
                  true);
  } else {
    for (std::uint32_t k = 1; k < group.size(); ++k) {
      const MessagePointer got =
          messages.recv(region, 0, any_source, 7, in_seconds(20).deadline_ns, false);
      messages.wait(got, in_seconds(20), true);
      CHECK(value == static_cast<std::uint64_t>(got->source));
    }
  }
  reduce_through_slots(group);
}

// The last rank does not come: all others give up, also on hosts that it is not on.
void time_out(Group& group) {
  const std::uint32_t absent = group.size() - 1;
  if (group.rank() == absent) {
    while (!group.is_broken()) {
      std::vector<float> x(1);
      const Region region = region_of(x);
      ::usleep(600'000);
      try {
        group.run(flat_all_reduce(group.size(), 4), nothing, {&region, 1}, {&region, 1},
                  in_seconds(20), false, unrecorded);
      } catch (const Error&) {
        break;
      }
    }
    CHECK(group.is_broken());
    return;
  }
  std::vector<float> x(1);
  const Region region = region_of(x);
  bool has_failed = false;
  try {
    group.run(flat_all_reduce(group.size(), 4), nothing, {&region, 1}, {&region, 1},
              in_seconds(0.2), false, unrecorded);
  } catch (const Error& error) {
    has_failed = error.fault() == Fault::timeout;
  }
  CHECK(has_failed);
}

// That a rank of another host has left may be heard before what it did before, by another connection.
void hear_of_a_leave_early(Group& group) {
  std::vector<float> x(1, 1.0F);
  const Region region = region_of(x);
  if (group.rank() == group.hosts().back().front()) {
    ::usleep(50'000);  // the others wait
    group.note_leave(group.hosts().front().back(), "");
    ::usleep(150'000);  // and look
  }
  group.run(flat_all_reduce(group.size(), 4), nothing, {&region, 1}, {&region, 1}, in_seconds(20),
            false, unrecorded);
  CHECK(x[0] == static_cast<float>(group.size()));
}

// One rank breaks the group in the middle of an op; everybody learns why.
void hear_the_cause(Group& group) {
  std::vector<float> x(1);
  const Region region = region_of(x);
  Plan plan = flat_all_reduce(group.size(), 4);
  if (group.rank() == 1) {
    bool is_interrupted = false;
    Wait wait = in_seconds(20);
    wait.interrupted = [] { return true; };
    // All others are then in an op too, and none still joins.
    group.run(plan, nothing, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
    try {
      group.run(plan, nothing, {&region, 1}, {&region, 1}, wait, true, unrecorded);
      group.run(plan, nothing, {&region, 1}, {&region, 1}, wait, true, unrecorded);
    } catch (const Error& error) {
      is_interrupted = error.fault() == Fault::interrupted;
    }
    CHECK(is_interrupted);
    return;
  }
  std::string text;
  int peer = -1;
  try {
    for (;;) {
      ::usleep(60'000);  // so that rank 1 waits, and asks whether it is interrupted
      group.run(plan, nothing, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
    }
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::broken);
    text = error.what();
    peer = error.peer();
  }
  CHECK(text == "was interrupted");
  CHECK(peer == 1);
}

}  // namespace

int main() {
  for (const Net net : {Net::rings, Net::tcp}) {
    for (const Layout& layout : layouts) {
      run_hosts(layout, net, reduce_through_slots);
      run_hosts(layout, net, reduce_by_first_ranks);
      run_hosts(layout, net, differ_and_go_on);
      run_hosts(layout, net, send_around);
      run_hosts(layout, net, gather_messages);
      run_hosts(layout, net, time_out);
      run_hosts(layout, net, hear_the_cause);
    }
    run_hosts({0, 0, 1, 1}, net, hear_of_a_leave_early);
  }
  std::puts("test_hosts: passed");
}
