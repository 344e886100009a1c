// Threads as ranks of one group, and the plans that they run.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "group.hpp"

namespace distdbg {

constexpr std::uint32_t slot_nbytes = 64 * 1024;
constexpr std::uint64_t cookie = 77;

inline Wait in_seconds(double seconds) {
  return {now_ns() + static_cast<std::int64_t>(seconds * 1e9), nullptr};
}

inline void run_ranks(std::uint32_t size, bool single_copy, const std::function<void(Group&)>& body,
                      std::uint32_t options = 0, std::uint32_t checksum_interval = 0) {
  // One mapping for all, since ThreadSanitizer tells memory by its address; opening it like another
  // process would is tried once below.
  const Segment segment =
      Segment::create(size, slot_nbytes, 4096, cookie, options, checksum_interval);
  const Patience patience{20, 20'000};
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      Group group(segment.alias(), r, patience, single_copy);
      group.join(in_seconds(20), {});
      body(group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline Step gate() { return {StepKind::gate, Space::input, Space::output, -1, 0, 0, 0, 0, 0}; }

inline Plan all_reduce(std::uint32_t rank, std::uint32_t size, std::uint64_t nbytes,
                       bool through_slots) {
  Plan plan;
  plan.dtype = Dtype::float32;
  plan.fingerprint = nbytes;
  plan.in_cuts = plan.out_cuts = {{0, 0, nbytes}};
  if (through_slots) {
    plan.steps = {{StepKind::copy, Space::input, Space::slot, -1, 0, 0, 0, 0, nbytes},
                  gate(),
                  {StepKind::fold_all, Space::slot, Space::output, -1, 0, 0, 0, 0, nbytes}};
  } else {
    const std::uint64_t share = nbytes / size;
    plan.steps = {gate(),
                  {StepKind::fold_all, Space::input, Space::output, -1, 0, 0, rank * share,
                   rank * share, share},
                  gate()};
    for (std::uint32_t p = 0; p < size; ++p)
      if (p != rank)
        plan.steps.push_back({StepKind::pull, Space::output, Space::output,
                              static_cast<std::int32_t>(p), 0, 0, p * share, p * share, share});
    plan.steps.push_back(gate());
  }
  plan.finish(size, slot_nbytes);
  return plan;
}

inline thread_local RecordedOp unrecorded;
inline const Describe nothing{[](void*) { return std::string("words"); }, nullptr};

inline Region region_of(std::vector<float>& x) {
  return {reinterpret_cast<std::byte*>(x.data()), x.size() * sizeof(float)};
}

}  // namespace distdbg
