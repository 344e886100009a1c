// What every wait carries: its deadline, how to notice Ctrl-C, and the job's control page.
#pragma once

#include <algorithm>
#include <cstdint>

#include "clock.hpp"
#include "control.hpp"

namespace distdbg {

// Passed down by value. `interrupted` is asked every 50 ms or so while blocked, on the calling
// thread; when it returns true the wait throws Error(Fault::interrupted) at once.
struct Wait {
  std::int64_t deadline_ns = no_deadline;  // job time of `control`
  bool (*interrupted)() = nullptr;
  const Control* control = &Control::none();
  // Whether an abort of the job ends it. Not so where nothing is waited for but an answer at once.
  bool ends_with_job = true;

  bool is_interrupted() const { return interrupted != nullptr && interrupted(); }
  bool is_over() const { return deadline_ns <= control->moment().job_ns; }
  // How long to sleep before the next look, at most `slice_ns`. A clock that stands brings the deadline
  // no nearer.
  std::int64_t nap_ns(std::int64_t slice_ns) const {
    if (control->is_paused()) return slice_ns;
    return std::clamp<std::int64_t>(deadline_ns - control->moment().job_ns, 0, slice_ns);
  }
  void check_job() const {
    if (ends_with_job && control->is_aborted()) control->throw_aborted();
  }
  Wait without_interrupts() const {
    Wait quiet = *this;
    quiet.interrupted = nullptr;
    return quiet;
  }
};

}  // namespace distdbg
