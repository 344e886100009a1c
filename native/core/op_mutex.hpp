// The lock that lets the ops of a group run one after the other. It knows the thread that has it: what a
// signal handler calls within that thread's op would wait for itself.
#pragma once

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace distdbg {

class OpMutex {
 public:
  void lock() {
    mutex_.lock();
    note_holder();
  }
  bool try_lock() { return mutex_.try_lock() && note_holder(); }
  template <class Duration>
  bool try_lock_for(const Duration& duration) {
    return mutex_.try_lock_for(duration) && note_holder();
  }
  void unlock() {
    holder_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }
  bool is_held_by_this_thread() const {
    return holder_.load(std::memory_order_relaxed) == ::pthread_self();
  }

 private:
  bool note_holder() {
    holder_.store(::pthread_self(), std::memory_order_relaxed);
    return true;
  }

  std::timed_mutex mutex_;
  std::atomic<pthread_t> holder_{};
};

}  // namespace distdbg
