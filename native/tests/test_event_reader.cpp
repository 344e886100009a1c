// The thread that reads when a GPU has started and ended an op, beside threads that add, end and let go of ops.
// The driver is played by functions here: an event is a flag.
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "check.hpp"
#include "stream_events.hpp"

namespace distdbg {
namespace {

struct Event {
  std::atomic<int> status{CudaEvents::not_ready};
  std::atomic<bool> is_freed{false};
};

int context = 0;
thread_local void* current = nullptr;
std::atomic<int> asked_without_context{0}, asked_when_freed{0};

// Threads that have said that they end no capture.
std::atomic<int> relaxed_threads = 0;

int exchange_capture_mode(int* mode) {
  relaxed_threads += *mode == CudaEvents::relaxed;
  return CudaEvents::success;
}

int query(void* event) {
  auto* const it = static_cast<Event*>(event);
  if (current != &context) ++asked_without_context;
  if (it->is_freed) ++asked_when_freed;
  return it->status;
}

int get_current(void** found) {
  *found = current;
  return CudaEvents::success;
}

int set_current(void* it) {
  current = it;
  return CudaEvents::success;
}

int elapsed(float* ms, void* begin, void* end) {
  for (void* event : {begin, end})
    if (const int status = query(event); status != CudaEvents::success) return status;
  *ms = 0.001F;
  return CudaEvents::success;
}

// A driver has them until the process ends.
std::mutex making;
std::deque<Event> made;

int create(void** event, unsigned) {
  const std::lock_guard held(making);
  *event = &made.emplace_back();
  return CudaEvents::success;
}

// Each event passes at once.
int record(void* event, void*) {
  static_cast<Event*>(event)->status = CudaEvents::success;
  return CudaEvents::success;
}

int is_capturing(void*, int* status) {
  *status = 0;
  return CudaEvents::success;
}

int get_device(int* device, int ordinal) {
  *device = ordinal;
  return CudaEvents::success;
}

int retain(void** found, int) {
  *found = &context;
  return CudaEvents::success;
}

const CudaStreams streams{create, record, is_capturing, get_device, retain};
const CudaEvents driver{query, get_current, set_current, elapsed, exchange_capture_mode};

class Job {
 public:
  Job() {
    current = &context;
    group_ = recorder_->add_group({"group", "", "", "nccl", 1, 0, 0, 0});
    form_.name = "all_reduce";
    form_.kind = 1;
  }
  std::shared_ptr<WatchedOp> begin() {
    OpFacts facts;
    facts.group = group_;
    facts.seq = ++seq_;
    facts.issued_ns = 1;
    return std::make_shared<WatchedOp>(recorder_, recorder_->begin(facts, form_));
  }

 private:
  std::shared_ptr<Recorder> recorder_ = Recorder::in_memory({}, 1024);
  Form form_;
  std::uint64_t group_ = 0;
  std::uint64_t seq_ = 0;
};

// In time that no machine needs.
template <class Condition>
bool comes(Condition condition) {
  for (int i = 0; i < 20'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

void the_end_is_read() {
  Job job;
  Event ready;
  Event end;
  EventReader reader(driver);
  const auto op = job.begin();
  reader.watch(op, &ready, &end, -1);
  CHECK(!op->has_ended());
  ready.status = CudaEvents::success;
  end.status = CudaEvents::success;
  CHECK(comes([&op] { return op->has_ended() && op.use_count() == 1; }));
}

void what_failed_is_left_to_others() {
  Job job;
  Event ready;
  Event end;
  EventReader reader(driver);
  const auto op = job.begin();
  reader.watch(op, &ready, &end, -1);
  end.status = 700;
  CHECK(comes([&op] { return op.use_count() == 1; }));
  CHECK(!op->has_ended());
}

void events_are_not_asked_when_they_are_freed() {
  Job job;
  EventReader reader(driver);
  std::vector<std::thread> threads;
  std::mutex begins;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&job, &reader, &begins, t] {
      current = &context;
      for (int i = 0; i < 300; ++i) {
        Event ready;
        Event end;
        std::shared_ptr<WatchedOp> op;
        {
          const std::lock_guard held(begins);
          op = job.begin();
        }
        reader.watch(op, &ready, &end, -1);
        ready.status = CudaEvents::success;
        if (i % 3 != 0) end.status = CudaEvents::success;
        if (i % 7 == 0) std::this_thread::yield();
        if ((i + t) % 2 == 0)
          op->ended(i % 4 == 0 ? 0 : 3, -1);
        else
          op->stop_watching();
        ready.is_freed = true;
        end.is_freed = true;
      }
    });
  for (auto& thread : threads) thread.join();
  reader.close();
  CHECK(asked_when_freed == 0);
  CHECK(asked_without_context == 0);
  CHECK(relaxed_threads > 0);
}

void threads_share_events() {
  Job job;
  EventReader reader(driver);
  const auto events = std::make_shared<StreamEvents>(driver, streams);
  std::vector<std::thread> threads;
  std::mutex begins;
  std::atomic<int> unfinished = 0;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      StreamEventPointer last;
      for (int i = 0; i < 300; ++i) {
        std::shared_ptr<WatchedOp> op;
        {
          const std::lock_guard held(begins);
          op = job.begin();
        }
        const StreamEventPointer begin = events->record(0, nullptr);
        StreamEventPointer end = events->record(0, nullptr);
        CHECK(begin != nullptr && end != nullptr);
        WatchedEvents around;
        around.context = end->context;
        around.begin = begin->event;
        around.end = end->event;
        around.keep[0] = begin;
        around.keep[1] = end;
        if (last) {
          around.previous = last->event;
          around.keep[2] = last;
        }
        last = std::move(end);
        reader.watch(op, std::move(around), -1);
        if ((i + t) % 5 == 0) op->broken_off(3);
        if (i % 50 == 49 && !comes([&op] { return op->has_ended(); })) ++unfinished;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(unfinished == 0);
  reader.close();
  CHECK(asked_without_context == 0);
}

void nothing_is_watched_after_close() {
  Job job;
  Event end;
  EventReader reader(driver);
  reader.close();
  end.status = CudaEvents::success;
  const auto op = job.begin();
  reader.watch(op, nullptr, &end, -1);
  CHECK(op.use_count() == 1);
}

}  // namespace
}  // namespace distdbg

int main() {
  distdbg::the_end_is_read();
  distdbg::what_failed_is_left_to_others();
  distdbg::events_are_not_asked_when_they_are_freed();
  distdbg::threads_share_events();
  distdbg::nothing_is_watched_after_close();
}
