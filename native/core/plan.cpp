#include "plan.hpp"

#include "copy.hpp"
#include "error.hpp"

namespace distdbg {

namespace {

void check(bool ok, const char* what) {
  if (!ok) throw Error(Fault::usage, std::string("bad plan: ") + what);
}

void check_range(const Plan& plan, std::uint64_t slot_nbytes, Space space, std::uint32_t block,
                 std::uint64_t offset, std::uint64_t nbytes) {
  std::uint64_t limit = slot_nbytes;
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
  std::uint64_t out_nbytes = 0;
  for (const Cut& cut : out_cuts) out_nbytes += cut.nbytes;
  is_large = out_nbytes >= stream_nbytes;
  bool gated = false;
  for (const Step& step : steps) {
    const bool is_local_src = step.kind == StepKind::copy || step.src_space == Space::slot;
    switch (step.kind) {
      case StepKind::gate: gated = true; break;
      case StepKind::exchange:
        check(gated && in_cuts.size() == size && out_cuts.size() == size, "exchange");
        exchanges = true;
        break;
      case StepKind::pull:
      case StepKind::copy:
      case StepKind::fold_all:
        if (step.kind == StepKind::pull)
          check(step.peer >= 0 && static_cast<std::uint32_t>(step.peer) < size, "peer");
        // A peer's block is checked against what the peer publishes, when the plan runs.
        if (is_local_src)
          check_range(*this, slot_nbytes, step.src_space, step.src_block, step.src_offset,
                      step.nbytes);
        check(step.src_block < size, "block");
        check(gated || step.dst_space == Space::slot, "output is written before the first gate");
        check_range(*this, slot_nbytes, step.dst_space, step.dst_block, step.dst_offset,
                    step.nbytes);
        break;
    }
  }
  check(gated, "no gate");
}

}  // namespace distdbg
