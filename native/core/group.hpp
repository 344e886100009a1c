// One rank's side of a group: its gate, its peers, and the interpreter of plans.
//
// Ops of one group run one after the other (`mutex_`); different groups are independent.
//
// The gate. Every rank counts the gates it comes to. A gate is passed when all ranks have come to
// it: the arrival that completes the round moves `epoch` to the gate's number. Slots are double, and
// a rank writes half g & 1 before gate g, so one gate per round is enough: to write that half again
// it must have passed gate g+1, which all ranks reach only after they have read it.
//
// Failure. Whoever notices first (deadline, dead peer, abort, Ctrl-C, the end of the job) writes the cause into the
// header and wakes everybody; all ranks raise the same cause, then and at every later call. Who gives up
// at a gate takes its arrival back: peers may be reading its arrays still, and must not pass that gate
// and take for good what they read after it has returned. What they write to it is in peer_memory.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "checks.hpp"
#include "clock.hpp"
#include "control.hpp"
#include "error.hpp"
#include "fork.hpp"
#include "futex.hpp"
#include "links.hpp"
#include "op_mutex.hpp"
#include "peer_heap.hpp"
#include "peers.hpp"
#include "plan.hpp"
#include "record.hpp"
#include "region.hpp"
#include "segment.hpp"
#include "site_order.hpp"
#include "tuning.hpp"
#include "wait.hpp"

namespace distdbg {

// What a rank knows of its call beside the plan: `make` gives its words, asked only when ranks turn out
// to differ.
struct Describe {
  std::string (*make)(void* context) = nullptr;
  void* context = nullptr;
  std::uint64_t site = 0;   // hash of the call site, where the group compares those
  std::uint16_t flags = 0;  // has_changed_buffer, has_stand_in
};

// Ops that ranks may have issued in different orders; the op was carried out all the same.
struct Suspicion {
  SiteOrder::Answer answer;
  std::uint64_t seq;
  std::vector<std::uint64_t> sites;       // by rank
  std::vector<bool> stand_ins;            // by rank
  std::vector<std::string> descriptions;  // by rank
};

// What a rank was doing, for messages.
struct RankFacts {
  bool attached;
  std::uint64_t gate;
  std::uint64_t seq;
  bool left;
};

// How far a thread goes at the first gate of a plan before it leaves the rank standing there.
struct Stay {
  bool is_awake = true;              // as long as its patience lasts
  std::int64_t sleeps_until_ns = 0;  // then asleep until then, in job time; 0: it leaves at once
};

class Group {
 public:
  // `host_of`: by rank, the host it is on, numbered by their first ranks; empty: all are on one. With
  // several, `make` is asked for the transport between them.
  Group(Segment segment, std::uint32_t rank, const Patience& patience, bool single_copy,
        const std::vector<std::uint32_t>& host_of = {}, const MakeTransport& make = {});
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Announces this rank and waits for all; then finds out whether all can read each other's memory.
  // `members` by rank, or nothing: who is known before it has announced itself, and may die before.
  void join(const Wait& wait, std::span<const Identity> members);

  // How long messages take, by host, from the one before it on a ring of all hosts: the same on all ranks.
  // Where there are several hosts, by all ranks before any op.
  std::vector<LinkTimes> measure_links(const std::vector<std::uint32_t>& ring, const Wait& wait);

