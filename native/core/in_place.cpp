// Ops on shared arrays: ranks read and write each other's arrays where they are, between two gates.
//
// Whether an array is a shared one is known to its own rank alone. So each says beside its fingerprint
// whether it offers this way, and all come to the same answer from the same words, as with the levels. Where
// the op went this way when it last ran, a rank that offers puts nothing into its slot. When that was wrong, because
// another rank has brought an ordinary array, all begin again and fill their slots.
//
// A rank offers only when it has mapped what it needs of its peers. It does so in the first op in which it
// finds that out, and that op still goes through the slots: so a peer that cannot be mapped is no error.
#include <algorithm>
#include <cstring>

#include "copy.hpp"
#include "running.hpp"
#include "shared_heap.hpp"

namespace distdbg {

namespace {

// What of all arrays is folded before what came out is written: it stays in the first-level cache.
constexpr std::uint64_t piece_nbytes = 16 * 1024;
// What is copied to all before the next piece. Stores around the cache go in long runs.
constexpr std::uint64_t spread_nbytes = 16 * 1024;
constexpr std::uint64_t spread_around_nbytes = 64 * 1024;

// What all ranks write together does not fit into the cache that they share from here on: they write around it.
constexpr std::uint64_t around_nbytes = 32 << 20;

}  // namespace

// Whether what peers would use of this rank's lies in its shared arrays.
bool Group::is_exposed(const Running& op) const {
  const Plan& plan = op.plan;
  const SharedHeap* heap = SharedHeap::here();
  const auto reaches = [&](const std::vector<Cut>& cuts, Space space) {
    for (std::uint32_t i = 0; i < cuts.size(); ++i)
      if (cuts[i].nbytes > 0 &&
          (heap == nullptr || !heap->reaches(op.own(space, i), cuts[i].nbytes)))
        return false;
    return true;
  };
  return (!plan.in_place.exposes_inputs || reaches(plan.in_cuts, Space::input)) &&
         (!plan.in_place.exposes_outputs || reaches(plan.out_cuts, Space::output));
}

bool Group::may_offer_in_place(const Running& op) {
  if (op.plan.in_place.steps.empty() || links_ || !is_exposed(op)) return false;
  // Only now: whoever has shared arrays and brings none to this group need not be mapped.
  RankState& mine = segment_.rank(rank_);
  if (const SharedHeap* heap = SharedHeap::here();
      heap != nullptr && mine.heap.load(std::memory_order_relaxed) == 0)
    mine.heap.store(static_cast<std::uint32_t>(heap->fd()) + 1, std::memory_order_release);
  return std::ranges::all_of(op.plan.in_place.peers, [&](std::uint32_t r) {
    return r == rank_ || is_local_[r] || heaps_[r] != nullptr;
  });
}

void Group::look_for_heaps(const Running& op) {
  if (!is_exposed(op)) return;
  for (const std::uint32_t r : op.plan.in_place.peers) {
    const RankState& theirs = segment_.rank(r);
    const std::uint32_t heap = theirs.heap.load(std::memory_order_acquire);
    if (r == rank_ || is_local_[r] || heaps_[r] || has_no_heap_[r] || heap == 0) continue;
    try {
      heaps_[r] = PeerHeap::open(theirs.pid, theirs.start_time, static_cast<int>(heap - 1));
    } catch (const Error&) {
      has_no_heap_[r] = true;  // the slots do as well
    }
  }
}

Group::Meeting Group::meet_in_place(Running& op, std::uint32_t flags_of_all,
                                    std::uint32_t flags_of_any) {
  op.goes_in_place = (flags_of_all & offers_in_place) != 0;
  if (!op.plan.in_place.steps.empty()) {
    if ((segment_.slot(rank_, op.first_gate).flags & offers_in_place) != 0)
      op.plan.expects_in_place = op.goes_in_place;
    else if (!links_)
      look_for_heaps(op);
  }
  return !op.goes_in_place && (flags_of_any & is_unstaged) != 0 ? Meeting::again : Meeting::agreed;
}

// Where a place of rank `r`, which may be this one, lies for this process.
std::byte* Group::place_of(const Running& op, std::uint32_t r, Space space, std::uint32_t block,
                           std::uint64_t offset, std::uint64_t nbytes) const {
  if (r == rank_) return op.own(space, block) + offset;
  const Block theirs = peer_block(op, r, space, block);
  if (offset > theirs.nbytes || nbytes > theirs.nbytes - offset)
    throw Error(Fault::system, "a peer's block is smaller than the plan needs", 0,
                static_cast<int>(r));
  if (is_local_[r]) return reinterpret_cast<std::byte*>(theirs.address) + offset;
  std::byte* place = heaps_[r] ? heaps_[r]->place(theirs.address + offset, nbytes) : nullptr;
  if (place == nullptr)
    throw Error(Fault::system, "a peer's array is not one of its shared arrays", 0,
                static_cast<int>(r));
  return place;
}

bool Group::writes_around(const Running& op) const {
  std::uint64_t nbytes = 0;
  for (const Cut& cut : op.plan.out_cuts) nbytes += cut.nbytes;
  return nbytes * size_ >= around_nbytes;
}

void Group::run_in_place(const Running& op, const Wait& wait) {
  const Plan& plan = op.plan;
  for (const Step& step : std::span(plan.in_place.steps).subspan(1)) {
    const auto peer = step.peer < 0 ? rank_ : static_cast<std::uint32_t>(step.peer);
    const auto move = [&](std::uint32_t from, std::uint32_t to) {
      const std::byte* src =
          place_of(op, from, step.src_space, step.src_block, step.src_offset, step.nbytes);
      std::byte* dst =
          place_of(op, to, step.dst_space, step.dst_block, step.dst_offset, step.nbytes);
      if (src != dst) copy_out(dst, src, step.nbytes, writes_around(op));
    };
    switch (step.kind) {
      case StepKind::gate: gate(wait, op.in_background); break;
      case StepKind::copy: move(rank_, rank_); break;
      case StepKind::pull: move(peer, rank_); break;
      case StepKind::push: move(rank_, peer); break;
      case StepKind::spread: spread(op, step); break;
      default: fold_in_place(op, step); break;
    }
  }
  if (SharedHeap* heap = SharedHeap::here()) heap->count_op();
}

// Piece by piece, so that each is read from memory once.
void Group::spread(const Running& op, const Step& step) {
  const std::byte* src = place_of(op, static_cast<std::uint32_t>(step.peer), step.src_space,
                                  step.src_block, step.src_offset, step.nbytes);
  targets_.clear();
  for (std::uint32_t i = 0; i < size_; ++i) {
    std::byte* dst = place_of(op, (rank_ + i) % size_, step.dst_space, step.dst_block,
                              step.dst_offset, step.nbytes);
    if (dst != src) targets_.push_back(dst);
  }
  const bool is_around = writes_around(op);
  const std::uint64_t piece = is_around ? spread_around_nbytes : spread_nbytes;
  for (std::uint64_t offset = 0; offset < step.nbytes; offset += piece) {
    const std::uint64_t nbytes = std::min(piece, step.nbytes - offset);
    for (std::byte* const target : targets_)
      copy_out(target + offset, src + offset, nbytes, is_around);
  }
}

void Group::fold_in_place(const Running& op, const Step& step) {
  const Plan& plan = op.plan;
  std::vector<const std::byte*> sources;
  for (std::uint32_t i = 0; i < size_; ++i) {
    const std::uint32_t r =
        step.first < 0 ? i : (static_cast<std::uint32_t>(step.first) + size_ - i) % size_;
    sources.push_back(
        place_of(op, r, step.src_space, step.src_block, step.src_offset, step.nbytes));
  }
  targets_.clear();
  const auto add = [&](std::uint32_t r) {
    targets_.push_back(
        place_of(op, r, step.dst_space, step.dst_block, step.dst_offset, step.nbytes));
  };
  if (step.kind == StepKind::fold_to && step.peer >= 0)
    add(static_cast<std::uint32_t>(step.peer));
  else
    add(rank_);
  if (step.kind == StepKind::fold_to && step.peer < 0)
    for (std::uint32_t r = 0; r < size_; ++r)
      if (r != rank_) add(r);
  const std::uint64_t item = itemsize(plan.dtype);
  // What is one of the sources is in the cache already.
  const bool is_around =
      writes_around(op) && std::ranges::find(sources, targets_[0]) == sources.end();
  alignas(64) std::byte folded[piece_nbytes];
  sources_.resize(size_);
  for (std::uint64_t offset = 0; offset < step.nbytes; offset += piece_nbytes) {
    const std::uint64_t nbytes = std::min(piece_nbytes, step.nbytes - offset);
    for (std::uint32_t r = 0; r < size_; ++r) sources_[r] = sources[r] + offset;
    std::byte* const into = is_around ? folded : targets_[0] + offset;
    fold(plan.reduce, plan.dtype, into, sources_.data(), size_, nbytes / item);
    if (is_around) copy_around_cache(targets_[0] + offset, folded, nbytes);
    for (std::size_t i = 1; i < targets_.size(); ++i)
      std::memcpy(targets_[i] + offset, targets_[0] + offset, nbytes);
  }
}

// Whether a peer may be writing to this rank's arrays. A thread that left its rank standing at the first gate does
// not know what became of it: the others may have passed it long ago.
bool Group::may_be_written(const Running& op) const {
  if (op.is_compared) return op.in_place;
  const SlotHeader& slot = segment_.slot(rank_, op.first_gate);
  const std::uint32_t epoch = segment_.header().epoch.load(std::memory_order_acquire);
  const bool is_open =
      static_cast<std::int32_t>(epoch - static_cast<std::uint32_t>(op.first_gate)) >= 0;
  return is_open && slot.first_gate == op.first_gate && (slot.flags & offers_in_place) != 0;
}

// Of an op that failed: a peer that has not noticed yet may still write to them, and they are their owner's again.
void Group::take_out_arrays(const Running& op) {
  SharedHeap* heap = SharedHeap::here();
  if (heap == nullptr || !op.plan.in_place.exposes_outputs || !may_be_written(op)) return;
  for (std::uint32_t i = 0; i < op.plan.out_cuts.size(); ++i)
    heap->take_out(op.own(Space::output, i), op.plan.out_cuts[i].nbytes);
}

}  // namespace distdbg
