// Runs a group's asynchronous collectives in the order they were submitted, on one thread of its own
// that is started with the first of them and never takes the GIL. A thread that waits for an op which that
// thread has not begun runs it itself while it stays awake: two switches between threads cost more than
// most ops. Where waits come right after their ops, the thread is not even woken: it looks now and then.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "buffer_guard.hpp"
#include "call_words.hpp"
#include "group.hpp"
#include "op.hpp"

namespace distdbg {

class Runner {
 public:
  explicit Runner(Group& group) : group_(group) {}
  ~Runner();

  // The arrays behind `inputs` and `outputs` must live until the op is done. `site` and `flags` as in
  // Describe. `samples`: whether the op is to know if somebody else writes to its arrays.
  OpPointer submit(std::shared_ptr<const Plan> plan, const CallWords& words,
                   const RecordedOp& recorded, std::vector<Region> inputs,
                   std::vector<Region> outputs, std::int64_t deadline_ns, std::uint64_t site = 0,
                   std::uint16_t flags = 0, bool samples = false);
  // The same for the agreement of ranks on an op that somebody else carries out: nobody waits for it as a
  // rule. This thread takes it as far as it gets without a wait, and whoever submits the next one goes on
  // with it. The thread of the group is not woken; it looks every so often after what was left.
  OpPointer submit_lazily(std::shared_ptr<const Plan> plan, const CallWords& words,
                          const RecordedOp& recorded, std::int64_t deadline_ns);
  // Throws the op's error; at wait.deadline_ns throws Fault::timeout and leaves the op going. An abort of
  // the job ends the op itself, within a slice.
  void wait(const Op& op, const Wait& wait);
  // Somebody was about to wait for what had ended. Waits for nothing.
  void found_done(const Op& op);
  bool is_idle() const { return unfinished_.load(std::memory_order_acquire) == 0; }
  // Waits until all submitted ops have ended; each ends at its own deadline at the latest.
  void drain(const Wait& wait);

 private:
  struct Entry {
    OpPointer op;
    std::shared_ptr<const Plan> plan;
    CallWords words;
    RecordedOp recorded;
    std::vector<Region> inputs;
    std::vector<Region> outputs;
    std::uint64_t site;
    std::uint16_t flags;
    BufferGuard guard;
    std::uint64_t submitted_sample = 0;  // of what it reads and writes; 0: not taken
    bool has_begun = false;
    bool standing = false;  // see Group::run_awake
    bool is_lazy = false;
  };
  // How far a thread goes with an op; no pace: to its end.
  using Pace = std::optional<Stay>;
  // A wait that comes so soon after its op was started. Who wakes the thread may lose its core to it and would
  // come late each time, so what counts there is its own time, if the whole was short.
  static constexpr std::int64_t soon_ns = 20'000;
  static constexpr std::int64_t soon_cpu_ns = 50'000;
  static constexpr std::int64_t short_ns = ns_per_ms;
  // While most are, by `soon_score_`, the thread dozes: it looks every so often whether an op was left to it,
  // and sleeps again when none was started for a while. A late wait counts for four: on a busy machine a
  // thread loses its core now and then.
  static constexpr std::uint32_t soon_least = 8;
  static constexpr std::uint32_t soon_most = 16;
  static constexpr std::uint32_t late_cost = 4;
  static constexpr std::int64_t doze_ns = 500'000;
  static constexpr std::int64_t again_ns = 50'000;
  // How long who waits sleeps at a gate before the thread has to.
  static constexpr std::int64_t stay_ns = 40 * ns_per_ms;
  static constexpr std::int64_t idle_ns = 20 * ns_per_ms;
  // How long an op that was submitted lazily may stand before the thread carries it out, and how often it
  // looks; so long after the last of them it looks no more.
  static constexpr std::int64_t lazy_ns = 20 * ns_per_ms;
  static constexpr std::int64_t rest_ns = 1000 * ns_per_ms;

  // Ops in the queue that a new one's arrays are compared with; with more, they are not sampled.
  static constexpr std::size_t most_compared = 16;

  bool is_to_be_written(const Entry& entry) const;
  void take_sample(Entry& entry);
  void start_thread();
  bool run_front(std::unique_lock<std::mutex>& lock, const Pace& pace);
  bool carry_out(Entry& entry, const Pace& pace, std::exception_ptr& error);
  void work();
  void look_after_lazy(std::unique_lock<std::mutex>& lock);
  bool is_to_doze() const { return !is_stopping_ && soon_score_ >= soon_least; }
  void doze(std::unique_lock<std::mutex>& lock);
  bool is_soon(const Op& op, std::int64_t cpu_ns) const;
  bool help(const Op& op, const Wait& wait);
  void want_front();
  bool help_for_a_moment(std::unique_lock<std::mutex>& lock, const Op& op, const Wait& wait);
  template <class Ready>
  void sleep_until(const Wait& wait, Ready&& ready);

  Group& group_;
  std::mutex mutex_;                   // protects what is below
  std::condition_variable is_work_;    // for the thread
  std::condition_variable has_ended_;  // an op, for who waits
  std::deque<Entry> queue_;
  std::vector<Region> being_written_;  // by the op that runs
  bool is_running_ = false;            // an op, on any thread
  bool is_stopping_ = false;
  bool is_dozing_ = false;        // the thread: an op need not wake it
  bool is_looking_ = false;       // the same of ops that were submitted lazily
  bool is_wanted_ = false;        // a lazy op, by somebody who waits
  std::uint32_t soon_score_ = 0;  // of waits
  std::int64_t last_submit_ns_ = 0;
  // Where it woke the thread: who did, and how long that had run.
  std::thread::id last_waker_;
  std::int64_t last_waker_cpu_ns_ = 0;
  std::atomic<std::uint64_t> unfinished_{0};
  std::exception_ptr block_error_;  // of the block at hand; of who runs an op
  std::thread thread_;
};

}  // namespace distdbg