  // Runs one plan; at a mismatch throws Error(Fault::mismatch) that brings every rank's own
  // description of its call, and the group is still usable. So do the faults of the options.
  void run(const Plan& plan, const Describe& describe, std::span<const Region> inputs,
           std::span<const Region> outputs, const Wait& wait, bool in_background,
           RecordedOp& recorded, bool standing = false);
  // The same as far as this thread stays: false, and the rank stands at the first gate, as `standing` says.
  // `run` and this go on from there, on any thread; nothing else may run in between.
  bool run_awake(const Plan& plan, const Describe& describe, std::span<const Region> inputs,
                 std::span<const Region> outputs, const Wait& wait, RecordedOp& recorded,
                 bool& standing, const Stay& stay = {});
  // Number of the next collective, as the callers issue them; `run` counts them as they run.
  std::uint64_t issue() { return issued_.fetch_add(1, std::memory_order_relaxed) + 1; }
  std::uint64_t issued() const { return issued_.load(std::memory_order_relaxed); }
  // An op that was issued and will not run; those behind it come one place earlier.
  void skip(RecordedOp& recorded) {
    issued_.fetch_sub(1, std::memory_order_relaxed);
    if (recorder_) recorder_->ended(recorded, status_of(Fault::mismatch));
  }

  // Before any op; ops of a group without one are not recorded.
  void set_recorder(std::shared_ptr<Recorder> recorder) { recorder_ = std::move(recorder); }
  Recorder* recorder() const { return recorder_.get(); }

  // Before any op; the fields that must agree are the same on all ranks.
  void set_tuning(const Tuning& tuning) { tuning_ = tuning; }
  const Tuning& tuning() const { return tuning_; }

  // Before any wait. Without one the clock of the job is the monotonic clock, and nobody ends it.
  void set_control(std::shared_ptr<const Control> control) {
    kept_control_ = std::move(control);
    control_ = kept_control_.get();
  }
  const Control& control() const { return *control_; }
  // `deadline_ns` in job time.
  Wait wait_until(std::int64_t deadline_ns, bool (*interrupted)() = nullptr) const {
    return {deadline_ns, interrupted, control_};
  }

  // `noticed_by`: another rank than this one.
  void break_group(Fault fault, int rank, const std::string& text, int noticed_by = -1);
  // After that by a thread that is in no collective: ranks of other hosts that wait in one learn it.
  void tell_hosts();
  // `in_op`: the caller was waiting in an op when the group broke.
  [[noreturn]] void throw_cause(bool in_op) const;
  bool is_broken() const {
    return segment_.header().cause.state.load(std::memory_order_acquire) != 0;
  }
  // Marks this rank as gone; whoever waits for it learns at once.
  void leave();
  // Says in words why it will leave; the first words stay.
  void set_why(const std::string& text);
  // Leaves for that reason and breaks the group, also for those that did not wait for this rank yet.
  void depart(const std::string& text);
  // Takes what ranks of other hosts have told, for whoever is in no op of the group.
  void look();
  // The op that each rank of this host called last.
  std::vector<std::uint64_t> calls_here() const;
  const std::vector<std::uint32_t>& ranks_beside(std::uint32_t r) const;
  // What the transports hear of ranks of other hosts: the ops that all of a host called last, or one did;
  // that a rank leaves, or is lost.
  void note_calls(std::uint32_t peer, const std::vector<std::uint64_t>& calls);
  void note_call(std::uint32_t r, std::uint64_t seq);
  void note_leave(std::uint32_t r, const std::string& why);
  void note_lost(std::uint32_t r, const std::string& why);
  // How rank `r` left, in words that tell a departure ("left (...)") from a death.
  std::string how_left(std::uint32_t r) const;

  // At any time, from any thread; see checks.hpp.
  void set_level(std::uint32_t level) { level_.store(level, std::memory_order_relaxed); }
  std::uint32_t level() const { return level_.load(std::memory_order_relaxed); }
  std::uint32_t options() const { return options_; }
  // Whether this rank checks something that the group was made with.
  bool checks(std::uint32_t option) const {
    return (options_ & option) != 0 && level() >= level_detail;
  }
  // What this rank alone has found out, in the form that the findings of all have.
  Error own_error(Fault fault, const Trouble& trouble, std::string words) const;
  // What was found since it was last asked for.
  std::vector<Suspicion> take_suspicions();
  bool has_suspicions() const { return suspicion_count_.load(std::memory_order_relaxed) != 0; }

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return size_; }
  // The ranks of each host, in ascending order; and which host this one is.
  const std::vector<std::vector<std::uint32_t>>& hosts() const { return hosts_; }
  std::uint32_t host() const { return host_; }
  const std::vector<std::uint32_t>& ranks_here() const { return hosts_[host_]; }
  bool is_here(std::uint32_t r) const { return is_here_[r]; }
  const MakeTransport& make_transport() const { return make_transport_; }
  bool single_copy() const { return single_copy_; }
  std::uint64_t seq() const { return seq_; }
  Segment& segment() { return segment_; }
  const Patience& patience() const { return patience_; }
  RankFacts facts(std::uint32_t r) const;
  // Throws unless this process and rank may still use the group.
  void check_usable() const;

