// An op that somebody may still wait for: shared by the submitter and whoever carries it out.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "clock.hpp"
#include "error.hpp"
#include "record.hpp"
#include "region.hpp"

namespace distdbg {

struct Op {
  std::int64_t deadline_ns = no_deadline;  // job time, as of when it was issued
  std::int64_t submitted_ns = 0;           // of the monotonic clock; of a collective
  int source = -1;                         // of a finished recv
  std::int64_t ended_ns = 0;               // of the monotonic clock, where it was just asked
  std::int64_t ran_ns = -1;                // by a device's clock; -1: it did not measure
  std::exception_ptr error;                // written before `is_done`
  std::atomic<bool> is_done{false};
  // Of ops that have no Group::run to record their end.
  Recorder* recorder = nullptr;
  RecordedOp recorded;
  std::uint64_t number = 0;  // of the entry
  std::uint32_t site = 0;    // where it was called, for the recorder
  bool is_left_written =
      false;  // it failed, and a peer may still write to its arrays; see peer_memory.cpp
  bool is_plain = false;  // for the submitter: nothing is left to do when it has gone well

  // Of an op whose arrays are sampled (see buffer_guard.hpp): its number in its group, its outputs and what
  // they were when it ended, and whether what it reads in place changed before it started. Written
  // before `is_done`.
  bool is_sampled = false;
  bool has_changed_early = false;
  std::uint64_t issued = 0;
  std::vector<Region> outputs;
  std::uint64_t ended_sample = 0;

  // What the other side of a mismatched message had, for the error's text.
  std::uint64_t peer_nbytes = 0;
  int peer_dtype = -1;

  bool done() const { return is_done.load(std::memory_order_acquire); }
  void finish(std::exception_ptr e = nullptr) {
    error = std::move(e);
    if (recorder != nullptr) end_record();
    is_done.store(true, std::memory_order_release);
  }
  void rethrow() const {
    if (error) std::rethrow_exception(error);
  }

 private:
  void end_record() {
    std::uint32_t status = 0;
    try {
      rethrow();
    } catch (const Error& e) {
      status = status_of(e.fault());
    } catch (const std::exception&) {
      status = status_of(Fault::system);
    }
    if (status == 0 && ran_ns >= 0) return recorder->ended_after(recorded, ran_ns, source);
    recorder->ended(recorded, status, source, ended_ns);
  }
};

using OpPointer = std::shared_ptr<Op>;

}  // namespace distdbg
