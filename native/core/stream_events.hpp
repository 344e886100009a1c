// Events of our own in a GPU's streams, around ops that another library queues there. What the reader
// (event_reader.hpp) sees of them is when the device began and ended such an op.
//
//   the caller's stream   ...  record()  the op is queued  ...
//   what waits for it     ...            the op's end      record()
//
// An event is used again when nobody has it any more.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "event_reader.hpp"

namespace distdbg {

// Of libcuda, by its public ABI; beside CudaEvents.
struct CudaStreams {
  int (*create)(void** event, unsigned flags) = nullptr;
  int (*record)(void* event, void* stream) = nullptr;
  int (*is_capturing)(void* stream, int* status) = nullptr;
  int (*get_device)(int* device, int ordinal) = nullptr;
  int (*retain)(void** context, int device) = nullptr;
  int (*create_stream)(void** stream, unsigned flags) = nullptr;
};

// Throws Error(Fault::network) with the linker's words where the library or one of its functions is missing.
CudaStreams open_cuda_streams(const std::string& path);

struct StreamEvent {
  void* context;
  void* event;
};
using StreamEventPointer = std::shared_ptr<const StreamEvent>;

// Of all devices of this process. Any thread may use it.
class StreamEvents : public std::enable_shared_from_this<StreamEvents> {
 public:
  StreamEvents(const CudaEvents& events, const CudaStreams& streams)
      : events_(events), streams_(streams) {}

  // Behind all that is queued in this stream. Null: nobody can tell when that is, because a graph is captured, the
  // driver refuses, so many ops are in flight already, or this is a forked child.
  StreamEventPointer record(int device, void* stream);
  // One of our own, in which nothing else is queued: it waits for what it is told to wait for. Null: there is none.
  void* stream(int device);

 private:
  static constexpr std::size_t most_in_use = 8192;
  struct Device {
    void* context = nullptr;  // null: there is none
    void* stream = nullptr;   // ours
    std::vector<void*> free;
    std::size_t in_use = 0;
  };

  Device& find(int device);
  StreamEventPointer take(int device);
  void give_back(int device, void* event);
  void* context_of(int device) const;
  void* create() const;

  const CudaEvents events_;
  const CudaStreams streams_;
  const std::uint32_t generation_ = fork_generation();
  std::mutex lock_;  // protects the rest
  std::unordered_map<int, Device> devices_;
};

}  // namespace distdbg
