#include "event_reader.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "clock.hpp"
#include "error.hpp"

namespace distdbg {
namespace {

// Between two looks: a part of the age of the youngest op, so that what is short is read exactly and what is long
// costs little.
constexpr std::int64_t shortest_ns = 30'000, longest_ns = ns_per_ms, part_of_age = 16;

template <class Function>
void find(void* library, const std::string& path, const char* name, Function*& function) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) throw Error(Fault::network, path + " has no " + name);
  function = reinterpret_cast<Function*>(found);
}

}  // namespace

CudaEvents open_cuda_events(const std::string& path) {
  // Never closed: the driver has threads and handlers of its own.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const words = ::dlerror();
    throw Error(Fault::network, words != nullptr ? words : path + " cannot be opened");
  }
  CudaEvents cuda;
  find(library, path, "cuEventQuery", cuda.query);
  find(library, path, "cuCtxGetCurrent", cuda.get_current);
  find(library, path, "cuCtxSetCurrent", cuda.set_current);
  find(library, path, "cuEventElapsedTime", cuda.elapsed);
  cuda.exchange_capture_mode =
      reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuThreadExchangeStreamCaptureMode"));
  return cuda;
}

void WatchedOp::started() {
  const std::lock_guard held(lock_);
  recorder_->started(op_);
}

void WatchedOp::ended(std::uint32_t status, int source) {
  const std::lock_guard held(lock_);
  if (status == 0 && end_ != nullptr) {
    // A thread of the program, which may use another device.
    void* context = nullptr;
    if (cuda_.get_current(&context) == CudaEvents::success &&
        cuda_.set_current(context_) == CudaEvents::success) {
      end_well(source);
      cuda_.set_current(context);
    }
  }
  end_ = nullptr;
  recorder_->ended(op_, status, source);
}

void WatchedOp::end_well(int source) {
  constexpr double ns_per_float_ms = 1e6;
  float ms = 0;
  if (cuda_.elapsed(&ms, begin_, end_) == CudaEvents::success && ms >= 0)
    recorder_->ended_after(op_, static_cast<std::int64_t>(ms * ns_per_float_ms), source);
  else
    recorder_->ended(op_, 0, source);
  end_ = nullptr;
}

void WatchedOp::stop_watching() {
  const std::lock_guard held(lock_);
  end_ = nullptr;
}

bool WatchedOp::has_ended() {
  const std::lock_guard held(lock_);
  return op_.number == 0;
}

bool WatchedOp::look() {
  const std::lock_guard held(lock_);
  if (end_ == nullptr) return true;
  // The thread of the reader has no context of its own, and must not make one.
  if (cuda_.set_current(context_) != CudaEvents::success) return true;
  // The end first: what has ended by now had started before it is asked for.
  const int end = cuda_.query(end_);
  if (end != CudaEvents::success && end != CudaEvents::not_ready) return true;
  if (op_.started_ns == 0) {
    const int begin = cuda_.query(begin_);
    if (begin != CudaEvents::success && begin != CudaEvents::not_ready) return true;
    if (begin == CudaEvents::success || end == CudaEvents::success) recorder_->started(op_);
  }
  if (end == CudaEvents::not_ready) return false;
  end_well(source_);
  return true;
}

void EventReader::watch(const std::shared_ptr<WatchedOp>& op, void* begin, void* end, int source) {
  if (generation_ != fork_generation()) return;  // the thread, and the device, are the parent's
  {
    const std::lock_guard held(op->lock_);
    if (cuda_.get_current(&op->context_) != CudaEvents::success) return;
    op->cuda_ = cuda_;
    op->begin_ = begin;
    op->end_ = end;
    op->source_ = source;
    op->since_ns_ = now_ns();
  }
  const std::lock_guard held(lock_);
  if (is_closed_) return;
  ops_.push_back(op);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_one();
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
    ops_.clear();
    thread = std::move(thread_);
    changed_.notify_one();
  }
  if (thread.joinable()) thread.join();
}

void EventReader::work() {
  // The program may capture a graph meanwhile, in a mode that ends with an error when any other thread asks for an
  // event, unless that thread says that it has nothing to do with it.
  if (int mode = CudaEvents::relaxed; cuda_.exchange_capture_mode != nullptr)
    cuda_.exchange_capture_mode(&mode);
  std::vector<std::shared_ptr<WatchedOp>> ops;
  while (true) {
    {
      std::unique_lock held(lock_);
      changed_.wait(held, [this] { return is_closed_ || !ops_.empty(); });
      if (is_closed_) return;
      ops = ops_;
    }
    const std::int64_t began_ns = now_ns();
    std::int64_t youngest_ns = 0;
    std::vector<WatchedOp*> over;
    for (const auto& op : ops) {
      if (op->look())
        over.push_back(op.get());
      else
        youngest_ns = std::max(youngest_ns, op->since_ns_);
    }
    const std::int64_t ended_ns = now_ns();
    {
      std::unique_lock held(lock_);
      std::erase_if(ops_, [&over](const auto& op) {
        return std::find(over.begin(), over.end(), op.get()) != over.end();
      });
      ops.clear();
      if (is_closed_) return;
      if (ops_.empty()) continue;
      // Many ops take long to look at: most of the time nothing is done all the same.
      const std::int64_t nap_ns =
          std::max(std::clamp((ended_ns - youngest_ns) / part_of_age, shortest_ns, longest_ns),
                   4 * (ended_ns - began_ns));
      changed_.wait_for(held, std::chrono::nanoseconds(nap_ns), [this] { return is_closed_; });
    }
  }
}

}  // namespace distdbg
