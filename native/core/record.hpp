// The writer of a rank's record: a file that survives any death of the process, written with plain
// stores through a shared mapping. distdbg/record/format.py explains the layout.
//
// One Recorder per rank; any thread may use it, with or without the GIL: `lock_` protects everything,
// and no call waits for anything but another writer. Writing never fails and never allocates disk: the
// file has its full size from the start, and rings overwrite their oldest entry. An op that is still in
// flight when the ring comes round is parked first, so what a rank hangs in is never lost.
//
// After a fork the child must not write (it would be the parent's record): `is_forked`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "clock.hpp"
#include "record_layout.hpp"

namespace distdbg {

struct RecordFacts {
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  std::string host;
  std::string boot_id;
  std::string distdbg_version;
  std::string python_version;
  std::string run;
  std::string argv;  // JSON
};

struct GroupFacts {
  std::string name;
  std::string desc;
  std::string ranks;
  std::string backend;
  std::int32_t size = 1;
  std::int32_t rank = 0;
  std::int64_t timeout_ns = 0;
  std::uint32_t site = 0;
};

// What calls of one shape have in common; kept with the plan and written again when its place in the
// ring of forms is about to be needed.
struct Form {
  std::string text;   // JSON, see distdbg/record/forms.py
  std::string name;   // the function that was called, for words about it
  std::string dtype;  // empty: has none
  std::uint8_t kind = 0;
  std::uint64_t nbytes = 0;  // that one op of this form moves in or out of this rank
  std::uint64_t fingerprint = 0;
  // Protected by the recorder's lock.
  std::uint64_t number = 0;  // 0: not written
  std::uint32_t name_reference = 0;
  std::uint32_t dtype_reference = 0;
  // Where ops of this form on `counted_group` count: a place that `ended` looks at first.
  std::uint32_t counter = 0;
  std::uint64_t counted_group = 0;  // 0: not known yet
};

// What one call brings.
struct OpFacts {
  std::uint64_t group = 0;
  std::uint64_t seq = 0;
  std::int64_t issued_ns = 0;
  std::int64_t value = 0;
  std::uint32_t site = 0;
  std::int32_t peer = -1;
  std::uint8_t flags = 0;
};

// An op that has begun; held by whoever ends it. Number 0: not recorded.
struct RecordedOp {
  std::uint64_t number = 0;
  std::uint64_t seq = 0;
  std::uint64_t group = 0;
  std::uint64_t nbytes = 0;
  std::int64_t issued_ns = 0;
  std::int64_t started_ns = 0;
  std::uint32_t dtype = 0;    // a string of the record
  std::uint32_t counter = 0;  // see Form
  std::uint8_t kind = 0;
  bool is_counted = false;  // among the collectives of its group
};

// The span of the user's traces that a thread is in; no trace: it is in none.
struct TraceContext {
  std::uint64_t trace_high = 0;
  std::uint64_t trace_low = 0;
  std::uint64_t span = 0;
  bool is_sampled = false;
};

// The op that a group issued before another one, for words about a mismatch. `name` is a string of the
// record.
struct PreviousOp {
  std::uint64_t seq = 0;  // 0: there is none
  std::uint32_t name = 0;
  std::uint32_t site = 0;
};

class Recorder {
 public:
  // An empty path, or a file that cannot be made in full, is an Error(Fault::system) with errno;
  // `in_memory` makes a record that nobody else sees.
  static std::shared_ptr<Recorder> create(const std::string& path, const RecordFacts& facts,
                                          std::uint32_t ring_count);
  static std::shared_ptr<Recorder> in_memory(const RecordFacts& facts, std::uint32_t ring_count);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  const std::string& path() const { return path_; }  // empty: in memory
  bool is_forked() const;

  std::uint32_t intern(std::string_view text);
  std::uint32_t add_site(std::uint32_t file, std::uint32_t function, std::uint32_t line,
                         std::uint32_t parent);
  std::uint64_t add_group(const GroupFacts& facts);
  void close_group(std::uint64_t group, std::uint32_t site);
  std::uint64_t add_text(std::string_view text);
  void set_broken(std::uint64_t group, std::uint64_t text);
  void set_exit(std::uint64_t how, std::uint64_t text);
  void set_level(std::uint8_t level);
  // The name of the running part of the program (record_comm); empty: none.
  void set_comm(std::string_view name);
  // Back to one of before.
  void restore_comm(std::uint32_t comm) { comm_ = comm; }

  // An op. `begin` returns what `started` (all ranks have come) and `ended` need; `status` is 0 or the
  // Fault + 1.
  RecordedOp begin(const OpFacts& facts, Form& form, PreviousOp* previous = nullptr);
  void started(RecordedOp& op);
  // `now`: of a caller that has just asked the clock; 0: it has not.
  void ended(RecordedOp& op, std::uint32_t status, int source = -1, std::int64_t now = 0);
  // It has ended well, and its device has measured how long it took: it started so long ago.
  void ended_after(RecordedOp& op, std::int64_t ran_ns, int source);
  // It turned out that another thread's op came first.
  void set_seq(RecordedOp& op, std::uint64_t seq);
  // Its end is when its device had it in a queue, whatever was said of its end when it began.
  void set_end_queued(const RecordedOp& op);
  // It has ended well on its device, because it was broken off there.
  void failed_after_all(std::uint64_t number, std::uint32_t status);
  // The words for an op that has failed.
  void set_error(std::uint64_t number, std::uint64_t text);
  // A mark, a span's begin or end, a finding: complete at once. Returns its number.
  std::uint64_t note(EventType type, const OpFacts& facts, Form* form, std::uint64_t text);
  // What comes from the calling thread belongs to this span from now on.
  std::uint64_t set_context(const TraceContext& context);

