// Plans as Python makes them and the bindings keep them.
#pragma once

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "error.hpp"
#include "plan.hpp"
#include "view.hpp"

namespace distdbg {

using StepTuple = std::tuple<int, int, int, std::uint32_t, std::uint64_t, int, std::uint32_t,
                             std::uint64_t, std::uint64_t, std::int32_t>;
using CutTuple = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>;

struct CompiledPlan {
  std::shared_ptr<const Plan> plan;
  std::uint32_t in_views = 0;
  std::uint32_t out_views = 0;
};

template <class Enum>
Enum checked(int value, int count) {
  if (value < 0 || value >= count) throw Error(Fault::usage, "bad plan: number out of range");
  return static_cast<Enum>(value);
}

// Steps as Python writes them.
inline std::vector<Step> compile_steps(const std::vector<StepTuple>& steps) {
  std::vector<Step> compiled;
  for (const auto& [kind, peer, src, src_block, src_offset, dst, dst_block, dst_offset, nbytes,
                    first] : steps)
    compiled.push_back({checked<StepKind>(kind, step_kind_count), checked<Space>(src, space_count),
                        checked<Space>(dst, space_count), peer, src_block, dst_block, src_offset,
                        dst_offset, nbytes, first});
  return compiled;
}

// The way in shared arrays, if any: its steps, and whether peers use this rank's inputs and outputs.
using InPlaceTuple = std::tuple<std::vector<StepTuple>, bool, bool>;

inline CompiledPlan compile(const std::vector<StepTuple>& steps,
                            const std::vector<CutTuple>& in_cuts,
                            const std::vector<CutTuple>& out_cuts, int reduce, int dtype,
                            std::uint64_t fingerprint, std::uint32_t size,
                            std::uint64_t slot_nbytes, const nb::bytes& words, const Form& form,
                            bool goes_on, bool reads_input, bool has_equal_outputs,
                            const InPlaceTuple& in_place) {
  auto plan = std::make_shared<Plan>();
  CompiledPlan compiled;
  plan->steps = compile_steps(steps);
  const auto& [steps_in_place, exposes_inputs, exposes_outputs] = in_place;
  plan->in_place = {compile_steps(steps_in_place), exposes_inputs, exposes_outputs, {}};
  const auto cut = [](const std::vector<CutTuple>& from, std::vector<Cut>& to) {
    std::uint32_t views = 0;
    for (const auto& [view, offset, nbytes] : from) {
      to.push_back({view, offset, nbytes});
      views = std::max(views, view + 1);
    }
    return views;
  };
  compiled.in_views = cut(in_cuts, plan->in_cuts);
  compiled.out_views = cut(out_cuts, plan->out_cuts);
  plan->reduce = checked<ReduceKind>(reduce, reduce_kind_count);
  plan->dtype = checked<Dtype>(dtype, dtype_count);
  plan->fingerprint = fingerprint;
  plan->words.assign(words.c_str(), words.size());
  plan->form = form;
  plan->goes_on = goes_on;
  plan->reads_input = reads_input;
  plan->has_equal_outputs = has_equal_outputs;
  plan->finish(size, slot_nbytes);
  compiled.plan = std::move(plan);
  return compiled;
}

// A call as the bindings see it. The handles are borrowed from the caller's frame.
struct CallHandles {
  nb::handle call;
  nb::handle inputs;
  nb::handle outputs;
};

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

// The plans of a group, found again by what they depend on: the kind, op and root, dtype and shape of
// every array, and `extra` (distdbg/ops/call.py). A negative one says not to keep the plan: calls
// with split sizes, which change with every call.
class Plans {
 public:
  const CompiledPlan& find(std::uint64_t code, const CallHandles& handles, nb::handle make,
                           std::int64_t extra) {
    if (extra < 0)
      return last_ = nb::cast<CompiledPlan>(make(handles.call, handles.inputs, handles.outputs));
    const std::string_view key = key_of(code, handles, extra);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    const std::string kept_key(key);  // `make` is Python and may come back here
    CompiledPlan made = nb::cast<CompiledPlan>(make(handles.call, handles.inputs, handles.outputs));
    // A program that never repeats a size must not grow without bound.
    if (plans_.size() >= most) plans_.clear();
    return plans_.insert_or_assign(kept_key, std::move(made)).first->second;
  }

  // Without making one.
  CompiledPlan look_up(std::uint64_t code, const CallHandles& handles, std::int64_t extra) {
    if (extra < 0) return {};
    const auto found = plans_.find(key_of(code, handles, extra));
    return found != plans_.end() ? found->second : CompiledPlan{};
  }

 private:
  static constexpr std::size_t most = 1024;
  std::string_view key_of(std::uint64_t code, const CallHandles& handles, std::int64_t extra) {
    key_.clear();
    key_.push_back(code);
    key_.push_back(static_cast<std::uint64_t>(extra));
    add(handles.inputs);
    if (!handles.outputs.is(handles.inputs)) add(handles.outputs);
    return {reinterpret_cast<const char*>(key_.data()), key_.size() * sizeof(std::uint64_t)};
  }
  void add(nb::handle views) {
    const std::size_t count = nb::len(views);
    key_.push_back(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto& view = nb::cast<const View&>(views[i]);
      const auto dimensions = view.dimensions();
      key_.push_back(static_cast<std::uint64_t>(view.dtype_code() + 1) << 8 | dimensions.size());
      for (const Py_ssize_t size : dimensions) key_.push_back(static_cast<std::uint64_t>(size));
    }
  }

  std::vector<std::uint64_t> key_;
  std::unordered_map<std::string, CompiledPlan, StringHash, std::equal_to<>> plans_;
  CompiledPlan last_;
};

}  // namespace distdbg
