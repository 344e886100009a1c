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
  is_work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

OpPointer Runner::submit(std::shared_ptr<const Plan> plan, const CallWords& words,
                         const RecordedOp& recorded, std::vector<Region> inputs,
                         std::vector<Region> outputs, std::int64_t deadline_ns, std::uint64_t site,
                         std::uint16_t flags, bool samples) {
  auto op = std::make_shared<Op>();
  op->deadline_ns = deadline_ns;
  op->number = recorded.number;
  op->site = words.site;
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
  start_thread();
  if (samples) take_sample(entry);
  queue_.push_back(std::move(entry));
  unfinished_.fetch_add(1, std::memory_order_acq_rel);
  op->submitted_ns = last_submit_ns_ = now_ns();
  if (!is_dozing_ || soon_score_ < soon_least) {
    is_work_.notify_all();
    last_waker_ = std::this_thread::get_id();
    last_waker_cpu_ns_ = thread_cpu_ns();
  } else {
    last_waker_ = {};
  }
  return op;
}

OpPointer Runner::submit_lazily(std::shared_ptr<const Plan> plan, const CallWords& words,
                                const RecordedOp& recorded, std::int64_t deadline_ns) {
  // What takes a way between hosts would stand each time.
  if (group_.hosts().size() > 1)
    return submit(std::move(plan), words, recorded, {}, {}, deadline_ns);
  auto op = std::make_shared<Op>();
  op->deadline_ns = deadline_ns;
  op->number = recorded.number;
  op->site = words.site;
  Entry entry{op, std::move(plan), words, recorded, {}, {}, 0, 0, {}};
  entry.is_lazy = true;
  std::unique_lock lock(mutex_);
  group_.check_usable();
  start_thread();
  queue_.push_back(std::move(entry));
  unfinished_.fetch_add(1, std::memory_order_acq_rel);
  op->submitted_ns = last_submit_ns_ = now_ns();
  while (!is_running_ && !queue_.empty() && queue_.front().is_lazy)
    if (!run_front(lock, Stay{false, 0})) break;
  if (is_stopping_ || (!queue_.empty() && !is_looking_)) is_work_.notify_all();
  return op;
}

// Before anything is queued, since it may fail.
void Runner::start_thread() {
  if (thread_.joinable()) return;
  // Signals belong to the threads that Python knows.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { work(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
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

// Of an op in place, whose arrays are no longer the program's from here on.
void Runner::take_sample(Entry& entry) {
  Op& op = *entry.op;
  op.is_sampled = true;
  op.issued = entry.recorded.seq;
  const auto is_same = [](const Region& a, const Region& b) { return a.data == b.data; };
  if (entry.inputs.empty() || !std::ranges::equal(entry.inputs, entry.outputs, is_same)) return;
  if (queue_.size() <= most_compared && !is_to_be_written(entry))
    entry.submitted_sample = sample(entry.inputs);
}

// False: it has begun and has not ended. `error`: what only this rank knows of, when the op has ended well
// for all.
bool Runner::carry_out(Entry& entry, const Pace& pace, std::exception_ptr& error) {
  Describe describe{[](void* words) { return static_cast<CallWords*>(words)->make(); },
                    &entry.words, entry.site, entry.flags};
  if (!entry.has_begun && group_.checks(check_buffers)) {
    if (entry.guard.has_changed(entry.inputs, entry.outputs)) entry.flags |= has_changed_buffer;
    entry.guard.start(entry.inputs, entry.outputs);
    describe.flags = entry.flags;
  }
  if (!entry.has_begun && entry.submitted_sample != 0)
    entry.op->has_changed_early = sample(entry.inputs) != entry.submitted_sample;
  entry.has_begun = true;
  const Wait wait = group_.wait_until(entry.op->deadline_ns);
  if (!pace)
    group_.run(*entry.plan, describe, entry.inputs, entry.outputs, wait, true, entry.recorded,
               entry.standing);
  else if (!group_.run_awake(*entry.plan, describe, entry.inputs, entry.outputs, wait,
                             entry.recorded, entry.standing, *pace))
    return false;
  if (entry.guard.has_changed_since_start(entry.inputs, entry.outputs))
    error = std::make_exception_ptr(
        group_.own_error(Fault::changed, Trouble{has_changed_buffer}, entry.words.make()));
  return true;
}

// Of a queue that is not empty, while no op runs. False: the front is begun, and stays there.
bool Runner::run_front(std::unique_lock<std::mutex>& lock, const Pace& pace) {
  Entry entry = std::move(queue_.front());
  queue_.pop_front();
  being_written_ = entry.outputs;
  is_running_ = true;
  lock.unlock();
  std::exception_ptr error;
  bool has_ended = true;
  // A block is a unit: where ranks differ in one of its ops, none runs the rest of it. They may have
  // different numbers of ops left, so all stand at the same op again.
  if (!entry.plan->goes_on) block_error_ = nullptr;
  try {
    if (block_error_) {
      group_.skip(entry.recorded);
      std::rethrow_exception(block_error_);
    }
    has_ended = carry_out(entry, pace, error);
  } catch (...) {
    error = block_error_ = std::current_exception();
    entry.op->is_left_written = Group::take_left_written();
  }
  if (has_ended && entry.op->is_sampled) {
    entry.op->ended_sample = sample(entry.outputs);
    entry.op->outputs = std::move(entry.outputs);
  }
  lock.lock();
  being_written_.clear();
  is_running_ = false;
  if (!has_ended) {
    queue_.push_front(std::move(entry));
    return false;
  }
  unfinished_.fetch_sub(1, std::memory_order_acq_rel);
  entry.op->finish(std::move(error));
  has_ended_.notify_all();
  return true;
}

void Runner::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    doze(lock);
    // Whoever wakes it for an op may have carried that out before it looks, and the next ones as well.
    is_work_.wait(
        lock, [&] { return is_to_doze() || (!is_running_ && (is_stopping_ || !queue_.empty())); });
    if (is_to_doze()) continue;
    look_after_lazy(lock);
    if (is_running_) continue;
    if (!queue_.empty()) {
      run_front(lock, std::nullopt);
    } else if (is_stopping_) {
      return;
    }
  }
}

