#include "event_reader.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "beside_captures.hpp"
#include "clock.hpp"
#include "driver_library.hpp"

namespace distdbg {
namespace {

// Between two looks: a part of the age of the youngest op, so that what is short is read exactly and what is long
// costs little.
constexpr std::int64_t shortest_ns = 30'000, longest_ns = ns_per_ms, part_of_age = 16;

}  // namespace

CudaEvents open_cuda_events(const std::string& path) {
  const DriverLibrary library(path);
  CudaEvents cuda;
  library.find("cuEventQuery", cuda.query);
  library.find("cuCtxGetCurrent", cuda.get_current);
  library.find("cuCtxSetCurrent", cuda.set_current);
  library.find("cuEventElapsedTime", cuda.elapsed);
  library.find_if_there("cuThreadExchangeStreamCaptureMode", cuda.exchange_capture_mode);
  return cuda;
}

void WatchedOp::started() {
  const std::lock_guard held(lock_);
  recorder_->started(op_);
}

void WatchedOp::ended(std::uint32_t status, int source) {
  const std::lock_guard held(lock_);
  if (status == 0 && events_.end != nullptr) {
    // A thread of the program, which may use another device.
    const BesideCaptures beside(cuda_);
    if (const InContext inside(cuda_, events_.context); inside) end_well(source);
  }
  events_ = {};
  if (status != 0 && op_.number == 0) recorder_->failed_after_all(number_, status);
  recorder_->ended(op_, status, source);
}

void WatchedOp::broken_off(std::uint32_t status) {
  const std::lock_guard held(lock_);
  if (events_.end == nullptr) return;
  {
    const BesideCaptures beside(cuda_);
    const InContext inside(cuda_, events_.context);
    if (inside && cuda_.query(events_.end) == CudaEvents::success) end_well(source_);
  }
  events_ = {};
  recorder_->ended(op_, status, -1);
}

bool WatchedOp::has_begun() const {
  return cuda_.query(events_.begin) == CudaEvents::success &&
         (events_.previous == nullptr || cuda_.query(events_.previous) == CudaEvents::success);
}

float WatchedOp::ran_ms() const {
  float ms = -1;
  if (cuda_.elapsed(&ms, events_.begin, events_.end) != CudaEvents::success) return -1;
  if (events_.previous == nullptr) return ms;
  // It may have come to the device while that was at the op before it.
  float since = -1;
  const int asked = cuda_.elapsed(&since, events_.previous, events_.end);
  return asked == CudaEvents::success && since >= 0 ? std::min(ms, since) : ms;
}

void WatchedOp::end_well(int source) {
  constexpr double ns_per_float_ms = 1e6;
  if (const float ms = ran_ms(); ms >= 0)
    recorder_->ended_after(op_, static_cast<std::int64_t>(ms * ns_per_float_ms), source);
  else
    recorder_->ended(op_, 0, source);
  events_ = {};
}

void WatchedOp::stop_watching() {
  const std::lock_guard held(lock_);
  events_ = {};
}

bool WatchedOp::has_ended() {
  const std::lock_guard held(lock_);
  return op_.number == 0;
}

WatchedOp::Look WatchedOp::look(std::unordered_set<const void*>& behind) {
  const std::lock_guard held(lock_);
  if (events_.end == nullptr) return Look::over;
  if (events_.previous != nullptr && behind.contains(events_.previous)) {
    behind.insert(events_.end);
    return Look::is_behind;
  }
  // The thread of the reader has no context of its own, and must not make one.
  if (cuda_.set_current(events_.context) != CudaEvents::success) return Look::over;
  // The end first: what has ended by now had started before it is asked for.
  const int end = cuda_.query(events_.end);
  if (end != CudaEvents::success && end != CudaEvents::not_ready) return Look::over;
  if (op_.started_ns == 0) {
    const int begin = cuda_.query(events_.begin);
    if (begin != CudaEvents::success && begin != CudaEvents::not_ready) return Look::over;
    if (end == CudaEvents::success || has_begun()) recorder_->started(op_);
  }
  if (end == CudaEvents::not_ready) {
    behind.insert(events_.end);
    return Look::waits;
  }
  end_well(source_);
  return Look::over;
}

bool EventReader::watch(const std::shared_ptr<WatchedOp>& op, void* begin, void* end, int source) {
  WatchedEvents events;
  events.begin = begin;
  events.end = end;
  if (generation_ != fork_generation() || cuda_.get_current(&events.context) != CudaEvents::success)
    return false;
  return watch(op, std::move(events), source);
}

bool EventReader::watch(const std::shared_ptr<WatchedOp>& op, WatchedEvents events, int source) {
  if (generation_ != fork_generation()) return false;  // the thread and the device are the parent's
  const std::lock_guard held(lock_);
  if (is_closed_) return false;
  {
    const std::lock_guard op_held(op->lock_);
    op->cuda_ = cuda_;
    op->events_ = std::move(events);
    op->source_ = source;
    op->since_ns_ = now_ns();
  }
  ops_.push_back(op);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_one();
  return true;
}

void EventReader::close() {
  if (generation_ != fork_generation()) {
    if (thread_.joinable()) thread_.detach();  // it is not here
    return;
  }
  std::thread thread;
  {
    const std::lock_guard held(lock_);
    is_closed_ = true;
    thread = std::move(thread_);
    changed_.notify_one();
  }
  if (thread.joinable()) thread.join();
  const std::lock_guard held(lock_);
  ops_.clear();
}

void EventReader::work() {
  // The program may capture a graph meanwhile, in a mode that ends with an error when any other thread asks for an
  // event, unless that thread says that it has nothing to do with it.
  if (int mode = CudaEvents::relaxed; cuda_.exchange_capture_mode != nullptr)
    cuda_.exchange_capture_mode(&mode);
  std::vector<std::shared_ptr<WatchedOp>> ops;
  std::unordered_set<const void*> behind;
  bool is_last = false;
  while (!is_last) {
    {
      std::unique_lock held(lock_);
      changed_.wait(held, [this] { return is_closed_ || !ops_.empty(); });
      is_last = is_closed_;
      ops = ops_;
    }
    const std::int64_t began_ns = now_ns();
    std::int64_t youngest_ns = 0;
    std::unordered_set<const WatchedOp*> over;
    behind.clear();
    for (const auto& op : ops) {
      const WatchedOp::Look seen = op->look(behind);
      if (seen == WatchedOp::Look::over) over.insert(op.get());
      if (seen == WatchedOp::Look::waits) youngest_ns = std::max(youngest_ns, op->since_ns_);
    }
    const std::int64_t ended_ns = now_ns();
    {
      std::unique_lock held(lock_);
      std::erase_if(ops_, [&over](const auto& op) { return over.contains(op.get()); });
      ops.clear();
      if (is_closed_ || ops_.empty()) continue;
      // Many ops take long to look at: most of the time nothing is done all the same.
      const std::int64_t nap_ns =
          std::max(std::clamp((ended_ns - youngest_ns) / part_of_age, shortest_ns, longest_ns),
                   4 * (ended_ns - began_ns));
      changed_.wait_for(held, std::chrono::nanoseconds(nap_ns), [this] { return is_closed_; });
    }
  }
}

}  // namespace distdbg
