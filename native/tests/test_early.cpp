// What leaves with the first gate of a plan: it is there when all call alike, and is thrown away when they differ.
#include <vector>

#include "hosts.hpp"

using namespace distdbg;

namespace {

constexpr int ops = 5;

struct Blocks {
  explicit Blocks(std::uint32_t size, std::uint64_t nbytes)
      : in(size * nbytes / 4), out(size * nbytes / 4, -1.0F) {}
  std::vector<float> in;
  std::vector<float> out;
};

// Everybody sends everybody a block, before the gate or behind it.
Plan exchange_plan(const Group& group, std::uint64_t nbytes, bool is_early) {
  Plan plan;
  plan.dtype = Dtype::float32;
  plan.fingerprint = nbytes;
  for (std::uint32_t r = 0; r < group.size(); ++r) {
    plan.in_cuts.push_back({0, r * nbytes, nbytes});
    plan.out_cuts.push_back({0, r * nbytes, nbytes});
  }
  std::vector<Step> sends;
  std::vector<Step> receives;
  for (std::uint32_t r = 0; r < group.size(); ++r) {
    if (r == group.rank()) continue;
    const auto peer = static_cast<std::int32_t>(r);
    sends.push_back({StepKind::send, Space::input, Space::output, peer, r, 0, 0, 0, nbytes});
    receives.push_back({StepKind::recv, Space::input, Space::output, peer, 0, r, 0, 0, nbytes});
  }
  plan.steps = {gate()};
  plan.steps.insert(is_early ? plan.steps.begin() : plan.steps.end(), sends.begin(), sends.end());
  plan.steps.insert(plan.steps.end(), receives.begin(), receives.end());
  plan.finish(group.size(), slot_nbytes);
  return plan;
}

void run_plan(Group& group, const Plan& plan, Blocks& blocks, const Describe& describe = nothing) {
  const Region in = region_of(blocks.in);
  const Region out = region_of(blocks.out);
  group.run(plan, describe, {&in, 1}, {&out, 1}, in_seconds(20), false, unrecorded);
}

// Block p of rank r is 1000 r + p + turn.
void fill(const Group& group, Blocks& blocks, int turn) {
  const std::size_t each = blocks.in.size() / group.size();
  for (std::size_t i = 0; i < blocks.in.size(); ++i)
    blocks.in[i] =
        static_cast<float>(1000 * group.rank() + i / each + static_cast<std::size_t>(turn));
}

void check(const Group& group, const Blocks& blocks, int turn) {
  const std::size_t each = blocks.out.size() / group.size();
  for (std::size_t i = 0; i < blocks.out.size(); ++i) {
    const std::size_t from = i / each;
    if (from == group.rank()) continue;
    CHECK(blocks.out[i] ==
          static_cast<float>(1000 * from + group.rank() + static_cast<std::size_t>(turn)));
  }
}

void arrives_with_the_gate(Group& group) {
  for (const std::uint64_t nbytes : {std::uint64_t{4}, std::uint64_t{200'000}}) {
    const Plan plan = exchange_plan(group, nbytes, true);
    for (int turn = 0; turn < ops; ++turn) {
      Blocks blocks(group.size(), nbytes);
      fill(group, blocks, turn);
      run_plan(group, plan, blocks);
      check(group, blocks, turn);
    }
  }
}

// More than fits any buffer on the way: what differs is told all the same, and nobody gets the blocks of the op that
// came to nothing in a later one.
void differs_and_goes_on(Group& group) {
  for (const std::uint64_t nbytes : {std::uint64_t{4}, std::uint64_t{1'000'000}}) {
    for (const std::uint32_t odd : {0U, group.size() - 1}) {
      Blocks blocks(group.size(), nbytes);
      fill(group, blocks, 500);
      Plan plan = exchange_plan(group, nbytes, true);
      if (group.rank() == odd) plan.fingerprint = 1;
      const std::string words = group.rank() == odd ? "odd" : "even";
      const Describe describe{[](void* text) { return *static_cast<const std::string*>(text); },
                              const_cast<std::string*>(&words)};
      bool has_differed = false;
      try {
        run_plan(group, plan, blocks, describe);
      } catch (const Error& error) {
        has_differed = error.fault() == Fault::mismatch && error.descriptions &&
                       (*error.descriptions)[odd] == "odd";
      }
      CHECK(has_differed);
      for (const float value : blocks.out) CHECK(value == -1.0F);
      blocks.in.assign(blocks.in.size(), -7.0F);  // they are the program's again
      for (const bool is_early : {true, false}) {
        fill(group, blocks, 1);
        run_plan(group, exchange_plan(group, nbytes, is_early), blocks);
        check(group, blocks, 1);
      }
    }
  }
}

// Nobody sends before the gate what only the first rank of a host could hand on.
void is_refused_where_hosts_have_several(Group& group) {
  bool is_refused = false;
  try {
    Blocks blocks(group.size(), 4);
    run_plan(group, exchange_plan(group, 4, true), blocks);
  } catch (const Error& error) {
    is_refused = error.fault() == Fault::system || error.fault() == Fault::broken;
  }
  CHECK(is_refused);
}

}  // namespace

int main() {
  for (const Net net : {Net::rings, Net::tcp}) {
    for (const Layout& layout : std::vector<Layout>{{0, 1}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}}) {
      run_hosts(layout, net, arrives_with_the_gate);
      run_hosts(layout, net, differs_and_goes_on);
    }
    run_hosts({0, 0, 1, 1}, net, is_refused_where_hosts_have_several);
  }
  std::puts("test_early: passed");
}
