// Runs a group's asynchronous collectives in the order they were submitted, on one thread of its own
// that is started with the first of them and never takes the GIL.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
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
  // Describe.
  OpPointer submit(std::shared_ptr<const Plan> plan, const CallWords& words,
                   const RecordedOp& recorded, std::vector<Region> inputs,
                   std::vector<Region> outputs, std::int64_t deadline_ns, std::uint64_t site = 0,
                   std::uint16_t flags = 0);
  // Throws the op's error; at wait.deadline_ns throws Fault::timeout and leaves the op going. An abort of
  // the job ends the op itself, within a slice.
  void wait(const Op& op, const Wait& wait);
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
  };
  bool is_to_be_written(const Entry& entry) const;
  std::exception_ptr carry_out(Entry& entry);
  void work();
  template <class Ready>
  void wait_for(const Wait& wait, Ready&& ready);

  Group& group_;
  std::mutex mutex_;  // protects what is below
  std::condition_variable changed_;
  std::deque<Entry> queue_;
  std::vector<Region> being_written_;  // by the op that runs
  bool is_stopping_ = false;
  std::atomic<std::uint64_t> unfinished_{0};
  std::exception_ptr block_error_;  // of the block at hand; the thread's own
  std::thread thread_;
};

}  // namespace distdbg
