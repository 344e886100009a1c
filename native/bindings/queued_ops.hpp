// Ops of another library that a GPU has in its queues when their call returns: when the device began and ended
// them, by events around them (stream_events.hpp).
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "bindings.hpp"
#include "stream_events.hpp"

namespace distdbg {

class QueuedOps;

// Where an op began.
struct QueuedBegin {
  std::shared_ptr<QueuedOps> ops;  // null: its device tells nothing of it
  StreamEventPointer event;
  int device = -1;
  std::thread::id thread;

  explicit operator bool() const { return event != nullptr; }
};

// Those of one group. With the GIL, which is not held where the driver may keep a thread waiting.
class QueuedOps : public std::enable_shared_from_this<QueuedOps> {
 public:
  // `current_stream(device)`: the address of the stream in which this thread works.
  QueuedOps(std::shared_ptr<StreamEvents> events, std::shared_ptr<EventReader> reader,
            nb::object current_stream)
      : events_(std::move(events)),
        reader_(std::move(reader)),
        current_stream_(std::move(current_stream)) {}

  // Before the op is queued, on the thread that does it.
  QueuedBegin begin(int device) {
    QueuedBegin begin;
    begin.event = device < 0 || is_in_block ? nullptr : record(device);
    if (!begin.event) return begin;
    begin.ops = shared_from_this();
    begin.device = device;
    begin.thread = std::this_thread::get_id();
    return begin;
  }

  // Its device gets ops together, when this is over: what is begun meanwhile has no place in a stream yet.
  bool is_in_block = false;

  // Behind it: the stream in which this thread works has to wait for the op. Null: another thread has seen its end,
  // or no event can be recorded any more. Collectives follow each other on the device; messages need not.
  std::shared_ptr<WatchedOp> end(const std::shared_ptr<Recorder>& recorder, const RecordedOp& op,
                                 const QueuedBegin& begin, int source, bool is_message) {
    if (begin.thread != std::this_thread::get_id()) return nullptr;
    StreamEventPointer end = record(begin.device);
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
    if (!is_message) {
      if (last_ && last_->context == end->context) {
        around.previous = last_->event;
        around.keep[2] = std::move(last_);
      }
      last_ = std::move(end);
    }
    reader_->watch(watched, std::move(around), source);
    while (!queued_.empty() && queued_.front()->has_ended()) queued_.pop_front();
    queued_.push_back(watched);
    return watched;
  }

  // The group is given up: what its device has not done by now has ended like this.
  void broken_off(std::uint32_t status) {
    const ReleaseGil released;
    const std::lock_guard held(lock_);
    for (const auto& op : std::exchange(queued_, {})) op->broken_off(status);
  }

 private:
  StreamEventPointer record(int device) const {
    void* stream = nullptr;
    try {
      stream = PyLong_AsVoidPtr(current_stream_(device).ptr());
    } catch (nb::python_error&) {  // its end is told as if it had no device
      return nullptr;
    }
    return events_->record(device, stream);
  }

  const std::shared_ptr<StreamEvents> events_;
  const std::shared_ptr<EventReader> reader_;
  const nb::object current_stream_;
  std::mutex lock_;  // protects the rest
  StreamEventPointer last_;
  std::deque<std::shared_ptr<WatchedOp>> queued_;
};

}  // namespace distdbg
