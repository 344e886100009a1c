// Writes into the record when a GPU has started and ended an op: a thread asks the driver for the events around
// it. The driver is opened at run time, and no header of it is needed to build. No host thread blocks for it,
// and none has to run Python.
//
//   watch      stream of the op --begin--> ...the op... --end-->
//   reader     begin passed: started.   end passed: ended, status 0.   anything else: let go of, others tell why
//
// What is seen is late by up to the time between two looks. How long the op took, the device has measured: when it
// ends, its start is set so long before, where the events were made with their times.
//
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "fork.hpp"
#include "record.hpp"

namespace distdbg {

// Of libcuda, by its public ABI.
struct CudaEvents {
  static constexpr int success = 0, not_ready = 600, relaxed = 2;
  int (*query)(void* event) = nullptr;
  int (*get_current)(void** context) = nullptr;
  int (*set_current)(void* context) = nullptr;
  int (*elapsed)(float* ms, void* begin, void* end) = nullptr;
  // May be missing: what this thread's calls mean to a capture of a graph by another thread.
  int (*exchange_capture_mode)(int* mode) = nullptr;
};

// Throws Error(Fault::network) with the linker's words where the library or one of its functions is missing.
CudaEvents open_cuda_events(const std::string& path);

// Where an op lies in its device's streams.
struct WatchedEvents {
  void* context = nullptr;
  void* begin = nullptr;
  void* end = nullptr;  // null: it is not watched
  // The end of the op before it, which must have passed as well for this one to start; null: it waits for none.
  void* previous = nullptr;
  // What they belong to; where these are null, whoever watches keeps the events until `stop_watching`.
  std::shared_ptr<const void> keep[3];
};

// An op whose events are read. Any thread may use it.
class WatchedOp {
 public:
  WatchedOp(std::shared_ptr<Recorder> recorder, const RecordedOp& op)
      : recorder_(std::move(recorder)), op_(op) {}
  void started();
  void ended(std::uint32_t status, int source);
  // Nobody asks for the events any more when this returns.
  void stop_watching();
  // It is broken off, unless its device has done it by now. Then the device lets go of it, as if it were done.
  void broken_off(std::uint32_t status);
  bool has_ended();  // in the record

 private:
  friend class EventReader;
  enum class Look { over, waits, is_behind };
  // `behind`: the ends of ops that wait, or are behind one that does; this one need not be asked for then.
  Look look(std::unordered_set<const void*>& behind);
  void end_well(int source);
  bool has_begun() const;
  float ran_ms() const;  // below 0: the device did not measure

  std::mutex lock_;  // protects the rest; held while the driver is asked
  const std::shared_ptr<Recorder> recorder_;
  RecordedOp op_;
  const std::uint64_t number_ = op_.number;  // also when it has ended
  CudaEvents cuda_;
  WatchedEvents events_;
  int source_ = -1;
  std::int64_t since_ns_ = 0;
};

class EventReader {
 public:
  explicit EventReader(const CudaEvents& cuda) : cuda_(cuda) {}
  ~EventReader() { close(); }
  EventReader(const EventReader&) = delete;
  EventReader& operator=(const EventReader&) = delete;

  // From now on. `source` is written where the op ends well. False: it is closed, or its thread is the parent's.
  bool watch(const std::shared_ptr<WatchedOp>& op, WatchedEvents events, int source);
  // The same in the context of the calling thread.
  bool watch(const std::shared_ptr<WatchedOp>& op, void* begin, void* end, int source);
  // Ends the thread, after a last look; what is watched is left to others.
  void close();

 private:
  void work();

  const CudaEvents cuda_;
  const std::uint32_t generation_ = fork_generation();
  std::mutex lock_;  // protects the rest
  std::condition_variable changed_;
  std::vector<std::shared_ptr<WatchedOp>> ops_;
  bool is_closed_ = false;
  std::thread thread_;
};

}  // namespace distdbg
