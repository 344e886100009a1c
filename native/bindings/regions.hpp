// The arrays of a call as native code takes them.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "bindings.hpp"
#include "error.hpp"
#include "group.hpp"
#include "view.hpp"

namespace distdbg {

// Views of a call as regions: on the stack for the usual few, so that the hot path allocates nothing.
class Regions {
 public:
  Regions(nb::handle views, const std::vector<Cut>& cuts, std::uint32_t needed) {
    const std::size_t count = nb::len(views);
    if (count < needed) throw Error(Fault::usage, "fewer arrays than the plan needs");
    Region* into = few_.data();
    if (count > few_.size()) {
      many_.resize(count);
      into = many_.data();
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto& view = nb::cast<const View&>(views[i]);
      into[i] = {view.data(), view.nbytes()};
      is_stand_in_ |= !view.finish.is_none();
    }
    regions_ = {into, count};
    for (const Cut& cut : cuts) {
      const std::uint64_t nbytes = regions_[cut.view].nbytes;
      if (cut.offset > nbytes || cut.nbytes > nbytes - cut.offset)
        throw Error(Fault::usage, "an array is smaller than its plan");
    }
  }
  Regions(const Regions&) = delete;
  std::span<const Region> span() const { return regions_; }
  bool is_stand_in() const { return is_stand_in_; }
  std::vector<Region> copy() const { return {regions_.begin(), regions_.end()}; }

 private:
  std::array<Region, 4> few_{};
  std::vector<Region> many_;
  bool is_stand_in_ = false;
  std::span<Region> regions_;
};

}  // namespace distdbg