// Until one of them has been left for a while, somebody waits, or there is something else to do.
void Runner::look_after_lazy(std::unique_lock<std::mutex>& lock) {
  const auto is_over = [&] {
    if (queue_.empty()) is_wanted_ = false;
    return is_stopping_ || is_wanted_ ||
           std::ranges::any_of(queue_, [](const Entry& each) { return !each.is_lazy; });
  };
  while (!is_over()) {
    const std::int64_t now = now_ns();
    if (queue_.empty() ? now - last_submit_ns_ > rest_ns
                       : !is_running_ && now - queue_.front().op->submitted_ns > lazy_ns)
      return;
    is_looking_ = true;
    is_work_.wait_for(lock, std::chrono::nanoseconds(lazy_ns), is_over);
    is_looking_ = false;
  }
}

// While waits come soon; until there may be something to do.
void Runner::doze(std::unique_lock<std::mutex>& lock) {
  std::int64_t seen_ns = 0;  // when what waited at the last look was submitted
  while (is_to_doze()) {
    is_dozing_ = true;
    is_work_.wait_for(lock, std::chrono::nanoseconds(seen_ns == 0 ? doze_ns : again_ns),
                      [&] { return !is_to_doze(); });
    is_dozing_ = false;
    const std::int64_t now = now_ns();
    if (now - last_submit_ns_ > idle_ns) soon_score_ = 0;
    const bool is_idle = is_running_ || queue_.empty();
    const std::int64_t submitted_ns = is_idle ? now : queue_.front().op->submitted_ns;
    // This thread may have taken the core from who was about to wait: so it looks twice.
    if (submitted_ns == seen_ns) soon_score_ = std::min(soon_score_, soon_least - 1);
    seen_ns = now - submitted_ns > soon_ns ? submitted_ns : 0;
  }
}

bool Runner::is_soon(const Op& op, std::int64_t cpu_ns) const {
  const std::int64_t waited_ns = now_ns() - op.submitted_ns;
  if (waited_ns < soon_ns) return true;
  return waited_ns < short_ns && op.submitted_ns == last_submit_ns_ &&
         last_waker_ == std::this_thread::get_id() && thread_cpu_ns() - last_waker_cpu_ns_ < cpu_ns;
}

// The thread may have taken the core from who was about to wait, or it had one of its own; each op would wake
// it for ever. It counts up alone: what was left to the thread for longer is for it.
void Runner::found_done(const Op& op) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && soon_score_ < soon_least && is_soon(op, soon_ns)) ++soon_score_;
}

// False: it waited as long as it is worth while.
bool Runner::help(const Op& op, const Wait& wait) {
  std::unique_lock lock(mutex_);
  // Whoever gives up before the op does leaves it going.
  if (wait.deadline_ns < op.deadline_ns) return help_for_a_moment(lock, op, wait);
  if (is_soon(op, soon_cpu_ns))
    soon_score_ = std::min(soon_score_ + 1, soon_most);
  else
    soon_score_ -= std::min(soon_score_, late_cost);
  // A short wait for the other ranks is this thread's own.
  const std::int64_t until = wait.control->moment().job_ns + stay_ns;
  bool is_in_time = true;
  while (is_in_time && !op.done() && !is_running_ && !queue_.empty())
    is_in_time = run_front(lock, Stay{!queue_.front().standing, until});
  if (!queue_.empty() || is_stopping_) {
    soon_score_ = std::min(soon_score_, soon_least - 1);
    want_front();
  }
  return is_in_time;
}

// Only an agreement can be left at any time. Its waiter sleeps at the gate itself: two threads less to wake.
bool Runner::help_for_a_moment(std::unique_lock<std::mutex>& lock, const Op& op, const Wait& wait) {
  if (queue_.empty() || !queue_.front().is_lazy) return true;
  const Stay stay{true, wait.deadline_ns};
  while (!op.done() && !is_running_ && !queue_.empty() && queue_.front().is_lazy)
    if (!run_front(lock, stay)) break;
  if (is_stopping_ || !queue_.empty()) want_front();
  return true;
}

// By somebody who waits.
void Runner::want_front() {
  is_wanted_ = !queue_.empty() && queue_.front().is_lazy;
  is_work_.notify_all();
}

template <class Ready>
void Runner::sleep_until(const Wait& wait, Ready&& ready) {
  std::unique_lock lock(mutex_);
  while (!ready()) {
    if (wait.is_over()) throw Error(Fault::timeout, "the deadline passed");
    has_ended_.wait_for(lock, std::chrono::nanoseconds(wait.nap_ns(Group::slice_ns)), ready);
    if (ready()) return;
    lock.unlock();
    if (wait.is_interrupted()) throw Error(Fault::interrupted, "interrupted");
    lock.lock();
  }
}

void Runner::wait(const Op& op, const Wait& wait) {
  const auto ready = [&] { return op.done(); };
  if (!help(op, wait) || !group_.patience().stay_awake(ready)) sleep_until(wait, ready);
  op.rethrow();
}

void Runner::drain(const Wait& wait) {
  const auto ready = [&] { return is_idle(); };
  {
    const std::lock_guard lock(mutex_);
    if (!queue_.empty()) want_front();
  }
  if (!group_.patience().stay_awake(ready)) sleep_until(wait, ready);
}

}  // namespace distdbg
