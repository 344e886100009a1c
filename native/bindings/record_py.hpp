// A rank's record as Python and the other bindings see it: the writer, and the call sites of Python code.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bindings.hpp"
#include "record.hpp"

namespace distdbg {

// Where Python code is, as sites of one record. A stack that was seen before costs one look-up: it is
// known by its code objects and the instructions they are at, which are all that is read of the frames.
// Every call needs the GIL.
class CallSites {
 public:
  explicit CallSites(Recorder& recorder);
  ~CallSites();
  CallSites(const CallSites&) = delete;
  CallSites& operator=(const CallSites&) = delete;

  // The innermost frame outside this package, and its callers. `skip`: how many frames of this package
  // are on top at least; one too few costs some time, one too many would lose the frame that is meant.
  std::uint32_t here(int skip);

  // Frames of files below `folder` are none of the user's while they are on top: those of a library that
  // calls this package for him.
  void skip_folder(std::string folder);

 private:
  struct Frame {
    PyObject* code;
    int instruction;
    int line;
  };
  std::uint32_t intern(PyObject* top, std::uint64_t key);
  bool is_ours(PyObject* code, bool is_below_user);
  void forget();

  Recorder& recorder_;
  std::unordered_map<std::uint64_t, std::uint32_t> stacks_;
  std::vector<PyObject*> codes_;  // held, so that their addresses mean what they meant
  std::string package_;
  static inline std::vector<std::string> skipped_;  // of all records of the process; with the GIL
};

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
