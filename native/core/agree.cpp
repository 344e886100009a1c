// Compares the calls of all ranks, before any data moves. At the first gate of a plan (glossary.md: gate, slot)
// each rank has left the fingerprint of its call (kind, dtype, sizes, reduce op, root:
// distdbg/check/signature.py) in its slot of the shared memory. Where all fingerprints are equal the op goes
// on. Where they differ (`differ`), at any level above OFF, each rank publishes its call in words, and all raise
// the same MismatchError, which distdbg/check/explain.py makes of these words: every rank finds the same answer
// in the same slots, so none has to tell another how to go on.
#include <algorithm>
#include <cstring>
#include <utility>

#include "hash.hpp"
#include "nonfinite.hpp"
#include "running.hpp"

namespace distdbg {

namespace {

// Of one rank's words; more is cut off. Also what keeps this rank from reading for ever when a peer turns
// out to be in another op.
constexpr std::uint64_t most_words_nbytes = 1 << 20;

// Before a rank's words in its slot.
struct WordsHeader {
  std::uint64_t magic;
  std::uint64_t nbytes;
};
constexpr std::uint64_t words_magic = 0x7364'726f'7764'6464;  // "dddwords"

std::uint64_t element_count(const std::vector<Cut>& cuts, Dtype dtype) {
  std::uint64_t nbytes = 0;
  for (const Cut& cut : cuts) nbytes += cut.nbytes;
  return nbytes / itemsize(dtype);
}

}  // namespace

void Group::publish(Running& op, const Describe& describe) {
  const Plan& plan = op.plan;
  SlotHeader& slot = segment_.slot(rank_, op.first_gate);
  slot.fingerprint = plan.fingerprint;
  slot.first_gate = op.first_gate;
  slot.site = 0;
  slot.level = static_cast<std::uint16_t>(level());
  slot.flags = may_offer_in_place(op) ? offers_in_place : 0;
  op.is_compared = op.goes_in_place = false;
  op.is_unstaged = slot.flags != 0 && plan.expects_in_place;
  if (op.is_unstaged) slot.flags |= is_unstaged;
  // Always: whether peers will read our blocks is for their plans to know, not for ours.
  const auto publish_blocks = [&](const std::vector<Cut>& cuts, Space space, Block* blocks) {
    for (std::uint32_t i = 0; i < cuts.size(); ++i)
      blocks[i] = {reinterpret_cast<std::uint64_t>(op.own(space, i)), cuts[i].nbytes};
    return static_cast<std::uint32_t>(cuts.size());
  };
  slot.in_count = publish_blocks(plan.in_cuts, Space::input, segment_.in_blocks(slot));
  slot.out_count = publish_blocks(plan.out_cuts, Space::output, segment_.out_blocks(slot));
  if (options_ == 0 || slot.level < level_detail) [[likely]]
    return;
  if ((options_ & check_order) != 0) {
    slot.site = describe.site;
    slot.flags = static_cast<std::uint16_t>(slot.flags | (describe.flags & has_stand_in));
  }
  slot.flags = static_cast<std::uint16_t>(slot.flags | (describe.flags & has_changed_buffer));
  if ((options_ & check_nonfinite) != 0 && plan.reads_input && can_be_nonfinite(plan.dtype))
    find_bad_inputs(op, slot);
}

void Group::find_bad_inputs(const Running& op, SlotHeader& slot) const {
  const Dtype dtype = op.plan.dtype;
  for (std::uint32_t i = 0; i < op.plan.in_cuts.size(); ++i) {
    const std::uint64_t count = op.plan.in_cuts[i].nbytes / itemsize(dtype);
    if (!any_nonfinite(dtype, op.own(Space::input, i), count)) continue;
    const NonFinite found = find_nonfinite(dtype, op.own(Space::input, i), count);
    if ((slot.flags & has_nonfinite_input) == 0) {
      slot.flags = static_cast<std::uint16_t>(slot.flags | has_nonfinite_input |
                                              (found.first_is_nan ? first_is_nan : 0));
      slot.bad_array = i;
      slot.first_bad = found.first;
      slot.bad_count = 0;
    }
    slot.bad_count += found.bad_count;
  }
}

Group::Meeting Group::agree(Running& op, const Describe& describe, const Wait& wait) {
  bool are_equal = true;
  std::uint32_t level = 0;
  std::uint32_t flags = 0;
  std::uint32_t flags_of_all = offers_in_place;
  for (std::uint32_t r = 0; r < size_; ++r) {
    const SlotHeader& slot = segment_.slot(r, op.first_gate);
    flags_of_all &= slot.flags;
    are_equal &= slot.fingerprint == op.plan.fingerprint && slot.first_gate == op.first_gate;
    level = std::max<std::uint32_t>(level, slot.level);
    flags |= slot.flags;
  }
  op.is_compared = true;
  if (!are_equal) return differ(op, describe, wait);
  op.level = level;
  if (op.plan.exchanges && level > level_off && !do_sizes_fit(op))
    throw_with_words(Error(Fault::mismatch, "split sizes differ"), op, describe, wait);
  if (meet_in_place(op, flags_of_all, flags) == Meeting::again) return Meeting::again;
  if (options_ == 0 || level < level_detail) [[likely]]
    return Meeting::agreed;
  for (const auto& [flag, fault] : {std::pair{has_changed_buffer, Fault::changed},
                                    std::pair{has_nonfinite_input, Fault::nonfinite}})
    if ((flags & flag) != 0) {
      Error error(fault, "bad arrays");
      error.troubles = std::make_shared<const std::vector<Trouble>>(troubles(op));
      throw_with_words(std::move(error), op, describe, wait);
    }
  return has_suspicion(op, describe, wait) ? Meeting::again : Meeting::agreed;
}

// Ranks that are at another gate of another plan, because an earlier difference was not compared, have
// left nothing here: what their slots hold is old.
Group::Meeting Group::differ(Running& op, const Describe& describe, const Wait& wait) {
  std::uint32_t level = 0;
  int elsewhere = -1;
  for (std::uint32_t r = 0; r < size_; ++r) {
    const SlotHeader& slot = segment_.slot(r, op.first_gate);
    if (slot.first_gate == op.first_gate)
      level = std::max<std::uint32_t>(level, slot.level);
    else
      elsewhere = static_cast<int>(r);
  }
  if (level == level_off) {
    op.is_agreed = false;
    return Meeting::not_compared;
  }
  if (elsewhere < 0)
    throw_with_words(Error(Fault::mismatch, "fingerprints differ"), op, describe, wait);
  const char* text = "is in the middle of another op";
  break_group(Fault::broken, elsewhere, text);
  throw Error(Fault::mismatch, text, 0, elsewhere);
}

// Uneven all_to_all: what rank i sends to j must be what j expects from i, for all pairs. Every
// rank looks at the whole matrix, so all come to the same answer without another message.
bool Group::do_sizes_fit(const Running& op) const {
  for (std::uint32_t i = 0; i < size_; ++i) {
    SlotHeader& from = segment_.slot(i, op.first_gate);
    for (std::uint32_t j = 0; j < size_; ++j) {
      SlotHeader& to = segment_.slot(j, op.first_gate);
      if (segment_.in_blocks(from)[j].nbytes != segment_.out_blocks(to)[i].nbytes) return false;
    }
  }
  return true;
}

std::vector<Trouble> Group::troubles(const Running& op) const {
  std::vector<Trouble> all(size_);
  for (std::uint32_t r = 0; r < size_; ++r) {
    SlotHeader& slot = segment_.slot(r, op.first_gate);
    Trouble& trouble = all[r];
    trouble.flags = slot.flags;
    trouble.array = (slot.flags & has_nonfinite_input) != 0 ? slot.bad_array : 0;
    for (std::uint32_t i = 0; i < slot.in_count; ++i) {
      const std::uint64_t count = segment_.in_blocks(slot)[i].nbytes / itemsize(op.plan.dtype);
      trouble.count += count;
      if (i < trouble.array) trouble.before += count;
    }
    if ((slot.flags & has_nonfinite_input) == 0) continue;
    trouble.bad_count = slot.bad_count;
    trouble.first = slot.first_bad;
  }
  return all;
}

bool Group::has_suspicion(const Running& op, const Describe& describe, const Wait& wait) {
  if ((options_ & check_order) == 0) return false;
  Suspicion suspicion;
  std::uint32_t stand_ins = 0;
  for (std::uint32_t r = 0; r < size_; ++r) {
    const SlotHeader& slot = segment_.slot(r, op.first_gate);
    suspicion.sites.push_back(slot.site);
    suspicion.stand_ins.push_back((slot.flags & has_stand_in) != 0);
    stand_ins += suspicion.stand_ins.back() ? 1 : 0;
  }
  const bool has_mixed_layouts = stand_ins != 0 && stand_ins != size_;
  suspicion.answer = site_order_.look_at(suspicion.sites, has_mixed_layouts, seq_);
  if (suspicion.answer.verdict == SiteOrder::Verdict::quiet) return false;
  suspicion.seq = seq_;
  suspicion.descriptions =
      exchange_descriptions(describe.make(describe.context), wait, op.in_background);
  const std::lock_guard lock(suspicions_mutex_);
  // Nobody may ever ask.
  if (suspicions_.size() < most_suspicions) suspicions_.push_back(std::move(suspicion));
  suspicion_count_.store(suspicions_.size(), std::memory_order_relaxed);
  return true;
}

Error Group::own_error(Fault fault, const Trouble& trouble, std::string words) const {
  Error error(fault, "bad arrays");
  std::vector<Trouble> troubles(size_);
  std::vector<std::string> descriptions(size_);
  troubles[rank_] = trouble;
  descriptions[rank_] = std::move(words);
  error.troubles = std::make_shared<const std::vector<Trouble>>(std::move(troubles));
  error.descriptions = std::make_shared<const std::vector<std::string>>(std::move(descriptions));
  error.seq = segment_.rank(rank_).seq.load(std::memory_order_acquire);
  return error;
}

std::vector<Suspicion> Group::take_suspicions() {
  const std::lock_guard lock(suspicions_mutex_);
  suspicion_count_.store(0, std::memory_order_relaxed);
  return std::exchange(suspicions_, {});
}

// After an op whose outputs are meant to be the same everywhere: one more gate, now and then.
void Group::compare_outputs(const Running& op, const Describe& describe, const Wait& wait) {
  if (++equal_outputs_ % checksum_interval_ != 0) return;
  std::uint64_t checksum = 0;
  for (std::uint32_t i = 0; i < op.plan.out_cuts.size(); ++i)
    checksum = hash_bytes(op.own(Space::output, i), op.plan.out_cuts[i].nbytes, checksum);
  segment_.slot(rank_, gate_ + 1).checksum = checksum;
  gate(wait, op.in_background);
  std::vector<Trouble> all(size_);
  bool are_equal = true;
  for (std::uint32_t r = 0; r < size_; ++r) {
    all[r].checksum = segment_.slot(r, gate_).checksum;
    all[r].count = element_count(op.plan.out_cuts, op.plan.dtype);
    are_equal &= all[r].checksum == checksum;
  }
  if (are_equal) return;
  Error error(Fault::diverged, "outputs differ");
  error.troubles = std::make_shared<const std::vector<Trouble>>(std::move(all));
  throw_with_words(std::move(error), op, describe, wait);
}

void Group::throw_with_words(Error error, const Running& op, const Describe& describe,
                             const Wait& wait) {
  error.descriptions = std::make_shared<const std::vector<std::string>>(
      exchange_descriptions(describe.make(describe.context), wait, op.in_background));
  throw error;
}

// The slow path after a difference: every rank publishes its description in its slot, piece by
// piece with the length first, and reads all the others'.
std::vector<std::string> Group::exchange_descriptions(const std::string& own, const Wait& wait,
                                                      bool in_background) {
  const std::uint64_t room = segment_.slot_nbytes() - sizeof(WordsHeader);
  const WordsHeader mine{words_magic, std::min<std::uint64_t>(own.size(), most_words_nbytes)};
  std::vector<std::string> all(size_);
  std::uint64_t longest = 1;
  for (std::uint64_t offset = 0; offset < longest; offset += room) {
    std::byte* slot = own_slot_for_writing();
    std::memcpy(slot, &mine, sizeof mine);
    if (offset < mine.nbytes)
      std::memcpy(slot + sizeof mine, own.data() + offset, std::min(room, mine.nbytes - offset));
    const std::uint64_t part = mine.nbytes > offset ? std::min(room, mine.nbytes - offset) : 0;
    gate(wait, in_background, sizeof mine + part);
    for (std::uint32_t r = 0; r < size_; ++r) {
      const std::byte* payload = segment_.payload(r, gate_);
      WordsHeader theirs{};
      std::memcpy(&theirs, payload, sizeof theirs);
      if (theirs.magic != words_magic || theirs.nbytes > most_words_nbytes) continue;
      longest = std::max(longest, theirs.nbytes);
      if (offset < theirs.nbytes)
        all[r].append(reinterpret_cast<const char*>(payload + sizeof theirs),
                      std::min(room, theirs.nbytes - offset));
    }
  }
  return all;
}

}  // namespace distdbg
