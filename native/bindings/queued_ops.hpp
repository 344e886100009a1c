// Ops of another library that a GPU has in its queues when their call returns: when the device began and ended
// them, by events around them (stream_events.hpp).
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "stream_events.hpp"

namespace distdbg {

class QueuedOps;

// Where an op began.
struct QueuedBegin {
  std::shared_ptr<QueuedOps> ops;  // null: its end is when its library says so
  StreamEventPointer event;        // null: its device tells nothing of it
  int device = -1;
};

// Those of one group. With the GIL, which is not held where the driver may keep a thread waiting.
class QueuedOps : public std::enable_shared_from_this<QueuedOps> {
 public:
  // As distdbg/torch_bridge/tap/queued.py numbers them: ops without an array, on the host, on devices without events.
  static constexpr int nowhere = -1, host = -2;

  // `current_stream(device)`: the address of the stream in which this thread works. `wait_in(address, device, future)`
  // has a stream wait for what a future is done with. Null and none: no device tells anything.
  QueuedOps(std::shared_ptr<StreamEvents> events, std::shared_ptr<EventReader> reader,
            nb::object current_stream, nb::object wait_in)
      : events_(std::move(events)),
        reader_(std::move(reader)),
        current_stream_(std::move(current_stream)),
        wait_in_(std::move(wait_in)) {}

  // Directly before the op is queued, on the thread that does it. The host waits itself for the end of one that has
  // no array, unless it is asynchronous.
  QueuedBegin begin(int device, bool is_async) {
    if (device == host || (device == nowhere && !is_async)) return {};
    QueuedBegin begin{shared_from_this(), nullptr, device};
    if (device >= 0 && !is_in_block) begin.event = record(device);
    return begin;
  }

  // Its device gets ops together, when this is over: what is begun meanwhile has no place in a stream yet.
  bool is_in_block = false;

  // Behind it: the stream in which this thread works has to wait for the op. Null: its device will not tell its end.
  // Collectives follow each other on the device; messages need not.
  std::shared_ptr<WatchedOp> end(const std::shared_ptr<Recorder>& recorder, const RecordedOp& op,
                                 const QueuedBegin& begin, int source, bool is_message) {
    if (!begin.event) return nullptr;
    return watch(recorder, op, begin, record(begin.device), source, is_message);
  }

  // The same in a stream of our own, once `future` is done with having queued the op.
  std::shared_ptr<WatchedOp> end_behind(nb::handle future,
                                        const std::shared_ptr<Recorder>& recorder,
                                        const RecordedOp& op, const QueuedBegin& begin,
                                        bool is_message) {
    void* const stream = begin.event ? events_->stream(begin.device) : nullptr;
    if (stream == nullptr) return nullptr;
    wait_in_(reinterpret_cast<std::uintptr_t>(stream), begin.device, future);
    StreamEventPointer end;
    {
      const ReleaseGil released;
      end = events_->record(begin.device, stream);
    }
    return watch(recorder, op, begin, std::move(end), -1, is_message);
  }

  // The group is given up: what its device has not done by now has ended like this, and so has what is queued later.
  void broken_off(std::uint32_t status) {
    const ReleaseGil released;
    const std::lock_guard held(lock_);
    if (broken_off_ == 0) broken_off_ = status;
    for (const auto& op : std::exchange(queued_, {})) op->broken_off(status);
  }

 private:
  // Behind what is queued in the stream of this thread.
  StreamEventPointer record(int device) const {
    if (!events_) return nullptr;
    void* stream = nullptr;
    try {
      stream = PyLong_AsVoidPtr(current_stream_(device).ptr());
    } catch (nb::python_error&) {  // its end is told as if it had no device
      return nullptr;
    }
    const ReleaseGil released;  // the driver waits where its queue is full
    return events_->record(device, stream);
  }

  std::shared_ptr<WatchedOp> watch(const std::shared_ptr<Recorder>& recorder, const RecordedOp& op,
                                   const QueuedBegin& begin, StreamEventPointer end, int source,
                                   bool is_message) {
    if (!end) return nullptr;
    WatchedEvents around;
    around.context = end->context;
    around.begin = begin.event->event;
    around.end = end->event;
    around.keep[0] = begin.event;
    around.keep[1] = end;
    auto watched = std::make_shared<WatchedOp>(recorder, op);
    const ReleaseGil released;
    const std::lock_guard held(lock_);
    if (broken_off_ != 0) {
      watched->ended(broken_off_, -1);
      return watched;
    }
    if (!is_message) {
      if (last_ && last_->context == end->context) {
        around.previous = last_->event;
        around.keep[2] = last_;
      }
      last_ = std::move(end);
    }
    if (!reader_->watch(watched, std::move(around), source)) return nullptr;
    if (queued_.size() >= next_sweep_) {
      std::erase_if(queued_, [](const auto& each) { return each->has_ended(); });
      next_sweep_ = std::max<std::size_t>(least_sweep, 2 * queued_.size());
    }
    queued_.push_back(watched);
    return watched;
  }

  static constexpr std::size_t least_sweep = 64;
  const std::shared_ptr<StreamEvents> events_;
  const std::shared_ptr<EventReader> reader_;
  const nb::object current_stream_;
  const nb::object wait_in_;
  std::mutex lock_;  // protects the rest
  StreamEventPointer last_;
  std::uint32_t broken_off_ = 0;
  std::size_t next_sweep_ = least_sweep;
  std::vector<std::shared_ptr<WatchedOp>> queued_;
};

// An op in the record, which may end on its device. With the GIL.
struct QueuedEnd {
  QueuedBegin begin;
  std::shared_ptr<WatchedOp> watched;  // its device ends it
  bool is_message = false;

  // Its call has come to its end. True: all that there is to write is written, or will be. `op`: as it is in the record.
  bool take(Recorder& writer, const std::shared_ptr<Recorder>& recorder, const RecordedOp& op,
            std::uint32_t status, int source) {
    if (watched) {
      if (status == 0) return true;  // its device tells
      const auto keep = watched;
      const ReleaseGil released;  // the reader holds its lock while it asks the driver
      keep->ended(status, source);
      return true;
    }
    if (!begin.ops || status != 0 || op.number == 0) return false;
    watched = begin.ops->end(recorder, op, begin, source, is_message);
    if (watched) return true;
    writer.set_end_queued(op);
    return false;
  }
  // Its library says that its device has done it.
  void leave() {
    if (!watched) begin = {};
  }
  // Its future is done with having queued it.
  bool take_behind(nb::handle future, Recorder& writer, const std::shared_ptr<Recorder>& recorder,
                   const RecordedOp& op) {
    if (watched || op.number == 0) return true;
    if (begin.ops) watched = begin.ops->end_behind(future, recorder, op, begin, is_message);
    if (!watched) writer.set_end_queued(op);
    return watched != nullptr;
  }
};

}  // namespace distdbg
