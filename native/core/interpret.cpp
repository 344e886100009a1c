// The interpreter of plans: Group::run and what each step does.
#include <algorithm>
#include <cstring>
#include <ranges>

#include "copy.hpp"
#include "running.hpp"

namespace distdbg {

namespace {

// A piece of a fold must be large enough that a system call for each does not matter.
constexpr std::uint64_t min_piece_nbytes = 32 * 1024;

// An exchange goes through the slots while it takes at most so many rounds; then reading the peers
// directly is faster. Each round costs a gate, so small parts, as many ranks have, pay for fewer.
// Measured on two cores: with 64 ranks, 256 rounds took three times as long as reading.
constexpr std::uint64_t most_exchange_nbytes(std::uint64_t part) { return part / 512 * part; }

}  // namespace

std::byte* Group::local_address(const Running& op, Space space, std::uint32_t block,
                                std::uint64_t offset, std::uint64_t gate) const {
  if (space == Space::slot) return segment_.payload(rank_, gate) + offset;
  if (space == Space::scratch) return const_cast<std::byte*>(own_scratch_.data()) + offset;
  return op.own(space, block) + offset;
}

Block Group::peer_block(const Running& op, std::uint32_t peer, Space space,
                        std::uint32_t block) const {
  SlotHeader& slot = segment_.slot(peer, op.first_gate);
  const std::uint32_t count = space == Space::input ? slot.in_count : slot.out_count;
  if (block >= count)
    throw Error(Fault::system, "a peer published fewer blocks than the plan reads", 0,
                static_cast<int>(peer));
  return (space == Space::input ? segment_.in_blocks(slot) : segment_.out_blocks(slot))[block];
}

// Where to read `nbytes` of a step's source on rank `peer`: in place when this process can, else
// copied into `scratch`.
const std::byte* Group::peer_bytes(const Running& op, const Step& step, std::uint32_t peer,
                                   std::uint64_t offset, std::uint64_t nbytes, std::byte* scratch) {
  if (step.src_space == Space::slot)
    return segment_.payload(peer, gate_) + step.src_offset + offset;
  if (!is_here_[peer])
    throw Error(Fault::system, "a plan reads the memory of another host", 0,
                static_cast<int>(peer));
  const Block block = peer_block(op, peer, step.src_space, step.src_block);
  const std::uint64_t at = step.src_offset + offset;
  if (at > block.nbytes || nbytes > block.nbytes - at)
    throw Error(Fault::system, "a peer's block is smaller than the plan reads", 0,
                static_cast<int>(peer));
  if (peer == rank_ || (is_local_[peer] && op.is_agreed))
    return reinterpret_cast<const std::byte*>(block.address) + at;
  read_peer(peer, block.address + at, scratch, nbytes, op.is_agreed);
  return scratch;
}

void Group::pull(const Running& op, const Step& step) {
  const auto peer = static_cast<std::uint32_t>(step.peer);
  std::byte* dst = local_address(op, step.dst_space, step.dst_block, step.dst_offset, gate_ + 1);
  // Straight into place: the scratch of peer_bytes is the destination itself.
  const std::byte* src = peer_bytes(op, step, peer, 0, step.nbytes, dst);
  if (src != dst)
    copy_out(dst, src, step.nbytes, is_streamed(op.plan) && step.dst_space != Space::slot);
}

// Where ranks differ and nobody compares, what the peer published may be of another op.
void Group::push(const Running& op, const Step& step) {
  const auto peer = static_cast<std::uint32_t>(step.peer);
  if (!op.is_agreed) return;
  if (!is_here_[peer])
    throw Error(Fault::system, "a plan writes to the memory of another host", 0, step.peer);
  const Block block = peer_block(op, peer, step.dst_space, step.dst_block);
  if (step.dst_offset > block.nbytes || step.nbytes > block.nbytes - step.dst_offset)
    throw Error(Fault::system, "a peer's block is smaller than the plan writes", 0, step.peer);
  const std::byte* src = local_address(op, step.src_space, step.src_block, step.src_offset, gate_);
  write_peer(peer, block.address + step.dst_offset, src, step.nbytes, Writer::op);
}

// Piece by piece, so that what was read from the peers is still in the cache when it is folded.
template <class Ranks>
void Group::fold_ranks(const Running& op, const Step& step, const Ranks& ranks, ReduceKind kind) {
  const auto count = static_cast<std::uint32_t>(std::ranges::size(ranks));
  const std::uint64_t piece =
      std::max(min_piece_nbytes, tuning_.tile_nbytes / size_ / line_nbytes * line_nbytes);
  if (!scratch_) scratch_ = std::make_unique_for_overwrite<std::byte[]>(piece * size_);
  std::byte* const dst =
      local_address(op, step.dst_space, step.dst_block, step.dst_offset, gate_ + 1);
  const std::uint64_t item = itemsize(op.plan.dtype);
  sources_.resize(size_);
  for (std::uint64_t offset = 0; offset < step.nbytes; offset += piece) {
    const std::uint64_t nbytes = std::min(piece, step.nbytes - offset);
    std::uint32_t i = 0;
    for (const std::uint32_t r : ranks) {
      sources_[i] = peer_bytes(op, step, r, offset, nbytes, scratch_.get() + i * piece);
      ++i;
    }
    fold(kind, op.plan.dtype, dst + offset, sources_.data(), count, nbytes / item);
  }
}

void Group::fold_all(const Running& op, const Step& step) {
  const auto ranks = std::views::iota(0U, size_);
  if (step.first < 0) {
    fold_ranks(op, step, ranks, op.plan.reduce);
    return;
  }
  const auto first = static_cast<std::uint32_t>(step.first);
  const auto down = [&](std::uint32_t i) { return (first + size_ - i) % size_; };
  fold_ranks(op, step, ranks | std::views::transform(down), op.plan.reduce);
}

// A part of the fold: what divides it comes at the end.
void Group::fold_host(const Running& op, const Step& step) {
  const ReduceKind kind = op.plan.reduce == ReduceKind::avg ? ReduceKind::sum : op.plan.reduce;
  fold_ranks(op, step, ranks_here(), kind);
}

// The steps of plans between hosts that move or reduce this rank's own bytes.
void Group::run_message_step(const Running& op, const Step& step, const Wait& wait) {
  const auto peer = static_cast<std::uint32_t>(step.peer);
  const auto src = [&] {
    return local_address(op, step.src_space, step.src_block, step.src_offset, gate_);
  };
  const auto dst = [&] {
    return local_address(op, step.dst_space, step.dst_block, step.dst_offset, gate_ + 1);
  };
  const Dtype dtype = op.plan.dtype;
  const std::uint64_t count = step.nbytes / itemsize(dtype);
  if ((step.kind == StepKind::send || step.kind == StepKind::recv) && (!links_ || is_here_[peer]))
    throw Error(Fault::system, "a plan sends within a host", 0, step.peer);
  if (step.kind == StepKind::send && !op.is_compared && ranks_here().size() > 1)
    throw Error(Fault::system, "a rank that is not alone on its host sends before the first gate");
  switch (step.kind) {
    case StepKind::send:
      if (op.is_compared) {
        links_->send(peer, {src(), step.nbytes}, wait);
      } else {
        links_->send_early(peer, {src(), step.nbytes});
      }
      break;
    case StepKind::recv: links_->receive(peer, {dst(), step.nbytes}, wait, op.in_background); break;
    case StepKind::fold_after: reduce(op.plan.reduce, dtype, dst(), dst(), src(), count); break;
    case StepKind::fold_before: reduce(op.plan.reduce, dtype, dst(), src(), dst(), count); break;
    case StepKind::divide:
      if (op.plan.reduce == ReduceKind::avg) divide(dtype, dst(), count, size_);
      break;
    default: break;
  }
}

// What one rank sends to one other in a round of an exchange through the slots.
std::uint64_t Group::exchange_part() const {
  return segment_.slot_nbytes() / size_ / line_nbytes * line_nbytes;
}

// The longest block for which an exchange stages what it sends, where peers can be read.
std::uint64_t Group::most_exchanged_nbytes() const {
  const std::uint64_t part = exchange_part();
  const std::uint64_t most = std::max(part, most_exchange_nbytes(part));
  return tuning_.exchanged_nbytes == 0 ? most : std::min(most, tuning_.exchanged_nbytes);
}

// Then no rank will look at what is staged: one long block is enough for all to read directly.
bool Group::is_too_long_to_stage(const Running& op) const {
  const std::uint64_t most = most_exchanged_nbytes();
  const auto is_long = [&](const Cut& cut) { return cut.nbytes > most; };
  for (const std::uint32_t j : ranks_here())
    if (j != rank_ && is_long(op.plan.in_cuts[j])) return single_copy_;
  return false;
}

void Group::stage_exchange(const Running& op, std::uint64_t offset) {
  const std::uint64_t part = exchange_part();
  for (const std::uint32_t j : ranks_here()) {
    const std::uint64_t nbytes = op.plan.in_cuts[j].nbytes;
    if (j != rank_ && offset < nbytes)
      std::memcpy(own_slot_for_writing() + j * part, op.own(Space::input, j) + offset,
                  std::min(part, nbytes - offset));
  }
}

// The most that any rank of this host sends to another.
std::uint64_t Group::largest_part(const Running& op) const {
  std::uint64_t largest = 0;
  for (const std::uint32_t i : ranks_here()) {
    // What peers in another op published must not decide how long this one goes on.
    if (!op.is_agreed && i != rank_) continue;
    SlotHeader& slot = segment_.slot(i, op.first_gate);
    for (const std::uint32_t j : ranks_here())
      if (i != j) largest = std::max(largest, segment_.in_blocks(slot)[j].nbytes);
  }
  return largest;
}

// Self-contained: it ends with the gate it needs, if any. Before the first gate `run` has staged the
// first part of every block, on the chance that all blocks of all ranks are that short. How it goes
// on follows from the largest block of all, which everybody sees, so all pass the same gates.
void Group::exchange(const Running& op, const Wait& wait) {
  std::byte* own = op.own(Space::output, rank_);
  const std::byte* from = op.own(Space::input, rank_);
  const std::uint64_t own_nbytes =
      std::min(op.plan.in_cuts[rank_].nbytes, op.plan.out_cuts[rank_].nbytes);
  if (own != from) copy_out(own, from, own_nbytes, own_nbytes >= tuning_.stream_nbytes);
  const std::uint64_t largest = largest_part(op);
  const std::uint64_t part = exchange_part();
  if (single_copy_ && largest > most_exchanged_nbytes()) {
    const auto& mates = ranks_here();
    const auto mine = static_cast<std::size_t>(std::ranges::find(mates, rank_) - mates.begin());
    for (std::size_t k = 1; k < mates.size(); ++k) {
      const std::uint32_t peer = mates[(mine + k) % mates.size()];
      const Block block = peer_block(op, peer, Space::output, rank_);
      // The sizes are equal where they were compared.
      if (op.is_agreed)
        write_peer(peer, block.address, op.own(Space::input, peer),
                   std::min(block.nbytes, op.plan.in_cuts[peer].nbytes), Writer::op);
    }
    gate(wait, op.in_background, 0, Scope::host);
    return;
  }
  for (std::uint64_t offset = 0; offset < largest; offset += part) {
    if (offset > 0) {
      stage_exchange(op, offset);
      gate(wait, op.in_background, 0, Scope::host);
    }
    for (const std::uint32_t i : ranks_here()) {
      const std::uint64_t nbytes = op.plan.out_cuts[i].nbytes;
      if (i != rank_ && offset < nbytes)
        copy_out(op.own(Space::output, i) + offset, segment_.payload(i, gate_) + rank_ * part,
                 std::min(part, nbytes - offset), is_streamed(op.plan));
    }
  }
}

void Group::run(const Plan& plan, const Describe& describe, std::span<const Region> inputs,
                std::span<const Region> outputs, const Wait& wait, bool in_background,
                RecordedOp& recorded, bool standing) {
  std::unique_lock lock(mutex_, std::defer_lock);
  Running op{plan, inputs, outputs, 0, in_background, recorded};
  op.standing = standing;
  run_recorded(op, lock, describe, wait);
}

bool Group::run_awake(const Plan& plan, const Describe& describe, std::span<const Region> inputs,
                      std::span<const Region> outputs, const Wait& wait, RecordedOp& recorded,
                      bool& standing, const Stay& stay) {
  // Other hosts may take longer than anybody stays awake.
  if (links_) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  Running op{plan, inputs, outputs, 0, false, recorded};
  op.stay = stay;
  op.only_awake = true;
  op.standing = standing;
  run_recorded(op, lock, describe, wait);
  standing = op.standing;
  return !standing;
}

void Group::run_recorded(Running& op, std::unique_lock<OpMutex>& lock, const Describe& describe,
                         const Wait& wait) {
  try {
    if (!lock) lock_for_op(lock, wait);
    run_in_turn(op, describe, wait);
    lock.unlock();
    if (recorder_ && !op.standing) recorder_->ended(op.recorded, 0);
  } catch (Error& error) {
    error.number = op.recorded.number;
    if (recorder_) recorder_->ended(op.recorded, status_of(error.fault()));
    throw;
  }
}

void Group::run_in_turn(Running& op, const Describe& describe, const Wait& wait) {
  const Plan& plan = op.plan;
  op.first_gate = gate_ + 1;
  if (!op.standing) {
    if (links_) {
      links_->look();
      if (is_broken()) links_->tell_cause();  // another rank of this host may have broken it
    }
    check_usable();
    ++seq_;
    if (recorder_ && op.recorded.seq != seq_) recorder_->set_seq(op.recorded, seq_);
    segment_.rank(rank_).seq.store(seq_, std::memory_order_release);
  }
  try {
    if (plan.scratch_nbytes > own_scratch_.size()) own_scratch_.resize(plan.scratch_nbytes);
    with_blocks_ = plan.exchanges;
    do {
      if (op.standing) continue;
      op.first_gate = gate_ + 1;
      publish(op, describe);
      if (plan.exchanges && !op.is_unstaged && !is_too_long_to_stage(op)) stage_exchange(op, 0);
    } while (!walk(op, describe, wait));
    if (op.standing) return;
    if (checksum_interval_ != 0 && plan.has_equal_outputs && op.level >= level_detail)
      compare_outputs(op, describe, wait);
  } catch (Error& error) {
    if (links_) links_->forget_early();
    take_out_arrays(op);
    error.seq = seq_;
    error.gate = gate_ + 1;
    // Where words were exchanged all ranks stand at the same gate again; else they do not.
    if (error.fault() == Fault::usage)  // this rank has left the group meanwhile
      break_group(Fault::broken, static_cast<int>(rank_),
                  "closed the group while ops were in flight");
    else if (!error.descriptions)
      break_group(error.fault(),
                  error.fault() == Fault::peer_lost ? error.peer() : static_cast<int>(rank_),
                  error.what());
    if (links_ && is_broken()) links_->tell_cause();
    if (is_broken()) await_writers(Writer::op);
    if (is_broken()) heaps_.assign(size_, nullptr);  // nobody's memory is kept when it is gone
    throw;
  } catch (const std::exception& error) {
    if (links_) links_->forget_early();
    take_out_arrays(op);
    break_group(Fault::system, static_cast<int>(rank_), error.what());
    if (links_) links_->tell_cause();
    await_writers(Writer::op);
    throw Error(Fault::system, error.what());
  }
}

// False: not all ranks have come while it stayed.
bool Group::pass_first_gate(Running& op, const Step& step, const Wait& wait) {
  if (op.only_awake) {
    if (!stay_at_gate(gate_ + 1, op.stay, op.standing, wait)) {
      op.standing = true;
      return false;
    }
  } else if (op.standing) {
    await_others(gate_ + 1, wait, op.in_background);
  } else {
    gate(wait, op.in_background, step.nbytes);
  }
  op.standing = op.only_awake = false;
  return true;
}

// False: the slots were used for something else, and nothing is written yet; begin again.
bool Group::walk(Running& op, const Describe& describe, const Wait& wait) {
  const Plan& plan = op.plan;
  bool is_first_gate = true;
  for (const Step& step : plan.steps) {
    // What leads to the gate it stands at is done.
    if ((op.standing || op.is_unstaged) && is_first_gate && step.kind != StepKind::gate) continue;
    switch (step.kind) {
      case StepKind::gate:
        if (!is_first_gate) {
          gate(wait, op.in_background, step.nbytes);
        } else {
          is_first_gate = false;
          if (!pass_first_gate(op, step, wait)) return true;
          if (recorder_ && !op.has_started) recorder_->started(op.recorded);
          op.has_started = true;
          if (agree(op, describe, wait) == Meeting::again) return false;
          if (op.goes_in_place) {
            op.in_place = true;
            run_in_place(op, wait);
            op.in_place = false;
            return true;
          }
        }
        break;
      case StepKind::copy: {
        const std::byte* src =
            local_address(op, step.src_space, step.src_block, step.src_offset, gate_);
        std::byte* dst =
            local_address(op, step.dst_space, step.dst_block, step.dst_offset, gate_ + 1);
        if (src != dst)
          copy_out(dst, src, step.nbytes,
                   step.nbytes >= tuning_.stream_nbytes && step.dst_space == Space::output);
        break;
      }
      case StepKind::pull: pull(op, step); break;
      case StepKind::push: push(op, step); break;
      case StepKind::fold_all: fold_all(op, step); break;
      case StepKind::exchange: exchange(op, wait); break;
      case StepKind::host_gate: gate(wait, op.in_background, 0, Scope::host); break;
      case StepKind::fold_host: fold_host(op, step); break;
      default: run_message_step(op, step, wait); break;
    }
  }
  if (links_) links_->settle(wait, op.in_background);
  return true;
}

}  // namespace distdbg
