// A plan as the interpreter runs it. The vocabulary, and what makes a plan right, is in
// distdbg/runtime/plan/steps.py; the numbers of the enums are the same there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtype.hpp"
#include "record.hpp"
#include "reduce.hpp"

namespace distdbg {

enum class StepKind : std::uint8_t {
  gate,
  copy,
  pull,
  fold_all,
  exchange,
  host_gate,
  fold_host,
  send,
  recv,
  fold_after,
  fold_before,
  divide,
  fold_to,
  push,
  spread,
};
constexpr int step_kind_count = 15;
enum class Space : std::uint8_t { input, output, slot, scratch };
constexpr int space_count = 4;

struct Step {
  StepKind kind;
  Space src_space;
  Space dst_space;
  std::int32_t peer;
  std::uint32_t src_block;
  std::uint32_t dst_block;
  std::uint64_t src_offset;
  std::uint64_t dst_offset;
  std::uint64_t nbytes;
  std::int32_t first =
      -1;  // of a fold of all: the rank that begins, then down the ring; -1: in their order
};

// Where a block lies: in the `view`-th array of the call, from `offset` on.
struct Cut {
  std::uint32_t view;
  std::uint64_t offset;
  std::uint64_t nbytes;
};

// The same op where what ranks read and write of each other lies in shared arrays (shared_heap.hpp): the
// steps instead of the others, from the first gate on.
struct InPlace {
  std::vector<Step> steps;  // empty: there is no such way
  // What of this rank others read or write.
  bool exposes_inputs = false;
  bool exposes_outputs = false;
  std::vector<std::uint32_t> peers;  // whose arrays this rank reads or writes; derived by `finish`
};

struct Plan {
  std::vector<Step> steps;
  InPlace in_place;
  mutable bool expects_in_place =
      false;  // all did so when it last ran; protected by the group's lock
  std::vector<Cut> in_cuts;
  std::vector<Cut> out_cuts;
  ReduceKind reduce = ReduceKind::sum;
  Dtype dtype = Dtype::uint8;
  std::uint64_t fingerprint = 0;
  std::string words;        // of the call, for a mismatch: see call_words.hpp
  mutable Form form;        // protected by the recorder
  bool goes_on = false;     // with the coalesced block of the op before: fails if that failed
  bool reads_input = true;  // this rank's input has a part in the result
  bool has_equal_outputs = false;  // the outputs are meant to be the same on all ranks
  // Derived by `finish`.
  bool exchanges = false;
  std::uint64_t scratch_nbytes = 0;
  std::uint64_t out_nbytes = 0;

  // Checks what the interpreter relies on; throws Error(Fault::usage).
  void finish(std::uint32_t size, std::uint64_t slot_nbytes);

 private:
  void finish_in_place(std::uint32_t size);
};

}  // namespace distdbg
