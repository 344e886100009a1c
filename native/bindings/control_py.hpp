// The control page as the other bindings take it: None where a rank has none.
#pragma once

#include <memory>

#include "bindings.hpp"
#include "control.hpp"

namespace distdbg {

// A rank's hold on the page; shared with its groups, which may outlive it.
struct ControlHandle {
  std::shared_ptr<const Control> control;
};

inline const Control& control_of(const ControlHandle* handle) {
  return handle != nullptr ? *handle->control : Control::none();
}

}  // namespace distdbg
