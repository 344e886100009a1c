// How messages are waited for, by the threads that want them and by one in the background.
#include <pthread.h>

#include <algorithm>
#include <csignal>

#include "p2p.hpp"

namespace distdbg {

// ---------------------------------------------------------------------------------- waiting

// How long a rank sleeps that waits for ranks of its host and of others, where the one cannot end a wait for
// the other.
constexpr std::int64_t mixed_slice_ns = 500'000;

void PointToPoint::watch(const Message& message, const Wait& wait,
                         std::int64_t& next_death_check_ns) {
  // What one of another host has sent may be on its way still, by whatever way its end was heard.
  const auto has_left = [&](std::uint32_t r) {
    return group_.segment().rank(r).left.load(std::memory_order_acquire) != 0 &&
           (group_.is_here(r) || !notices_.may_bring_more(r));
  };
  const auto is_needed = [&](std::uint32_t r) {
    if (message.peer != any_source && static_cast<int>(r) != message.peer) return false;
    // Asked again after a peer is seen to have left: what it sent before is in its channel.
    const std::lock_guard lock(mutex_);
    progress();
    if (message.done() || message.has_moved()) return false;
    if (!group_.is_here(r) && notices_.may_bring_more(r)) return false;
    // What a recv from any source has met is of one rank.
    if (message.peer == any_source && message.source >= 0)
      return static_cast<int>(r) == message.source;
    if (message.peer != any_source || !has_left(r)) return true;
    // Any source: who left is no loss while somebody is there who may still send.
    for (std::uint32_t other = 0; other < group_.size(); ++other)
      if (other != group_.rank() && !has_left(other)) return false;
    return true;
  };
  group_.look();
  if (wait.is_interrupted()) {
    group_.break_group(Fault::interrupted, static_cast<int>(group_.rank()),
                       "was interrupted in a send or recv");
    throw Error(Fault::interrupted, "interrupted");
  }
  group_.check_wait(wait.without_interrupts(), next_death_check_ns, is_needed);
}

// Until the bell rings; `message` (may be null) is looked at after this rank is known to sleep.
void PointToPoint::sleep(const Message* message, std::int64_t timeout_ns) {
  const auto has_work = [&] {
    const std::lock_guard lock(mutex_);
    return progress() || (message != nullptr && message->is_up());
  };
  if (!net_) return ring_.wait(timeout_ns, has_work);
  if (group_.ranks_here().size() == 1) return net_->wait(timeout_ns, has_work);
  // One wait cannot be for both: the bell of this host, and the sockets of others.
  if (!has_bridge()) return net_->wait(std::min(timeout_ns, mixed_slice_ns), has_work);
  std::atomic<std::uint32_t>& sleepers = group_.segment().rank(group_.rank()).bell_sleepers;
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  struct Awake {
    std::atomic<std::uint32_t>& sleepers;
    ~Awake() { sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  } const awake{sleepers};
  net_->wait(timeout_ns, has_work);
}

bool PointToPoint::has_bridge() {
  const std::lock_guard lock(mutex_);
  if (!bridge_ && net_->wake())
    bridge_ = std::make_unique<BellBridge>(group_.segment().rank(group_.rank()).bell,
                                           [this] { net_->wake(); });
  return bridge_ != nullptr;
}

void PointToPoint::wait(const MessagePointer& message, const Wait& wait, bool breaks) {
  bool has_moved = false;
  const auto is_worth_a_look = [&] {
    if (message->is_up()) return true;
    if (mutex_.try_lock()) {
      has_moved = progress();
      mutex_.unlock();
    }
    return has_moved || message->is_up();
  };
  std::int64_t next_check = now_ns() + 20 * ns_per_ms;
  std::int64_t next_look = now_ns() + Group::slice_ns;
  try {
    while (!message->is_up()) {
      // As long as something moves, the peer is at work: patience begins anew.
      const Patience& patience = group_.patience();
      if (net_ ? patience.stay_awake_by_calls(is_worth_a_look)
               : patience.stay_awake(is_worth_a_look)) {
        if (now_ns() < next_look) continue;
      } else {
        sleep(message.get(), wait.nap_ns(Group::slice_ns));
      }
      if (message->is_up()) break;
      next_look = now_ns() + Group::slice_ns;
      if (!breaks && wait.is_interrupted()) throw Error(Fault::interrupted, "interrupted");
      watch(*message, breaks ? wait : wait.without_interrupts(), next_check);
    }
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    // Another thread may have carried it through in the meantime.
    if (message->done() && error.fault() == Fault::timeout) return message->rethrow();
    give_up(message, error, breaks);
    throw;
  }
  if (message->done()) message->rethrow();
}

// In the handler of the error, with mutex_ held.
void PointToPoint::give_up(const MessagePointer& message, const Error& error, bool breaks) {
  const bool is_ours_alone = error.fault() == Fault::timeout || error.fault() == Fault::interrupted;
  if (error.fault() == Fault::timeout) message->seen = offers_of(*message);
  if (error.fault() == Fault::timeout && breaks)
    group_.break_group(Fault::timeout, -1, "timed out in a send or recv");
  if (!breaks && is_ours_alone) return;
  forget(message);
  end(message, std::current_exception());
  if (net_) notices_.tell_cause(*net_);
  group_.tell_hosts();
}

bool PointToPoint::is_done(const MessagePointer& message) {
  if (!message->done()) {
    const std::lock_guard lock(mutex_);
    progress();
  }
  return message->done();
}

bool PointToPoint::is_idle() {
  const std::lock_guard lock(mutex_);
  return unfinished_async_.empty();
}

// ------------------------------------------------------------------------------- background

void PointToPoint::start_thread() {
  if (!thread_.joinable()) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { work(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  async_started_.notify_all();
}

void PointToPoint::work() {
  std::int64_t next_check = 0;
  std::int64_t next_look = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      async_started_.wait(lock, [&] { return is_stopping_ || !unfinished_async_.empty(); });
      if (is_stopping_) return;
    }
    sleep(nullptr, Group::slice_ns);
    // Deadlines and deaths now and then only: looking through thousands of messages whenever one of
    // them has moved would take longer than moving them.
    if (now_ns() < next_look && !group_.is_broken() && !group_.control().is_aborted()) continue;
    next_look = now_ns() + Group::slice_ns;
    std::vector<MessagePointer> unfinished;
    {
      const std::lock_guard lock(mutex_);
      unfinished = unfinished_async_;
    }
    // Whether a peer is alive is asked every 100 ms, once for all messages with it (the last place is
    // that of any source).
    std::vector<std::int64_t> next_checks(peers_.size() + 1, next_check);
    if (now_ns() >= next_check) next_check = now_ns() + 100 * ns_per_ms;
    for (const MessagePointer& message : unfinished) {
      if (message->done()) continue;
      const auto peer =
          message->peer == any_source ? peers_.size() : static_cast<std::size_t>(message->peer);
      try {
        watch(*message, group_.wait_until(message->deadline_ns), next_checks[peer]);
      } catch (const Error& error) {
        if (error.fault() == Fault::timeout)
          group_.break_group(Fault::timeout, -1, "timed out in a send or recv");
        const std::lock_guard lock(mutex_);
        fail_all(std::current_exception());
        break;
      }
    }
  }
}

bool PointToPoint::meets_itself(bool is_send, std::int64_t tag) {
  const std::lock_guard lock(mutex_);
  const int self = static_cast<int>(group_.rank());
  if (is_send)
    return std::any_of(posted_.begin(), posted_.end(), [&](const auto& recv) {
      return (recv->peer == self || recv->peer == any_source) && recv->tag == tag;
    });
  const auto& offers = peers_[group_.rank()].unexpected;
  return std::any_of(offers.begin(), offers.end(),
                     [&](const Offer& offer) { return offer.frame.tag == tag; });
}

}  // namespace distdbg
