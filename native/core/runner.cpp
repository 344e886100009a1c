#include "runner.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>

namespace distdbg {

Runner::~Runner() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    // Whoever drops a group with ops in flight does not wait for them; its peers learn why.
    if (unfinished_ != 0)
      group_.break_group(Fault::broken, static_cast<int>(group_.rank()),
                         "closed the group while ops were in flight");
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

OpPointer Runner::submit(std::shared_ptr<const Plan> plan, const CallWords& words,
                         const RecordedOp& recorded, std::vector<Region> inputs,
                         std::vector<Region> outputs, std::int64_t deadline_ns, std::uint64_t site,
                         std::uint16_t flags) {
  auto op = std::make_shared<Op>();
  op->deadline_ns = deadline_ns;
  op->number = recorded.number;
  Entry entry{op,   std::move(plan), words, recorded, std::move(inputs), std::move(outputs),
              site, flags,           {}};
  if (group_.checks(check_buffers)) {
    std::unique_lock lock(mutex_);
    const bool is_ours = !is_to_be_written(entry);
    lock.unlock();
    if (is_ours) entry.guard.take(entry.inputs, entry.outputs);
  }
  const std::lock_guard lock(mutex_);
  group_.check_usable();
  // First, since it may fail: then nothing must be left in the queue.
  if (!thread_.joinable()) {
    // Signals belong to the threads that Python knows.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { work(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  queue_.push_back(std::move(entry));
  unfinished_.fetch_add(1, std::memory_order_acq_rel);
  changed_.notify_all();
  return op;
}

// Whether an op before this one has yet to write to its arrays: reducing one array twice in a row is
// legal, since the ops of a group run in order.
bool Runner::is_to_be_written(const Entry& entry) const {
  const auto touches = [&](std::span<const Region> written) {
    const auto is_written = [&](const Region& region) { return overlap_any(region, written); };
    return std::ranges::any_of(entry.inputs, is_written) ||
           std::ranges::any_of(entry.outputs, is_written);
  };
  return touches(being_written_) ||
         std::ranges::any_of(queue_, [&](const Entry& other) { return touches(other.outputs); });
}

// Returns an error that only this rank knows of, when the op has ended well for all.
std::exception_ptr Runner::carry_out(Entry& entry) {
  Describe describe{[](void* words) { return static_cast<CallWords*>(words)->make(); },
                    &entry.words, entry.site, entry.flags};
  if (group_.checks(check_buffers)) {
    if (entry.guard.has_changed(entry.inputs, entry.outputs)) describe.flags |= has_changed_buffer;
    entry.guard.start(entry.inputs, entry.outputs);
  }
  group_.run(*entry.plan, describe, entry.inputs, entry.outputs,
             group_.wait_until(entry.op->deadline_ns), true, entry.recorded);
  if (!entry.guard.has_changed_since_start(entry.inputs, entry.outputs)) return nullptr;
  return std::make_exception_ptr(
      group_.own_error(Fault::changed, Trouble{has_changed_buffer}, entry.words.make()));
}

void Runner::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Entry entry = std::move(queue_.front());
    queue_.pop_front();
    being_written_ = entry.outputs;
    lock.unlock();
    std::exception_ptr error;
    // A block is a unit: where ranks differ in one of its ops, none runs the rest of it. They may have
    // different numbers of ops left, so all stand at the same op again.
    if (!entry.plan->goes_on) block_error_ = nullptr;
    try {
      if (block_error_) {
        group_.skip(entry.recorded);
        std::rethrow_exception(block_error_);
      }
      error = carry_out(entry);
    } catch (...) {
      error = block_error_ = std::current_exception();
    }
    lock.lock();
    being_written_.clear();
    unfinished_.fetch_sub(1, std::memory_order_acq_rel);
    entry.op->finish(std::move(error));
    changed_.notify_all();
  }
}

template <class Ready>
void Runner::wait_for(const Wait& wait, Ready&& ready) {
  if (group_.patience().stay_awake(ready)) return;
  std::unique_lock lock(mutex_);
  while (!ready()) {
    if (wait.is_over()) throw Error(Fault::timeout, "the deadline passed");
    changed_.wait_for(lock, std::chrono::nanoseconds(wait.nap_ns(Group::slice_ns)), ready);
    if (ready()) return;
    lock.unlock();
    if (wait.is_interrupted()) throw Error(Fault::interrupted, "interrupted");
    lock.lock();
  }
}

void Runner::wait(const Op& op, const Wait& wait) {
  wait_for(wait, [&] { return op.done(); });
  op.rethrow();
}

void Runner::drain(const Wait& wait) {
  wait_for(wait, [&] { return is_idle(); });
}

}  // namespace distdbg
