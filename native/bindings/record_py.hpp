// A rank's record as Python and the other bindings see it.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bindings.hpp"
#include "call_sites.hpp"
#include "record.hpp"

namespace distdbg {

class RecorderHandle {
 public:
  RecorderHandle(std::shared_ptr<Recorder> writer)
      : recorder(std::move(writer)), sites(std::make_unique<CallSites>(*recorder)) {}

  // Null in a forked child: the record is its parent's, and its lock may be held by a thread that did
  // not come along.
  Recorder* writer() const { return recorder->is_forked() ? nullptr : recorder.get(); }

  // Before each op, mark and span, with the GIL: asks in which span of the user's traces this thread is,
  // if anybody is to be asked. May throw what a signal handler has raised; nothing has begun then.
  void look_at_context() {
    if (ask_context_.is_valid()) [[unlikely]]
      write_context();
  }
  // `ask` is called with the number of the last event, once `module` is loaded; it returns None where
  // nothing has changed. None: nobody is asked any more.
  void set_context_source(nb::object ask, nb::str module);

  const std::shared_ptr<Recorder> recorder;
  const std::unique_ptr<CallSites> sites;
  bool has_raised = false;  // said so by set_exit: what comes later is a consequence

 private:
  void write_context();

  nb::object ask_context_;  // not valid: nobody; see distdbg/runtime/recorder/trace_context.py
  nb::object context_module_;
};

}  // namespace distdbg