  // What every sleeping wait does at least each 50 ms: throws when broken, when the job was aborted, past
  // the deadline, interrupted, or when `is_needed(peer)` and that peer is gone.
  template <class IsNeeded>
  void check_wait(const Wait& wait, std::int64_t& next_death_check_ns, IsNeeded&& is_needed);

  // Where ranks share cores, by one that is about to wait: says where it is, and at times goes to a core with
  // fewer ranks.
  void note_core();

  // Copies from a peer's memory; throws PeerLost when it is gone. `is_sure`: the peer keeps that memory
  // until this rank has read it. If not, the kernel reads also within this process: what is no memory any
  // more is an error then, not a crash.
  void read_peer(std::uint32_t peer, std::uint64_t address, std::byte* into, std::uint64_t nbytes,
                 bool is_sure = true);
  // Copies to a peer's memory, which that rank has published for this op; the same, but that the peer must wait for
  // it: see peer_memory.cpp. `writer`: which of those that may do so at once.
  enum class Writer { op, message };
  void write_peer(std::uint32_t peer, std::uint64_t address, const std::byte* from,
                  std::uint64_t nbytes, Writer writer);
  // By a rank that gives up what peers may write to, when the group is broken and before its arrays are its own again.
  void await_writers(Writer writer);
  // Whether a peer did not come to an end meanwhile, since this thread last asked: it may go on, so the memory of what
  // was given up is to be given to nobody else.
  static bool take_left_written();
  static void note_left_written();
  bool shares_memory_with(std::uint32_t peer) const { return is_local_[peer]; }
  // Whether it reaches that rank's arrays, to read and to write.
  bool can_read(std::uint32_t peer) const {
    return is_local_[peer] || (single_copy_ && is_here_[peer]);
  }

  // So that within 50 ms each has seen what the control page says.
  static constexpr std::int64_t slice_ns = 40 * ns_per_ms;
  static constexpr std::size_t most_suspicions = 100;
  static constexpr std::uint32_t waits_per_look = 256;  // at where all ranks are
  // In which ranks of its host tell how a rank ended: they look every 100 ms.
  static constexpr std::uint32_t explanation_ms = 250;

 private:
  struct Running;  // one execution of a plan

  void run_recorded(Running& op, std::unique_lock<OpMutex>& lock, const Describe& describe,
                    const Wait& wait);
  void run_in_turn(Running& op, const Describe& describe, const Wait& wait);
  // What agree() tells walk().
  enum class Meeting {
    agreed,
    not_compared,  // and differ: nothing that a peer published can be relied on
    again,         // words were exchanged through the slots: from the first step on
  };

