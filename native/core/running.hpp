// One execution of a plan, for the files that carry it out: interpret.cpp moves the bytes, agree.cpp
// compares.
#pragma once

#include <span>

#include "group.hpp"

namespace distdbg {

struct Group::Running {
  const Plan& plan;
  std::span<const Region> inputs;
  std::span<const Region> outputs;
  std::uint64_t first_gate;  // whose slot half holds the published blocks
  bool in_background;
  RecordedOp& recorded;
  bool only_awake = false;  // up to the first gate, where it stays as `stay` says
  Stay stay{};
  bool standing = false;     // has arrived at the first gate, and waits there
  bool has_started = false;  // as recorded
  // False: ranks differ and nobody compares (level OFF). What peers published may be of another op, or
  // gone; nothing of it may be trusted.
  bool is_agreed = true;
  std::uint32_t level = level_off;  // the highest of all ranks
  bool is_unstaged = false;         // see checks.hpp
  // Whether the calls were compared; what follows is known from then on.
  bool is_compared = false;
  bool goes_in_place = false;  // all ranks offer it
  bool in_place = false;       // and are between its gates: they use each other's arrays

  std::byte* own(Space space, std::uint32_t block) const {
    const Cut& cut = space == Space::input ? plan.in_cuts[block] : plan.out_cuts[block];
    const auto& regions = space == Space::input ? inputs : outputs;
    return regions[cut.view].data + cut.offset;
  }
};

}  // namespace distdbg
