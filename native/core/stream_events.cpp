#include "stream_events.hpp"

#include "driver_library.hpp"

namespace distdbg {
namespace {

constexpr int success = CudaEvents::success;

// The context of a device, for the calls of this thread; then the one from before.
class InContext {
 public:
  InContext(const CudaEvents& cuda, void* context) : cuda_(cuda) {
    if (cuda_.get_current(&before_) != success) return;
    is_inside_ = before_ == context || cuda_.set_current(context) == success;
    is_changed_ = is_inside_ && before_ != context;
  }
  ~InContext() {
    if (is_changed_) cuda_.set_current(before_);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  explicit operator bool() const { return is_inside_; }

 private:
  const CudaEvents& cuda_;
  void* before_ = nullptr;
  bool is_inside_ = false;
  bool is_changed_ = false;
};

// What is made meanwhile is no part of a graph that any thread captures.
class BesideCaptures {
 public:
  explicit BesideCaptures(const CudaEvents& cuda) : cuda_(cuda) { exchange(); }
  ~BesideCaptures() { exchange(); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  void exchange() {
    if (cuda_.exchange_capture_mode != nullptr) cuda_.exchange_capture_mode(&mode_);
  }

  const CudaEvents& cuda_;
  int mode_ = CudaEvents::relaxed;
};

}  // namespace

CudaStreams open_cuda_streams(const std::string& path) {
  const DriverLibrary library(path);
  CudaStreams cuda;
  library.find("cuEventCreate", cuda.create);
  library.find("cuEventRecord", cuda.record);
  library.find("cuStreamIsCapturing", cuda.is_capturing);
  library.find("cuDeviceGet", cuda.get_device);
  library.find("cuDevicePrimaryCtxRetain", cuda.retain);
  return cuda;
}

StreamEventPointer StreamEvents::record(int device, void* stream) {
  if (generation_ != fork_generation()) return nullptr;
  int is_capturing = 0;
  if (streams_.is_capturing(stream, &is_capturing) != success || is_capturing != 0) return nullptr;
  StreamEventPointer taken = take(device);
  if (!taken) return nullptr;
  const InContext inside(events_, taken->context);
  if (!inside || streams_.record(taken->event, stream) != success) return nullptr;
  return taken;
}

StreamEventPointer StreamEvents::take(int device) {
  const std::lock_guard held(lock_);
  const auto [at, is_new] = devices_.try_emplace(device);
  Device& of = at->second;
  if (is_new) of.context = context_of(device);
  if (of.context == nullptr || of.in_use >= most_in_use) return nullptr;
  void* event = nullptr;
  if (of.free.empty()) {
    const InContext inside(events_, of.context);
    event = inside ? create() : nullptr;
    if (event == nullptr) return nullptr;
  } else {
    event = of.free.back();
    of.free.pop_back();
  }
  ++of.in_use;
  return {new StreamEvent{of.context, event},
          [all = shared_from_this(), device](const StreamEvent* it) {
            all->give_back(device, it->event);
            delete it;
          }};
}

void StreamEvents::give_back(int device, void* event) {
  const std::lock_guard held(lock_);
  Device& of = devices_[device];
  of.free.push_back(event);
  --of.in_use;
}

// The one that all libraries of the process share; kept until the process ends.
void* StreamEvents::context_of(int device) const {
  const BesideCaptures beside(events_);
  int number = 0;
  void* context = nullptr;
  if (streams_.get_device(&number, device) != success) return nullptr;
  return streams_.retain(&context, number) == success ? context : nullptr;
}

void* StreamEvents::create() const {
  const BesideCaptures beside(events_);
  void* event = nullptr;
  return streams_.create(&event, 0) == success ? event : nullptr;  // with its time
}

}  // namespace distdbg