  void publish(Running& op, const Describe& describe);
  void find_bad_inputs(const Running& op, SlotHeader& slot) const;
  Meeting agree(Running& op, const Describe& describe, const Wait& wait);
  Meeting differ(Running& op, const Describe& describe, const Wait& wait);
  void compare_outputs(const Running& op, const Describe& describe, const Wait& wait);
  bool walk(Running& op, const Describe& describe, const Wait& wait);
  bool pass_first_gate(Running& op, const Step& step, const Wait& wait);
  // Whether a rank of its host may yet tell how a rank came to be lost: it sees more than a closed connection.
  bool may_be_explained(std::uint32_t r, std::int64_t now) const;
  enum class Scope { group, host };
  // `published`: bytes of this rank's slot that ranks of other hosts may read after it.
  void gate(const Wait& wait, bool in_background, std::uint64_t published = 0,
            Scope scope = Scope::group);
  void gate_with_links(const Wait& wait, bool in_background, std::uint64_t published, Scope scope);
  // Before its host's peers only: true when it was the last, and the gate is open.
  bool arrive(std::uint64_t number);
  bool is_core_needed(std::uint64_t number) const;
  bool stay_at_gate(std::uint64_t number, const Stay& stay, bool standing, const Wait& wait);
  void await_others(std::uint64_t number, const Wait& wait, bool in_background);
  void open_gate(std::uint64_t number);
  void await_ranks_here(std::uint64_t number, const Wait& wait, bool in_background);
  enum class Deadline { breaks, leaves };
  template <class IsNeeded>
  bool await_gate(std::uint64_t number, const Wait& wait, bool in_background,
                  const IsNeeded& is_needed, Deadline deadline = Deadline::breaks);
  bool withdraw(std::uint64_t number);
  void find_missing();
  void attach(const Wait& wait, std::span<const Identity> members);
  void lock_for_op(std::unique_lock<OpMutex>& lock, const Wait& wait);
  void try_single_copy(const Wait& wait);
  void note_end(std::uint32_t r, const std::string& why, bool is_lost);
  std::vector<std::string> exchange_descriptions(const std::string& own, const Wait& wait,
                                                 bool in_background);
  std::uint64_t exchange_part() const;
  std::uint64_t most_exchanged_nbytes() const;
  bool is_streamed(const Plan& plan) const { return plan.out_nbytes >= tuning_.stream_nbytes; }
  std::uint64_t largest_part(const Running& op) const;
  bool is_too_long_to_stage(const Running& op) const;
  void stage_exchange(const Running& op, std::uint64_t offset);
  void exchange(const Running& op, const Wait& wait);
  void fold_all(const Running& op, const Step& step);
  void fold_host(const Running& op, const Step& step);
  template <class Ranks>
  void fold_ranks(const Running& op, const Step& step, const Ranks& ranks, ReduceKind kind);
  void run_message_step(const Running& op, const Step& step, const Wait& wait);
  void pull(const Running& op, const Step& step);
  void push(const Running& op, const Step& step);
  [[noreturn]] void throw_unreachable(std::uint32_t peer, const char* doing, int number);
  std::byte* local_address(const Running& op, Space space, std::uint32_t block,
                           std::uint64_t offset, std::uint64_t gate) const;
  // In shared arrays; see in_place.cpp.
  bool is_exposed(const Running& op) const;
  bool may_offer_in_place(const Running& op);
  void look_for_heaps(const Running& op);
  Meeting meet_in_place(Running& op, std::uint32_t flags_of_all, std::uint32_t flags_of_any);
  bool writes_around(const Running& op) const;
  void run_in_place(const Running& op, const Wait& wait);
  void spread(const Running& op, const Step& step);
  void fold_in_place(const Running& op, const Step& step);
  std::byte* place_of(const Running& op, std::uint32_t r, Space space, std::uint32_t block,
                      std::uint64_t offset, std::uint64_t nbytes) const;
  bool may_be_written(const Running& op) const;
  void take_out_arrays(const Running& op);
  std::byte* own_slot_for_writing() { return segment_.payload(rank_, gate_ + 1); }
  Block peer_block(const Running& op, std::uint32_t peer, Space space, std::uint32_t block) const;
  const std::byte* peer_bytes(const Running& op, const Step& step, std::uint32_t peer,
                              std::uint64_t offset, std::uint64_t nbytes, std::byte* scratch);
  bool do_sizes_fit(const Running& op) const;
  std::vector<Trouble> troubles(const Running& op) const;
  bool has_suspicion(const Running& op, const Describe& describe, const Wait& wait);
  [[noreturn]] void throw_with_words(Error error, const Running& op, const Describe& describe,
                                     const Wait& wait);

