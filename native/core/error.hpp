// What native code throws: facts, no prose for users.
//
// Only native/bindings/errors_py.cpp turns these into Python exceptions; the Python
// runtime adds op, group and rank names and raises the public class from them.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "checks.hpp"

namespace distdbg {

enum class Fault {
  usage,        // the caller passed something impossible
  timeout,      // the deadline passed
  peer_lost,    // a process we need is gone
  network,      // connection refused, reset, not authenticated
  store,        // the store answered with an error
  mismatch,     // ranks called different things
  broken,       // the group was broken earlier
  interrupted,  // a signal handler wants to raise; Python already holds the exception
  system,       // a system call failed
  nonfinite,    // NaN or Inf in the input of some rank, where that is looked for
  changed,      // an array changed while an asynchronous op owned it
  diverged,     // outputs that must be equal on all ranks are not
  aborted,      // somebody has ended the job; the text is what the control page says, JSON or empty
  breakpoint,   // other breakpoints are armed than this rank knows of: nothing was done, call again
};

// The status of a failed op in the record; 0 is a good end.
constexpr std::uint32_t status_of(Fault fault) { return static_cast<std::uint32_t>(fault) + 1; }

class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& what, int error_number = 0, int peer = -1)
      : std::runtime_error(what), fault_(fault), error_number_(error_number), peer_(peer) {}
  Fault fault() const { return fault_; }
  int error_number() const { return error_number_; }  // errno, or 0
  int peer() const { return peer_; }                  // group rank at fault, or -1

  // Of the op that failed, kept here because the group has gone on when an asynchronous op is asked.
  std::uint64_t seq = 0;     // 0: not known
  std::uint64_t number = 0;  // of its entry in the record; 0: none
  std::uint64_t gate = 0;    // the gate it waited at; ranks whose gate is lower had not arrived
  std::string detail;        // of what failed; '' where `what` says all
  // The words of each rank, where ranks exchanged them; then the group is still usable.
  std::shared_ptr<const std::vector<std::string>> descriptions;
  std::shared_ptr<const std::vector<Trouble>> troubles;  // nonfinite, changed, diverged: by rank

 private:
  Fault fault_;
  int error_number_;
  int peer_;
};

}  // namespace distdbg
