// Ops one way: few bytes that go from one rank to others (broadcast), or from others to one (reduce, gather), in
// one round through the cells. Whoever has done its part need not wait for all at the gate: a rank that only gives
// leaves at once, one that reads of a single rank as soon as that has come. A rank may run ahead of the last one by
// half a ring of gates, `lag`, while the cells are free.
//
//   come to a gate     when all have come to the one `lag` before. Then all have looked back at what lies two
//                      lags behind, and nobody reads the cells of a ring ago, nor their words
//   any other op       first waits until all have come to all gates before: it goes on as if nobody had left early
//
// What is compared. All meet at a gate in other ops, and see the same words. Here each rank compares with the one
// it reads of. And each looks back, when all have come: Header::come has the sum of all fingerprints then, which
// is as many times its own. So two ranks that both take themselves for the root are found as well. A rank leaves
// early only an op that all have called before alike, with all waiting for all: a call that is wrong from the
// start is told to all at its own line.
//
// A difference. Who has left cannot be asked, so it has left its words beside its cell. Who finds it writes
// its own, breaks the group and throws both. All others learn it from the broken group, in a wait or by
// their next op or when they leave the group, and throw the same words: of the op that differs, not of the one that
// they call then. The group is of no use any more, since ranks had gone on.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "running.hpp"