  Segment segment_;
  const std::uint32_t rank_;
  const std::uint32_t size_;
  std::vector<std::vector<std::uint32_t>> hosts_;
  std::uint32_t host_ = 0;
  const MakeTransport make_transport_;
  std::vector<bool> is_here_;  // on this host
  const Patience patience_;
  bool single_copy_;
  Tuning tuning_;
  const std::uint32_t options_;
  const std::uint32_t checksum_interval_;
  std::atomic<std::uint32_t> level_{level_detail};
  OpMutex mutex_;  // one op at a time; protects everything below
  std::uint64_t gate_ = 0;
  std::uint64_t seq_ = 0;
  std::atomic<std::uint64_t> issued_{0};
  std::shared_ptr<Recorder> recorder_;
  std::shared_ptr<const Control> kept_control_;
  const Control* control_ = &Control::none();
  std::atomic<std::uint32_t> waits_{0};  // noted so far, about
  std::atomic<bool> has_waited_in_vain_{false};
  std::uint64_t equal_outputs_ = 0;  // ops so far that promise them; the same number on all ranks
  SiteOrder site_order_;
  bool with_blocks_ = false;  // the plan at hand compares sizes between hosts
  std::unique_ptr<std::byte[]> scratch_;
  std::vector<std::byte> own_scratch_;  // Space::scratch
  std::vector<const void*> sources_;
  std::vector<std::byte*> targets_;
  std::vector<std::shared_ptr<const PeerHeap>> heaps_;  // by rank, those that ops have needed
  std::vector<bool> has_no_heap_;                       // by rank: it could not be mapped
  std::vector<Watched> watched_;
  std::vector<bool> is_local_;  // same process: its memory is ours
  std::uint64_t probe_;         // holds the cookie; peers read it to try single copy
  std::mutex suspicions_mutex_;
  std::vector<Suspicion> suspicions_;
  std::atomic<std::size_t> suspicion_count_{0};
  std::mutex notes_mutex_;
  std::unique_ptr<Links> links_;  // the last member: it uses the others
};

template <class IsNeeded>
void Group::check_wait(const Wait& wait, std::int64_t& next_death_check_ns, IsNeeded&& is_needed) {
  if (is_broken()) throw_cause(true);
  if (control_->is_aborted()) {
    // Peers may read this rank's arrays, which are its caller's again.
    break_group(Fault::aborted, static_cast<int>(rank_), "ended with the job");
    control_->throw_aborted();
  }
  // By another thread of this rank.
  if (segment_.rank(rank_).left.load(std::memory_order_acquire) != 0)
    throw Error(Fault::usage, "this rank has left the group");
  if (wait.is_interrupted()) {
    break_group(Fault::interrupted, static_cast<int>(rank_), "was interrupted");
    throw Error(Fault::interrupted, "interrupted");
  }
  const auto [now, job_now] = control_->moment();
  if (recorder_) recorder_->beat(now);
  if (job_now >= wait.deadline_ns) throw Error(Fault::timeout, "the deadline passed");
  for (std::uint32_t r = 0; r < size_; ++r) {
    if (r == rank_ || !is_needed(r)) continue;
    const RankState& state = segment_.rank(r);
    if (state.left.load(std::memory_order_acquire) != 0) {
      // It may have done its part in between.
      if (!is_needed(r) || may_be_explained(r, now)) continue;
      break_group(Fault::peer_lost, static_cast<int>(r), how_left(r));
      throw_cause(true);
    }
  }
  if (now < next_death_check_ns) return;
  next_death_check_ns = now + 100 * ns_per_ms;
  for (std::uint32_t r = 0; r < size_; ++r) {
    if (r == rank_ || r >= watched_.size() || !is_needed(r) || !watched_[r].is_dead()) continue;
    if (!is_needed(r)) continue;
    break_group(Fault::peer_lost, static_cast<int>(r), how_left(r));
    throw_cause(true);
  }
}

}  // namespace distdbg
