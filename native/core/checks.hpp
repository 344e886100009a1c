// The level of a rank, what is checked beside the calls themselves, and what a rank found out about
// its own part of an op. The names and words for it are in distdbg/check/options.py.
#pragma once

#include <cstdint>

namespace distdbg {

// A rank may change its level at any time; an op is run at the highest level that any rank publishes
// with it, so all decide alike. off: nothing is compared. info: calls are compared. detail: the
// options below are checked too.
constexpr std::uint32_t level_off = 0;
constexpr std::uint32_t level_info = 1;
constexpr std::uint32_t level_detail = 2;

// Options of a group, bits of Header::options: chosen by rank 0 when it makes the segment.
constexpr std::uint32_t check_nonfinite = 1;  // inputs are searched for NaN and Inf
constexpr std::uint32_t check_buffers = 2;    // arrays of asynchronous ops must not change
constexpr std::uint32_t check_order = 4;      // call sites are compared

// What a rank says of its arrays, bits of SlotHeader::flags.
constexpr std::uint16_t has_nonfinite_input = 1;
constexpr std::uint16_t has_changed_buffer = 2;
constexpr std::uint16_t first_is_nan = 4;  // else it is infinite
constexpr std::uint16_t has_stand_in = 8;  // an array of the user's is not contiguous
constexpr std::uint16_t cannot_read =
    16;  // when the group is made: the memory of a rank of its host
// What peers would read or write lies in its shared arrays, and it has mapped those of the peers it needs.
constexpr std::uint16_t offers_in_place = 32;
constexpr std::uint16_t is_unstaged =
    64;  // it has put nothing into its slot, as all may offer that

// One rank's part of what is wrong with the arrays of an op.
struct Trouble {
  std::uint32_t flags = 0;
  std::uint32_t array = 0;      // index of the input block it begins in
  std::uint64_t bad_count = 0;  // elements
  std::uint64_t first = 0;      // index of the first of them in that block
  std::uint64_t before = 0;     // elements of the input blocks before that one
  std::uint64_t count = 0;      // elements of all input blocks together
  std::uint64_t checksum = 0;   // of the outputs, where those are compared
};

}  // namespace distdbg
