// Gates: no rank of a group gets further before all of them have come.
#include <algorithm>

#include "cores.hpp"
#include "futex.hpp"
#include "group.hpp"

namespace distdbg {

void Group::gate(const Wait& wait, bool in_background, std::uint64_t published, Scope scope) {
  if (links_) return gate_with_links(wait, in_background, published, scope);
  const std::uint64_t number = gate_ + 1;
  if (!arrive(number)) await_others(number, wait, in_background);
}

// The kernel leaves a thread where it is that has just run, as all have that wait for each other: with three of
// four ranks on one of two cores they would stay so, and each op takes twice as long.
void Group::note_core() {
  if (patience_.has_own_core()) return;
  std::atomic<std::uint32_t>& seen = segment_.rank(rank_).core;
  const std::uint32_t count = waits_.load(std::memory_order_relaxed) + 1;
  waits_.store(count, std::memory_order_relaxed);
  if (count % waits_per_look == 0) {
    const std::vector<std::uint32_t>& here = ranks_here();
    std::vector<std::uint32_t> cores(here.size());
    std::ranges::transform(here, cores.begin(), [&](std::uint32_t r) {
      return segment_.rank(r).core.load(std::memory_order_relaxed);
    });
    move_to_core(better_core(
        cores, static_cast<std::size_t>(std::ranges::find(here, rank_) - here.begin())));
  }
  const std::uint32_t core = this_core();
  if (seen.load(std::memory_order_relaxed) != core) seen.store(core, std::memory_order_relaxed);
}

// Whether a rank that gate `number` waits for was last seen on this core.
bool Group::is_core_needed(std::uint64_t number) const {
  const std::uint32_t core = this_core();
  return std::ranges::any_of(ranks_here(), [&](std::uint32_t r) {
    const RankState& state = segment_.rank(r);
    return state.core.load(std::memory_order_relaxed) == core &&
           state.gate.load(std::memory_order_relaxed) < number;
  });
}

bool Group::arrive(std::uint64_t number) {
  note_core();
  // acq_rel: the last arrival acquires what every earlier one wrote, and hands it on by `epoch`.
  const std::uint64_t arrived =
      segment_.header().arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  const bool is_last = arrived == number * size_;
  if (is_last) open_gate(number);
  // After the arrival, never before: a rank that is killed in between would count as come to a gate
  // that can never open, and nobody would look whether it is alive.
  segment_.rank(rank_).gate.store(number, std::memory_order_release);
  return is_last;
}

// False: it has arrived, or had before as `standing` says, and the others have not come while it stayed.
bool Group::stay_at_gate(std::uint64_t number, const Stay& stay, bool standing, const Wait& wait) {
  if (!standing && arrive(number)) return true;
  const auto before = static_cast<std::uint32_t>(gate_);
  const std::atomic<std::uint32_t>& epoch = segment_.header().epoch;
  const auto is_open = [&] { return epoch.load(std::memory_order_acquire) != before; };
  const auto needs_core = [&] { return is_core_needed(number); };
  if (stay.is_awake ? patience_.stay_awake(is_open, needs_core) : is_open()) {
    gate_ = number;
    return true;
  }
  if (stay.sleeps_until_ns == 0) return false;
  Wait moment = wait;
  moment.deadline_ns = std::min(wait.deadline_ns, stay.sleeps_until_ns);
  return await_gate(
      number, moment, true,
      [&](std::uint32_t r) {
        return segment_.rank(r).gate.load(std::memory_order_acquire) < number;
      },
      Deadline::leaves);
}

// Of a rank that has arrived.
void Group::await_others(std::uint64_t number, const Wait& wait, bool in_background) {
  await_gate(number, wait, in_background, [&](std::uint32_t r) {
    return segment_.rank(r).gate.load(std::memory_order_acquire) < number;
  });
}

void Group::open_gate(std::uint64_t number) {
  Header& header = segment_.header();
  header.epoch.store(static_cast<std::uint32_t>(number), std::memory_order_seq_cst);
  // seq_cst pairs with the sleeper: it raises `sleepers`, then looks at `epoch`.
  if (header.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(header.epoch);
  gate_ = number;
}

// Of a rank that has arrived. False: it stands there still, which only a deadline allows that `leaves`.
template <class IsNeeded>
bool Group::await_gate(std::uint64_t number, const Wait& wait, bool in_background,
                       const IsNeeded& is_needed, Deadline deadline) {
  Header& header = segment_.header();
  const auto before = static_cast<std::uint32_t>(gate_);
  const auto is_open = [&] { return header.epoch.load(std::memory_order_acquire) != before; };
  const auto needs_core = [&] { return is_core_needed(number); };
  if (in_background ? !is_open() : !patience_.stay_awake(is_open, needs_core)) {
    std::int64_t next_check = now_ns() + 20 * ns_per_ms;
    header.sleepers.fetch_add(1, std::memory_order_seq_cst);
    try {
      while (header.epoch.load(std::memory_order_seq_cst) == before) {
        futex_wait(header.epoch, before, wait.nap_ns(slice_ns));
        if (is_open()) break;
        check_wait(wait, next_check, is_needed);
      }
    } catch (const Error& error) {
      header.sleepers.fetch_sub(1, std::memory_order_seq_cst);
      if (error.fault() == Fault::timeout && deadline == Deadline::leaves) {
        if (!is_open()) return false;
        gate_ = number;
        return true;
      }
      if (error.fault() == Fault::timeout) find_missing();
      const bool has_passed = !withdraw(number);
      if (error.fault() != Fault::timeout) throw;
      if (!has_passed) {
        break_group(Fault::timeout, -1, "timed out");
        throw;
      }
      gate_ = number;  // the last rank came just in time
      return true;
    }
    header.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  gate_ = number;
  return true;
}

// Between hosts the first rank of each opens the gate: when all others of its host have come, and the other
// hosts have sent what their ranks published.
void Group::gate_with_links(const Wait& wait, bool in_background, std::uint64_t published,
                            Scope scope) {
  Header& header = segment_.header();
  RankState& mine = segment_.rank(rank_);
  const std::uint64_t number = gate_ + 1;
  const std::uint64_t all = number * ranks_here().size();
  const std::uint32_t opener = ranks_here().front();
  if (scope == Scope::group) links_->expire_early();
  links_->settle(wait, in_background);
  mine.published = static_cast<std::uint32_t>(published);
  note_core();
  if (rank_ != opener) {
    const std::uint64_t arrived = header.arrivals.fetch_add(1, std::memory_order_seq_cst) + 1;
    mine.gate.store(number, std::memory_order_release);
    if (arrived == all - 1 && header.opener_sleeps.load(std::memory_order_seq_cst) != 0)
      futex_wake_all(header.opener_sleeps);
    await_gate(number, wait, in_background, [&](std::uint32_t r) {
      if (r == opener) return true;
      const RankState& state = segment_.rank(r);
      if (state.gate.load(std::memory_order_acquire) >= number) return false;
      // One of another host that is gone may have come before, and what it sent be on its way to the first rank of
      // this host, which waits for it. Where that one has not come to this op, nobody has passed its first gate.
      const bool is_opener_late = segment_.rank(opener).seq.load(std::memory_order_acquire) < seq_;
      return is_here_[r] || (scope == Scope::group && is_opener_late &&
                             state.lost.load(std::memory_order_acquire) != 0);
    });
    return;
  }
  try {
    await_ranks_here(number, wait, in_background);
    mine.gate.store(number, std::memory_order_release);
    if (scope == Scope::group) links_->exchange(number, with_blocks_, wait, in_background);
  } catch (const Error& error) {
    if (error.fault() == Fault::timeout) {
      mine.gate.store(number, std::memory_order_release);  // it has come, whoever has not
      find_missing();
      break_group(Fault::timeout, -1, "timed out");
    }
    throw;
  }
  std::uint64_t seen = all - 1;
  // Somebody of this host has given up in the meantime, and broken the group.
  if (!header.arrivals.compare_exchange_strong(seen, all, std::memory_order_acq_rel))
    throw_cause(true);
  open_gate(number);
}

void Group::await_ranks_here(std::uint64_t number, const Wait& wait, bool in_background) {
  Header& header = segment_.header();
  const std::uint64_t others = number * ranks_here().size() - 1;
  const auto are_here = [&] { return header.arrivals.load(std::memory_order_seq_cst) == others; };
  const auto needs_core = [&] { return is_core_needed(number); };
  if (in_background ? are_here() : patience_.stay_awake(are_here, needs_core)) return;
  std::int64_t next_check = now_ns() + 20 * ns_per_ms;
  const auto is_needed = [&](std::uint32_t r) {
    return is_here_[r] && segment_.rank(r).gate.load(std::memory_order_acquire) < number;
  };
  header.opener_sleeps.store(1, std::memory_order_seq_cst);
  try {
    while (!are_here()) {
      futex_wait(header.opener_sleeps, 1, wait.nap_ns(slice_ns));
      if (are_here()) break;
      check_wait(wait, next_check, is_needed);
    }
  } catch (...) {
    header.opener_sleeps.store(0, std::memory_order_seq_cst);
    throw;
  }
  header.opener_sleeps.store(0, std::memory_order_seq_cst);
}

// Takes back this rank's arrival at gate `number`, so that it stays shut; false: it has opened.
bool Group::withdraw(std::uint64_t number) {
  std::atomic<std::uint64_t>& arrivals = segment_.header().arrivals;
  std::uint64_t seen = arrivals.load(std::memory_order_acquire);
  while (seen < number * ranks_here().size())
    if (arrivals.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel)) return true;
  return false;
}

}  // namespace distdbg
