// Threads that wait for an op that they had begun earlier: their places in the state of a record.
#include <atomic>
#include <cstring>

#include "record.hpp"
#include "record_stores.hpp"

namespace distdbg {

namespace {

thread_local bool are_waits_hidden = false;

void increase(std::uint64_t& word) {
  std::atomic_ref<std::uint64_t>(word).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void Recorder::hide_waits(bool is_hidden) { are_waits_hidden = is_hidden; }
bool Recorder::hides_waits() { return are_waits_hidden; }

// Without the lock: a place belongs to the thread that has put its op's number there. A reader believes
// the entry from when its check fits, which is the last word to come and the first to go.
int Recorder::begin_wait(std::uint64_t number, std::uint32_t site, std::uint32_t thread,
                         bool is_limited) {
  if (number == 0 || are_waits_hidden || is_forked()) return -1;
  RecordState& s = state();
  const std::int64_t now = now_ns();
  for (std::size_t place = 0; place < wait_count; ++place) {
    WaitEntry& entry = s.waits[place];
    const std::atomic_ref<std::uint64_t> owner(entry.number);
    std::uint64_t nobody = 0;
    if (owner.load(std::memory_order_relaxed) != 0 ||
        !owner.compare_exchange_strong(nobody, number, std::memory_order_acquire))
      continue;
    entry.since_ns = now;
    entry.thread = (thread != 0 ? thread : thread_number()) | (is_limited ? wait_is_limited : 0);
    entry.site = site;
    std::uint64_t words[3];
    std::memcpy(words, &entry, sizeof words);
    publish(entry.check, checksum(words, 3));
    s.heartbeat_ns = now;
    increase(s.wait_changes);
    return static_cast<int>(place);
  }
  increase(s.lost_waits);
  return -1;
}

void Recorder::end_wait(int place) {
  if (place < 0 || is_forked()) return;
  WaitEntry& entry = state().waits[place];
  invalidate(entry.check);
  publish(entry.number, 0);
  increase(state().wait_changes);
}

}  // namespace distdbg
