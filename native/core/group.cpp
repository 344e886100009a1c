#include "group.hpp"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include "utf8.hpp"

namespace distdbg {

namespace {

// Under Yama's ptrace_scope 1 a process may read only its descendants unless they allow it.
void allow_peers_to_read() {
#ifdef PR_SET_PTRACER
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
}

}  // namespace

Group::Group(Segment segment, std::uint32_t rank, const Patience& patience, bool single_copy,
             const std::vector<std::uint32_t>& host_of, const MakeTransport& make)
    : segment_(std::move(segment)),
      rank_(rank),
      size_(segment_.size()),
      make_transport_(make),
      is_here_(size_, false),
      patience_(patience),
      single_copy_(single_copy),
      options_(segment_.header().options),
      checksum_interval_(segment_.header().checksum_interval),
      heaps_(size_),
      has_no_heap_(size_, false),
      is_local_(size_, false),
      probe_(segment_.header().cookie) {
  if (segment_.slot_nbytes() < line_nbytes * size_)
    throw Error(Fault::usage, "slots are smaller than a cache line for each rank");
  if (rank_ >= size_) throw Error(Fault::usage, "rank is not below the size of the group");
  if (!host_of.empty() && host_of.size() != size_)
    throw Error(Fault::usage, "there must be a host for each rank");
  for (std::uint32_t r = 0; r < size_; ++r) {
    const std::uint32_t host = host_of.empty() ? 0 : host_of[r];
    if (host > hosts_.size()) throw Error(Fault::usage, "hosts are numbered by their first ranks");
    if (host == hosts_.size()) hosts_.emplace_back();
    hosts_[host].push_back(r);
    if (r == rank_) host_ = host;
  }
  for (const std::uint32_t r : ranks_here()) is_here_[r] = true;
  if (hosts_.size() > 1) links_ = std::make_unique<Links>(*this, make_transport_);
}

Group::~Group() {
  leave();
  if (!links_) return;
  try {
    links_->tell_cause();
    links_->tell_leave();
  } catch (const Error&) {  // what others have sent meanwhile is nobody's any more
  }
}

RankFacts Group::facts(std::uint32_t r) const {
  const RankState& state = segment_.rank(r);
  return {state.attached.load(std::memory_order_acquire) != 0,
          state.gate.load(std::memory_order_acquire), state.seq.load(std::memory_order_acquire),
          state.left.load(std::memory_order_acquire) != 0};
}

void Group::join(const Wait& wait, std::span<const Identity> members) {
  const std::lock_guard lock(mutex_);
  attach(wait, members);
  try_single_copy(wait);
  segment_.close_fd();  // every rank has it mapped now
}

void Group::attach(const Wait& wait, std::span<const Identity> members) {
  RankState& mine = segment_.rank(rank_);
  if (single_copy_) allow_peers_to_read();
  mine.pid = ::getpid();
  mine.start_time = process_start_time(mine.pid);
  mine.probe_address = reinterpret_cast<std::uint64_t>(&probe_);
  mine.attached.store(1, std::memory_order_release);
  watched_.resize(size_);
  for (const std::uint32_t r : ranks_here())
    if (r != rank_ && r < members.size() && members[r].pid != 0)
      watched_[r] = Watched(members[r].pid, members[r].start_time);
  std::int64_t next_check = 0;
  for (const std::uint32_t r : ranks_here()) {
    RankState& theirs = segment_.rank(r);
    // Happens once per group and peers come at different times: no use in being quick about it.
    while (theirs.attached.load(std::memory_order_acquire) == 0) {
      // All are needed, also those that have attached: nobody gets further before this rank has.
      check_wait(wait, next_check, [](std::uint32_t) { return true; });
      ::usleep(200);
    }
    is_local_[r] = theirs.pid == mine.pid;
    // What is watched since it lived can also tell how it ended.
    if (!is_local_[r] && !watched_[r].watches(theirs.pid, theirs.start_time))
      watched_[r] = Watched(theirs.pid, theirs.start_time);
  }
}

// Another thread of this rank may be in an op that does not end, or ends later than this one may wait.
void Group::lock_for_op(std::unique_lock<OpMutex>& lock, const Wait& wait) {
  if (lock.try_lock()) return;
  if (mutex_.is_held_by_this_thread())
    throw Error(Fault::usage,
                "this thread is in an op of the group; a signal handler that interrupts it cannot "
                "call one");
  std::int64_t next_check = no_deadline;  // who is in the op looks for deaths
  while (!lock.try_lock_for(std::chrono::nanoseconds(wait.nap_ns(slice_ns)))) {
    try {
      check_wait(wait, next_check, [](std::uint32_t) { return false; });
    } catch (Error& error) {
      if (error.fault() == Fault::timeout) {
        // The op that holds the lock waits at this gate: for those that have not come to it.
        error.gate = segment_.rank(rank_).gate.load(std::memory_order_acquire);
        break_group(Fault::timeout, -1, "timed out");
      }
      throw;
    }
  }
}

void Group::try_single_copy(const Wait& wait) {
  Header& header = segment_.header();
  bool works = single_copy_;
  for (const std::uint32_t r : ranks_here()) {
    if (!works || is_local_[r]) continue;
    const RankState& theirs = segment_.rank(r);
    std::uint64_t seen = 0;
    iovec local{&seen, sizeof seen};
    iovec remote{reinterpret_cast<void*>(theirs.probe_address), sizeof seen};
    works = ::process_vm_readv(theirs.pid, &local, 1, &remote, 1, 0) == sizeof seen &&
            seen == header.cookie;
    // Some sandboxes let a process be read and not written to.
    works = works && ::process_vm_writev(theirs.pid, &local, 1, &remote, 1, 0) == sizeof seen;
  }
  if (!works) header.no_single_copy.store(1, std::memory_order_release);
  segment_.slot(rank_, gate_ + 1).flags = works ? 0 : cannot_read;
  gate(wait, true);
  single_copy_ = header.no_single_copy.load(std::memory_order_acquire) == 0;
  // Plans must be alike, also where hosts are not.
  for (std::uint32_t r = 0; links_ && r < size_; ++r)
    if ((segment_.slot(r, gate_).flags & cannot_read) != 0) single_copy_ = false;
}

std::vector<LinkTimes> Group::measure_links(const std::vector<std::uint32_t>& ring,
                                            const Wait& wait) {
  const std::lock_guard lock(mutex_);
  if (!links_) throw Error(Fault::usage, "the group is on one host");
  std::vector<std::uint32_t> sorted = ring;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t host = 0; host < std::max(sorted.size(), hosts_.size()); ++host)
    if (sorted.size() != hosts_.size() || sorted[host] != host)
      throw Error(Fault::usage, "a ring has each host once");
  const bool is_first = rank_ == ranks_here().front();
  const LinkTimes mine = is_first ? links_->measure(ring, wait) : LinkTimes{};
  std::memcpy(segment_.payload(rank_, gate_ + 1), &mine, sizeof mine);
  gate(wait, false, sizeof mine);
  std::vector<LinkTimes> times(hosts_.size());
  for (std::size_t host = 0; host < hosts_.size(); ++host)
    std::memcpy(&times[host], segment_.payload(hosts_[host].front(), gate_), sizeof times[host]);
  return times;
}