  // This thread waits from now on for op `number`, which it had begun earlier. Returns what `end_wait`
  // takes; -1: nothing was written, because there was no room, or the thread's waits are hidden. With
  // `thread` it is that one which waits, and the calling one has seen it.
  int begin_wait(std::uint64_t number, std::uint32_t site, std::uint32_t thread = 0,
                 bool is_limited = false);
  void end_wait(int place);
  // Of the calling thread: whether it waits on its own account. Those that only look after ops do not.
  static void hide_waits(bool is_hidden);
  static bool hides_waits();

  // This rank is alive in native code.
  void beat(std::int64_t now) { state().heartbeat_ns = now; }

  // "train.py:88 (step)", with the whole path of the file. What has no room: folders first, then the
  // beginning of the function's name. The file and the line stay.
  std::string site_words(std::uint32_t site, std::size_t most_nbytes = std::string::npos) const;
  std::string_view string(std::uint32_t reference) const;
  std::uint32_t comm() const { return comm_; }
  std::uint64_t last_number() const { return state().last_number; }
  std::uint32_t ring_count() const { return count(SectionId::ring); }

 private:
  struct Group {  // what the writer keeps of a group beside its entry
    std::uint64_t number = 0;
    bool is_closed = true;
    std::vector<std::uint32_t> counters;  // their places
    PreviousOp last;
  };
  struct SiteKey {
    std::uint64_t names;
    std::uint64_t place;
    auto operator<=>(const SiteKey&) const = default;
  };
  // Held for some tens of nanoseconds.
  class Lock {
   public:
    explicit Lock(const Recorder& recorder);
    ~Lock() { flag_.clear(std::memory_order_release); }

   private:
    std::atomic_flag& flag_;
  };

  Recorder(std::byte* base, std::size_t nbytes, int fd, std::string path);
  static std::shared_ptr<Recorder> finish(std::byte* base, std::size_t nbytes, int fd,
                                          const std::string& path, const RecordFacts& facts,
                                          const std::array<RecordSection, section_count>& sections);

  template <class Entry>
  Entry* section(SectionId id) const {
    return reinterpret_cast<Entry*>(base_ + header().sections[static_cast<int>(id)].offset);
  }
  std::uint32_t count(SectionId id) const { return header().sections[static_cast<int>(id)].count; }
  RecordHeader& header() const { return *reinterpret_cast<RecordHeader*>(base_); }
  RecordState& state() const {
    return *reinterpret_cast<RecordState*>(base_ + sizeof(RecordHeader));
  }
  Group* find_group(std::uint64_t number);
  GroupEntry& group_entry(std::uint64_t number) const;
  void end_at(RecordedOp& op, std::uint32_t status, int source, std::int64_t now);
  CounterEntry* counter_of(Group& group, const RecordedOp& op);
  CounterEntry* take_counter(Group& group, std::uint8_t kind, std::uint32_t dtype);
  void find_counter(const Group& group, Form& form);
  void keep_form(Form& form);
  OpEntry& place_of(std::uint64_t number) const;
  template <class How>
  void change(std::uint64_t number, How&& how);
  OpEntry* find(std::uint64_t number);
  void park(const OpEntry& entry);
  std::uint64_t write(EventType type, const OpFacts& facts, std::uint8_t kind, const Form* form,
                      std::uint64_t text);
  std::uint32_t intern_locked(std::string_view text);

  std::byte* base_;
  std::size_t nbytes_;
  int fd_;
  std::string path_;
  std::uint32_t generation_;
  mutable std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
  std::vector<Group> groups_;
  std::unordered_map<std::string, std::uint32_t> strings_;
  std::map<SiteKey, std::uint32_t> sites_;
  std::uint32_t next_parked_ = 0;
  std::uint32_t next_counter_ = 0;
  bool is_counting_full_ = false;  // no place was left, and no group was closed since
  std::uint32_t ring_mask_;        // the ring's count is a power of two
  OpEntry* ring_;
  CounterEntry* counters_;
  std::uint32_t form_slack_;
  std::uint32_t comm_ = 0;
};

// As long as it lives, this thread waits for an op that it had begun earlier.
class RecordedWait {
 public:
  // `until_ns`: what the program has said for this wait alone.
  RecordedWait(Recorder* recorder, std::uint64_t number, std::uint32_t site,
               std::int64_t until_ns = no_deadline)
      : recorder_(recorder),
        place_(recorder ? recorder->begin_wait(number, site, 0, until_ns != no_deadline) : -1) {}
  ~RecordedWait() {
    if (recorder_) recorder_->end_wait(place_);
  }
  RecordedWait(const RecordedWait&) = delete;
  RecordedWait& operator=(const RecordedWait&) = delete;

 private:
  Recorder* const recorder_;
  const int place_;
};

}  // namespace distdbg
