#include "plan.hpp"

#include <algorithm>

#include "error.hpp"

namespace distdbg {

namespace {

void check(bool ok, const char* what) {
  if (!ok) throw Error(Fault::usage, std::string("bad plan: ") + what);
}

// More would be a mistake of whoever makes plans.
constexpr std::uint64_t most_scratch_nbytes = 1ULL << 36;

void check_range(Plan& plan, std::uint64_t slot_nbytes, Space space, std::uint32_t block,
                 std::uint64_t offset, std::uint64_t nbytes) {
  std::uint64_t limit = slot_nbytes;
  if (space == Space::scratch) {
    check(block == 0, "scratch memory has one block");
    check(offset <= most_scratch_nbytes && nbytes <= most_scratch_nbytes - offset, "scratch");
    plan.scratch_nbytes = std::max(plan.scratch_nbytes, offset + nbytes);
    return;
  }
  if (space != Space::slot) {
    const auto& cuts = space == Space::input ? plan.in_cuts : plan.out_cuts;
    check(block < cuts.size(), "a step names a block that is not there");
    limit = cuts[block].nbytes;
  } else {
    check(block == 0, "a slot has one block");
  }
  check(offset <= limit && nbytes <= limit - offset, "a step leaves its block");
}

}  // namespace

void Plan::finish(std::uint32_t size, std::uint64_t slot_nbytes) {
  check(!steps.empty(), "no steps");
  check(in_cuts.size() <= size && out_cuts.size() <= size, "more blocks than ranks");
  out_nbytes = 0;
  for (const Cut& cut : out_cuts) out_nbytes += cut.nbytes;
  bool gated = false;
  for (const Step& step : steps) {
    const bool is_peer_src = step.kind == StepKind::pull || step.kind == StepKind::fold_all ||
                             step.kind == StepKind::fold_host;
    const bool is_local_src = !is_peer_src || step.src_space == Space::slot;
    const bool has_peer = step.kind == StepKind::pull || step.kind == StepKind::push ||
                          step.kind == StepKind::send || step.kind == StepKind::recv;
    if (has_peer) check(step.peer >= 0 && static_cast<std::uint32_t>(step.peer) < size, "peer");
    check(step.first < static_cast<std::int64_t>(size),
          "a fold begins at a rank that is not there");
    switch (step.kind) {
      case StepKind::gate:
        check(step.nbytes <= slot_nbytes, "a gate publishes more than a slot");
        gated = true;
        break;
      case StepKind::host_gate: check(gated, "the first gate is one of the host"); break;
      case StepKind::send:
        check(gated || step.src_space != Space::slot, "a slot is sent before the first gate");
        check_range(*this, slot_nbytes, step.src_space, step.src_block, step.src_offset,
                    step.nbytes);
        break;
      case StepKind::exchange:
        check(gated && in_cuts.size() == size && out_cuts.size() == size, "exchange");
        exchanges = true;
        break;
      case StepKind::pull:
      case StepKind::copy:
      case StepKind::fold_all:
      case StepKind::fold_host:
      case StepKind::fold_after:
      case StepKind::fold_before:
        // A peer's block is checked against what the peer publishes, when the plan runs.
        if (is_local_src)
          check_range(*this, slot_nbytes, step.src_space, step.src_block, step.src_offset,
                      step.nbytes);
        check(step.src_block < size, "block");
        check(!is_peer_src || step.src_space != Space::scratch, "scratch memory of a peer");
        [[fallthrough]];
      case StepKind::recv:
      case StepKind::divide:
        check(gated || step.dst_space != Space::output, "output is written before the first gate");
        check(step.dst_space != Space::input, "input is written");
        check_range(*this, slot_nbytes, step.dst_space, step.dst_block, step.dst_offset,
                    step.nbytes);
        break;
      case StepKind::push:
        // The peer's block is checked against what the peer publishes, when the plan runs.
        check(gated && step.src_space <= Space::output && step.dst_space == Space::output &&
                  step.dst_block < size,
              "push");
        check_range(*this, slot_nbytes, step.src_space, step.src_block, step.src_offset,
                    step.nbytes);
        break;
      case StepKind::fold_to:
      case StepKind::spread: check(false, "written to a peer outside of shared arrays"); break;
    }
  }
  check(gated, "no gate");
  finish_in_place(size);
}

// A peer's block is checked against what the peer publishes, when the plan runs.
void Plan::finish_in_place(std::uint32_t size) {
  if (in_place.steps.empty()) return;
  check(
      in_place.steps.front().kind == StepKind::gate && in_place.steps.back().kind == StepKind::gate,
      "a plan in place begins and ends with a gate");
  std::vector<bool> needs(size, false);
  const auto check_own = [&](Space space, std::uint32_t block, std::uint64_t offset,
                             std::uint64_t nbytes) {
    check(space == Space::input || space == Space::output, "neither input nor output in place");
    check_range(*this, 0, space, block, offset, nbytes);
  };
  for (const Step& step : in_place.steps) {
    const bool is_fold = step.kind == StepKind::fold_all || step.kind == StepKind::fold_to;
    const bool is_spread = step.kind == StepKind::spread;
    const bool has_peer = step.kind == StepKind::pull || step.kind == StepKind::push || is_spread ||
                          (step.kind == StepKind::fold_to && step.peer >= 0);
    const bool is_own_src = step.kind == StepKind::copy || step.kind == StepKind::push;
    const bool is_own_dst = step.kind == StepKind::copy || step.kind == StepKind::pull ||
                            step.kind == StepKind::fold_all ||
                            (step.kind == StepKind::fold_to && step.peer < 0);
    if (step.kind == StepKind::gate) continue;
    check(step.first < static_cast<std::int64_t>(size),
          "a fold begins at a rank that is not there");
    check(is_fold || has_peer || is_own_src, "a step that is none in place");
    check(step.src_space <= Space::output && step.dst_space == Space::output,
          "neither input nor output in place");
    if (has_peer) {
      check(step.peer >= 0 && static_cast<std::uint32_t>(step.peer) < size, "peer");
      needs[static_cast<std::size_t>(step.peer)] = true;
    }
    if (is_fold || is_spread) needs.assign(size, true);
    if (is_fold || is_own_src)
      check_own(step.src_space, step.src_block, step.src_offset, step.nbytes);
    if (is_own_dst) check_own(step.dst_space, step.dst_block, step.dst_offset, step.nbytes);
  }
  for (std::uint32_t r = 0; r < size; ++r)
    if (needs[r]) in_place.peers.push_back(r);
}

}  // namespace distdbg