void Group::break_group(Fault fault, int culprit, const std::string& text, int noticed_by) {
  Cause& cause = segment_.header().cause;
  std::uint32_t expected = 0;
  if (!cause.state.compare_exchange_strong(expected, 1)) return;  // the first cause stays
  cause.fault = static_cast<std::int32_t>(fault);
  cause.rank = culprit;
  cause.noticed_by = noticed_by >= 0 ? noticed_by : static_cast<std::int32_t>(rank_);
  // Also called by threads that do not hold `mutex_`, which protects seq_.
  cause.seq = segment_.rank(rank_).seq.load(std::memory_order_acquire);
  const std::string_view words = whole_characters(text, sizeof cause.text - 1);
  std::memcpy(cause.text, words.data(), words.size());
  cause.text[words.size()] = '\0';
  cause.state.store(2, std::memory_order_release);
  futex_wake_all(segment_.header().epoch);
  futex_wake_all(segment_.header().opener_sleeps);
  for (std::uint32_t r = 0; r < size_; ++r) {
    segment_.rank(r).bell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(segment_.rank(r).bell);
  }
}

void Group::tell_hosts() {
  if (!links_) return;
  // Who is in a collective tells them itself.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) links_->tell_cause();
}

void Group::look() {
  if (!links_) return;
  // Who is in a collective takes it.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) links_->look();
}

void Group::throw_cause(bool in_op) const {
  const Cause& cause = segment_.header().cause;
  // Whoever was first may still be writing, or have died at it.
  const std::int64_t until = now_ns() + 200 * ns_per_ms;
  while (cause.state.load(std::memory_order_acquire) != 2) {
    if (now_ns() > until) throw Error(Fault::broken, "broke the group and left no cause");
    ::usleep(100);
  }
  const auto fault = static_cast<Fault>(cause.fault);
  if (fault == Fault::aborted) {
    // A rank of another host may have read it first: the words are on their way to this one.
    const std::int64_t words_until = now_ns() + 500 * ns_per_ms;
    while (!control_->is_aborted() && now_ns() < words_until) ::usleep(1000);
    control_->throw_aborted();
  }
  // A lost peer, or a link that changes data, is the same news for everybody, now and later. A timeout is one
  // for the ranks that were in the op; later calls, and the peers of an interrupted rank, see a broken group.
  const bool is_shared =
      fault == Fault::peer_lost || fault == Fault::network || (fault == Fault::timeout && in_op);
  throw Error(is_shared ? fault : Fault::broken, std::string(cause.text), 0,
              cause.rank >= 0 ? cause.rank : cause.noticed_by);
}

void Group::check_usable() const {
  if (is_broken()) throw_cause(false);
  if (control_->is_aborted()) control_->throw_aborted();
  if (segment_.rank(rank_).left.load(std::memory_order_relaxed) != 0)
    throw Error(Fault::usage, "this rank has left the group");
}

}  // namespace distdbg
