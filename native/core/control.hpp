// The control page of this host, as a rank sees it: distdbg/control/layout.py draws it and says who
// writes what. A rank only reads: the clock of the job, and whether somebody has ended it.
//
// JOB TIME. All deadlines are points of job time: the monotonic clock less all pauses. It stands still
// while the job is paused, and so does every deadline, also of ops that were issued before.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "clock.hpp"

namespace distdbg {

constexpr std::uint64_t control_magic = 0x4367'6264'7473'6964;  // "distdbgC", little endian
constexpr std::uint64_t control_version = 2;
constexpr std::uint64_t control_nbytes = 16384;
constexpr std::uint64_t abort_offset = 1024;
constexpr std::uint64_t max_abort_nbytes = 3072;
constexpr std::uint64_t break_offset = 4096;
constexpr std::uint64_t max_break_nbytes = 4096;
constexpr std::uint64_t holds_offset = 8192;  // who holds the clock; only for page.py
constexpr std::uint64_t hold_nbytes = 32;
constexpr std::uint64_t max_holds = 256;
constexpr std::uint64_t abort_set = 2;

// All atomics are written by processes of distdbg/control/page.py, one at a time.
struct ControlPage {
  std::uint64_t magic;
  std::uint64_t version;
  std::uint64_t padding_0[6];
  // What a rank looks at, on one line: 0 or more, the sum of all pauses; less, ~ of the job time at which
  // the clock stands. One word, so there is no moment at which half of it is new.
  std::atomic<std::int64_t> clock;
  std::atomic<std::int64_t> paused_since_ns;
  std::atomic<std::uint64_t> abort_state;  // acquire: pairs with the writer, which sets it last
  std::atomic<std::uint64_t> abort_nbytes;
  std::atomic<std::uint64_t> break_generation;
  std::atomic<std::uint64_t> break_nbytes;
  std::uint64_t padding_1[2];
  std::atomic<std::uint64_t> agent_pid;
  std::atomic<std::int64_t> agent_beat_ns;
  std::uint64_t padding_2[6];
  char run[64];
};
static_assert(sizeof(ControlPage) == 256 && std::is_standard_layout_v<ControlPage>);
static_assert(offsetof(ControlPage, clock) == 64 && offsetof(ControlPage, run) == 192);

struct Moment {
  std::int64_t now_ns;  // monotonic
  std::int64_t job_ns;  // of the job
};

class Control {
 public:
  // Maps the page of this run; Error(Fault::usage) when it is no page, or another run's.
  static std::shared_ptr<const Control> open(const std::string& path, const std::string& run);
  // What ranks look at where there is no page: nobody ever writes it.
  static const Control& none();

  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  Moment moment() const {
    std::int64_t clock = page_->clock.load(std::memory_order_acquire);
    for (;;) {
      // Whoever is stopped in between (that is what pauses are made for) must not take a time of before
      // the pause for one after it.
      const std::int64_t now = now_ns();
      const std::int64_t again = page_->clock.load(std::memory_order_acquire);
      if (again == clock)
        return {now, clock >= 0 ? std::max<std::int64_t>(now - clock, 0) : ~clock};
      clock = again;
    }
  }
  bool is_paused() const { return page_->clock.load(std::memory_order_acquire) < 0; }
  bool is_aborted() const {
    return page_->abort_state.load(std::memory_order_acquire) == abort_set;
  }
  // Odd while breakpoints are being written, and another number when others are armed. It is on the line
  // of the clock, so whoever has asked for the time has it.
  const std::atomic<std::uint64_t>& break_generation() const { return page_->break_generation; }
  // What the page says of the abort, as JSON; empty where that cannot be read.
  std::string words() const;
  // Error(Fault::aborted) with these words.
  [[noreturn]] void throw_aborted() const;

 private:
  explicit Control(const ControlPage* page, bool is_mapped) : page_(page), is_mapped_(is_mapped) {}

  const ControlPage* page_;
  bool is_mapped_;
};

}  // namespace distdbg
