#include "stream_events.hpp"

#include "beside_captures.hpp"
#include "driver_library.hpp"

namespace distdbg {
namespace {

constexpr int success = CudaEvents::success;

}  // namespace

CudaStreams open_cuda_streams(const std::string& path) {
  const DriverLibrary library(path);
  CudaStreams cuda;
  library.find("cuEventCreate", cuda.create);
  library.find("cuEventRecord", cuda.record);
  library.find("cuStreamIsCapturing", cuda.is_capturing);
  library.find("cuDeviceGet", cuda.get_device);
  library.find("cuDevicePrimaryCtxRetain", cuda.retain);
  library.find("cuStreamCreate", cuda.create_stream);
  return cuda;
}

StreamEventPointer StreamEvents::record(int device, void* stream) {
  if (generation_ != fork_generation()) return nullptr;
  StreamEventPointer taken = take(device);
  if (!taken) return nullptr;
  // The device's, also where this thread has none or another one: the default stream is that of a context.
  const InContext inside(events_, taken->context);
  int is_capturing = 0;
  if (!inside || streams_.is_capturing(stream, &is_capturing) != success || is_capturing != 0 ||
      streams_.record(taken->event, stream) != success)
    return nullptr;
  return taken;
}

void* StreamEvents::stream(int device) {
  if (generation_ != fork_generation()) return nullptr;
  const std::lock_guard held(lock_);
  Device& of = find(device);
  if (of.context == nullptr || of.stream != nullptr) return of.stream;
  const BesideCaptures beside(events_);
  const InContext inside(events_, of.context);
  constexpr unsigned waits_for_no_other = 1;  // CU_STREAM_NON_BLOCKING
  if (!inside || streams_.create_stream(&of.stream, waits_for_no_other) != success)
    of.stream = nullptr;
  return of.stream;
}

StreamEvents::Device& StreamEvents::find(int device) {
  const auto [at, is_new] = devices_.try_emplace(device);
  if (is_new) at->second.context = context_of(device);
  return at->second;
}

StreamEventPointer StreamEvents::take(int device) {
  const std::lock_guard held(lock_);
  Device& of = find(device);
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
  if (generation_ != fork_generation())
    return;  // the lock may be held by a thread that is not here
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