namespace distdbg {

namespace {

constexpr std::uint64_t lag = long_ring / 2;
// Who has to wait for room waits for so much: each wait may be a change of process.
constexpr std::uint64_t roomy = lag / 2;

// How long a difference is held back for the words of a rank that is about to find it as well.
constexpr std::int64_t words_ns = 1000 * ns_per_ms;

// Before the words of a rank.
struct WordsHeader {
  std::uint64_t nbytes;
};

// Of two gates of which the second is less than 2^31 gates away.
bool has_reached(std::uint32_t epoch, std::uint64_t number) {
  return static_cast<std::int32_t>(epoch - static_cast<std::uint32_t>(number)) >= 0;
}

}  // namespace

bool Group::is_open(std::uint64_t number) const {
  return has_reached(segment_.header().epoch.load(std::memory_order_acquire), number);
}

bool Group::may_leave_early(const Running& op) const {
  const Plan& plan = op.plan;
  // What is checked besides needs all at one place.
  return plan.is_one_way && plan.has_agreed && !plan.needs_all && !links_ && options_ == 0 &&
         checksum_interval_ == 0 && segment_.ring() == long_ring && plan.in_place.steps.empty() &&
         !op.in_background && !op.only_awake;
}

// False: its words are too long, and nothing was done.
bool Group::run_early(Running& op, const Describe& describe, const Wait& wait) {
  const Plan& plan = op.plan;
  const std::uint64_t number = gate_ + 1;
  await_all_at(number - lag, number - roomy, wait, false);
  auto* const words = reinterpret_cast<char*>(segment_.words(rank_, number));
  constexpr std::size_t room = room_of_words - sizeof(WordsHeader);
  WordsHeader head{};
  if (describe.write != nullptr) {
    head.nbytes = describe.write(describe.context, words_cache_, words + sizeof head, room);
  } else {
    const std::string made = describe.make(describe.context);
    if (made.size() <= room)
      std::memcpy(words + sizeof head, made.data(), head.nbytes = made.size());
  }
  if (head.nbytes == 0) return false;
  std::memcpy(words, &head, sizeof head);
  SlotHeader& slot = segment_.slot(rank_, number);
  slot.fingerprint = brought_ = plan.fingerprint;
  slot.first_gate = number;
  slot.in_count = slot.out_count = 0;
  slot.site = 0;
  slot.level = static_cast<std::uint16_t>(level());
  slot.flags = leaves_early;
  auto step = plan.steps.begin();
  for (; step->kind != StepKind::gate; ++step)
    std::memcpy(segment_.cell(rank_, number) + step->dst_offset,
                op.own(Space::input, step->src_block) + step->src_offset, step->nbytes);
  early_[number % long_ring] = {size_ * (1 + (plan.fingerprint << come_bits)), seq_,
                                op.recorded.number, plan.form.kind};
  if (unsure_ == 0) unsure_ = number;
  arrive(number);
  gate_ = number;
  if (plan.giver >= 0) look_at_giver(op, number, wait);
  if (recorder_) recorder_->started(op.recorded);
  op.has_started = true;
  for (++step; step != plan.steps.end(); ++step) {
    std::byte* const into = op.own(Space::output, step->dst_block) + step->dst_offset;
    const std::byte* const from =
        step->kind == StepKind::pull
            ? segment_.cell(static_cast<std::uint32_t>(step->peer), number) + step->src_offset
            : op.own(Space::input, step->src_block) + step->src_offset;
    if (from != into) std::memmove(into, from, step->nbytes);
  }
  return true;
}

// Until all have come to gate `least`; who has to wait for that waits for `wanted`, which this rank has come to. Then
// looks back.
void Group::await_all_at(std::uint64_t least, std::uint64_t wanted, const Wait& wait,
                         bool in_background) {
  Header& header = segment_.header();
  const auto are_there = [&] { return is_open(wanted); };
  if (!is_open(least) && (in_background || !patience_.stay_awake(are_there))) {
    std::int64_t next_check = now_ns() + 20 * ns_per_ms;
    header.sleepers.fetch_add(1, std::memory_order_seq_cst);
    try {
      for (;;) {
        // seq_cst: as in await_gate.
        const std::uint32_t seen = header.epoch.load(std::memory_order_seq_cst);
        if (has_reached(seen, wanted)) break;
        futex_wait(header.epoch, seen, wait.nap_ns(slice_ns));
        if (are_there()) break;
        look_back();
        check_wait(wait, next_check, [&](std::uint32_t r) {
          return segment_.rank(r).gate.load(std::memory_order_acquire) < wanted;
        });
      }
    } catch (Error& error) {
      header.sleepers.fetch_sub(1, std::memory_order_seq_cst);
      if (error.fault() == Fault::timeout) {
        // Who has not come to the first that is shut has kept this rank.
        const std::uint32_t epoch = header.epoch.load(std::memory_order_acquire);
        error.gate = gate_ + 1 - (static_cast<std::uint32_t>(gate_) - epoch);
        break_group(Fault::timeout, -1, "timed out");
      }
      throw;
    }
    header.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  look_back();
}

void Group::await_rank_at(std::uint32_t r, std::uint64_t number, const Wait& wait) {
  Header& header = segment_.header();
  std::atomic<std::uint64_t>& theirs = segment_.rank(r).gate;
  const auto is_there = [&] { return theirs.load(std::memory_order_acquire) >= number; };
  if (patience_.stay_awake(is_there)) return;
  std::int64_t next_check = now_ns() + 20 * ns_per_ms;
  header.rank_sleepers.fetch_add(1, std::memory_order_seq_cst);
  try {
    for (;;) {
      // seq_cst pairs with arrive(): it moves `gate`, then looks at `rank_sleepers`.
      const std::uint64_t seen = theirs.load(std::memory_order_seq_cst);
      if (seen >= number) break;
      futex_wait(lower_half(theirs), static_cast<std::uint32_t>(seen), wait.nap_ns(slice_ns));
      if (is_there()) break;
      look_back();
      check_wait(wait, next_check, [&](std::uint32_t other) { return other == r && !is_there(); });
    }
  } catch (Error& error) {
    header.rank_sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (error.fault() == Fault::timeout) {
      error.gate = number;
      break_group(Fault::timeout, -1, "timed out");
    }
    throw;
  }
  header.rank_sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

// Waits for the rank that this one reads of, and compares with it.
void Group::look_at_giver(const Running& op, std::uint64_t number, const Wait& wait) {
  const auto giver = static_cast<std::uint32_t>(op.plan.giver);
  await_rank_at(giver, number, wait);
  const SlotHeader& theirs = segment_.slot(giver, number);
  if (theirs.fingerprint == op.plan.fingerprint && theirs.first_gate == number) [[likely]]
    return;
  if (theirs.first_gate == number && (theirs.flags & leaves_early) != 0) {
    if (std::max<std::uint32_t>(level(), theirs.level) > level_off) throw_difference(number, seq_);
    return;
  }
  // It has left no words yet: it will, when all have come.
  await_all_at(number, number, wait, false);
}

// At the gates that are open by now.
void Group::look_back() {
  if (unsure_ == 0) return;
  const Header& header = segment_.header();
  const std::uint32_t epoch = header.epoch.load(std::memory_order_acquire);
  while (unsure_ != 0 && has_reached(epoch, unsure_)) {
    const Early& early = early_[unsure_ % long_ring];
    if (header.come[unsure_ % long_ring].load(std::memory_order_relaxed) != early.come &&
        is_compared_at(unsure_))
      throw_difference(unsure_, early.seq);
    unsure_ = unsure_ == gate_ ? 0 : unsure_ + 1;
  }
}

// Whether any rank wanted it.
bool Group::is_compared_at(std::uint64_t number) const {
  for (std::uint32_t r = 0; r < size_; ++r) {
    const SlotHeader& slot = segment_.slot(r, number);
    if (slot.first_gate == number && slot.level > level_off) return true;
  }
  return false;
}

// Of an op that was not left early. Nobody reads this rank's slot any more.
void Group::leave_words(std::uint64_t number, const std::string& words) {
  std::byte* const slot = segment_.payload(rank_, number);
  const WordsHeader head{
      std::min<std::uint64_t>(words.size(), segment_.slot_nbytes() - sizeof(WordsHeader))};
  std::memcpy(slot, &head, sizeof head);
  std::memcpy(slot + sizeof head, words.data(), head.nbytes);
  // Pairs with read_words().
  segment_.rank(rank_).words_of.store(static_cast<std::uint32_t>(number),
                                      std::memory_order_release);
}

// What rank `r` called at that gate; empty: it has not come there, or left nothing. False: it may yet do so.
bool Group::read_words(std::uint32_t r, std::uint64_t number, std::string& words) const {
  const RankState& state = segment_.rank(r);
  const auto take = [&](const std::byte* from, std::uint64_t room) {
    WordsHeader head{};
    std::memcpy(&head, from, sizeof head);
    words.assign(reinterpret_cast<const char*>(from + sizeof head),
                 std::min(head.nbytes, room - sizeof head));
    return true;
  };
  if (state.words_of.load(std::memory_order_acquire) == static_cast<std::uint32_t>(number))
    return take(segment_.payload(r, number), segment_.slot_nbytes());
  if (state.gate.load(std::memory_order_acquire) < number) return !is_open(number);
  const SlotHeader& slot = segment_.slot(r, number);
  if (slot.first_gate != number) return true;
  if ((slot.flags & leaves_early) != 0) return take(segment_.words(r, number), room_of_words);
  return !is_open(number);
}

// The error of all ranks. No rank that has come to that gate writes its cell again: the group is broken.
Error Group::difference(std::uint64_t number, std::uint64_t seq) const {
  is_told_.store(true, std::memory_order_relaxed);
  std::vector<std::string> words(size_);
  const std::int64_t until = now_ns() + words_ns;
  int elsewhere = -1;
  for (std::uint32_t r = 0; r < size_; ++r) {
    while (!read_words(r, number, words[r]) && now_ns() < until) ::usleep(100);
    if (!words[r].empty() || segment_.rank(r).gate.load(std::memory_order_acquire) < number)
      continue;
    if (segment_.slot(r, number).first_gate != number)
      elsewhere = static_cast<int>(r);
    else if (is_open(number))
      words[r] = "{}";  // it ended before it could say what it had called
  }
  const auto known =
      std::ranges::count_if(words, [](const std::string& each) { return !each.empty(); });
  Error error(Fault::mismatch, known > 1 ? "fingerprints differ" : "is in the middle of another op",
              0, elsewhere);
  error.breaks = true;
  error.seq = seq;
  if (known > 1)
    error.descriptions = std::make_shared<const std::vector<std::string>>(std::move(words));
  const Early& early = early_[number % long_ring];
  if (unsure_ != 0 && number >= unsure_ && early.seq == seq) error.number = early.number;
  return error;
}

void Group::throw_difference(std::uint64_t number, std::uint64_t seq) {
  break_group_at(Fault::mismatch, static_cast<int>(rank_),
                 "found that ranks had called different things", -1, seq, number);
  throw difference(number, seq);
}

void Group::settle(const Wait& wait, bool waits) {
  std::unique_lock lock(mutex_, std::defer_lock);
  lock_for_op(lock, wait);
  if (unsure_ == 0 || is_told_.load(std::memory_order_relaxed)) return;
  const Cause& cause = segment_.header().cause;
  if (is_broken() && cause.state.load(std::memory_order_acquire) == 2) {
    // Whoever broke it for another reason has told that in an op.
    if (cause.fault == static_cast<std::int32_t>(Fault::mismatch)) throw_cause(false);
    return;
  }
  try {
    waits ? await_all_at(gate_, gate_, wait, false) : look_back();
  } catch (Error& error) {
    if (error.seq == 0) error.seq = left_early().second;
    throw;
  }
}

}  // namespace distdbg
