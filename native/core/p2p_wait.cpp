// How messages are waited for, by the threads that want them and by one in the background.
#include <pthread.h>

#include <algorithm>
#include <csignal>

#include "p2p.hpp"

namespace distdbg {

namespace {

bool is_of(const std::exception& error, Fault fault) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours != nullptr && ours->fault() == fault;
}

// What only this rank knows of, and which ends its messages: no memory, a system call.
bool is_failure_of_ours(const std::exception& error) {
  return dynamic_cast<const Error*>(&error) == nullptr || is_of(error, Fault::system);
}

}  // namespace

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
  full_fence();
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
  if (!message->is_up()) group_.note_core();
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
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    // Another thread may have carried it through in the meantime.
    if (message->done() && is_of(error, Fault::timeout)) return message->rethrow();
    give_up(message, error, breaks);
    throw;
  }
  if (message->done()) message->rethrow();
}

// In the handler of the error, with mutex_ held.
void PointToPoint::give_up(const MessagePointer& message, const std::exception& error,
                           bool breaks) {
  const bool is_late = is_of(error, Fault::timeout);
  if (is_late) note_timeout(*message);
  if (is_late && breaks) break_by_timeout(*message);
  if (!breaks && (is_late || is_of(error, Fault::interrupted))) return;
  if (is_failure_of_ours(error))
    group_.break_group(Fault::system, static_cast<int>(group_.rank()), error.what());
  forget(message);
  take_back(*message);
  end(message, std::current_exception());
  if (net_) notices_.tell_cause(*net_);
  group_.tell_hosts();
}

// What the error says of it; with mutex_ held.
void PointToPoint::note_timeout(Message& message) const {
  message.seen = offers_of(message);
  if (!message.is_on_device) return;
  const Pieces& pieces = message.pieces;
  const std::uint64_t nbytes = message.region.nbytes;
  const Want want = message.want;
  const bool has_places = pieces.places.data != nullptr;
  const bool has_begun = want == Want::take || want == Want::memory || want == Want::data;
  message.has_pieces = has_places || has_begun;
  message.copied_then = pieces.served;
  message.moved_then = pieces.moved;
  if (!has_places)
    message.is_device_late = has_begun;
  else if (pieces.is_answered)  // a send: there is a free place, and the receiver wants more
    message.is_device_late = pieces.served < std::min(pieces.allowed, nbytes) &&
                             pieces.served < pieces.moved + pieces.places.nbytes;
  else
    message.is_device_late = pieces.served < pieces.moved;
}

// The other side is told when it is this rank's device that is late; failures.py knows these words.
void PointToPoint::break_by_timeout(const Message& message) {
  if (!message.is_device_late)
    return group_.break_group(Fault::timeout, -1, "timed out in a send or recv");
  const std::string copied =
      std::to_string(message.copied_then) + " of " + std::to_string(message.region.nbytes);
  group_.break_group(Fault::timeout, static_cast<int>(group_.rank()),
                     "timed out: its GPU had copied " + copied + " bytes of a send or recv");
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
    try {
      sleep(nullptr, Group::slice_ns);
    } catch (const std::exception& error) {  // nobody is above this thread
      group_.break_group(Fault::system, static_cast<int>(group_.rank()), error.what());
      const std::lock_guard lock(mutex_);
      fail_all(std::current_exception());
      continue;
    }
    // Deadlines and deaths now and then only: looking through thousands of messages whenever one of
    // them has moved would take longer than moving them.
    if (now_ns() < next_look && !group_.is_broken() && !group_.control().is_aborted()) continue;
    next_look = now_ns() + Group::slice_ns;
    std::vector<MessagePointer> unfinished;
    {
      const std::lock_guard lock(mutex_);
      unfinished = unfinished_async_;
    }
    look_after(unfinished, next_check);
    if (now_ns() >= next_check) next_check = now_ns() + 100 * ns_per_ms;
  }
}

// Whether a peer is alive is asked from `next_check` on, once for all messages with it.
void PointToPoint::look_after(const std::vector<MessagePointer>& unfinished,
                              std::int64_t next_check) {
  // The last place is that of any source.
  std::vector<std::int64_t> next_checks(peers_.size() + 1, next_check);
  for (const MessagePointer& message : unfinished) {
    if (message->done()) continue;
    const auto peer =
        message->peer == any_source ? peers_.size() : static_cast<std::size_t>(message->peer);
    try {
      watch(*message, group_.wait_until(message->deadline_ns), next_checks[peer]);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      if (is_of(error, Fault::timeout)) {
        for (const MessagePointer& each : unfinished_async_) note_timeout(*each);
        break_by_timeout(*message);
      }
      if (is_failure_of_ours(error))
        group_.break_group(Fault::system, static_cast<int>(group_.rank()), error.what());
      return fail_all(std::current_exception());
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
