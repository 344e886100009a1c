// How a thread asks CUDA's driver beside a program that does other things with it.
#pragma once

#include "event_reader.hpp"

namespace distdbg {

// The context of a device, for the calls of this thread; then the one from before.
class InContext {
 public:
  InContext(const CudaEvents& cuda, void* context) : cuda_(cuda) {
    if (cuda_.get_current(&before_) != CudaEvents::success) return;
    is_inside_ = before_ == context || cuda_.set_current(context) == CudaEvents::success;
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

// What is asked and made meanwhile is no part of a graph that any thread captures.
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

}  // namespace distdbg
