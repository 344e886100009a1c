// A group's data plane as Python sees it: one object that holds the group, its asynchronous
// collectives and its messages. No policy here; distdbg/runtime/backends/cpu.py has that.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "bindings.hpp"
#include "group.hpp"
#include "p2p.hpp"
#include "runner.hpp"
#include "view.hpp"

namespace distdbg {

namespace {

using StepTuple = std::tuple<int, int, int, std::uint32_t, std::uint64_t, int, std::uint32_t,
                             std::uint64_t, std::uint64_t>;
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

CompiledPlan compile(const std::vector<StepTuple>& steps, const std::vector<CutTuple>& in_cuts,
                     const std::vector<CutTuple>& out_cuts, int reduce, int dtype,
                     std::uint64_t fingerprint, std::uint32_t size, std::uint64_t slot_nbytes) {
  auto plan = std::make_shared<Plan>();
  CompiledPlan compiled;
  for (const auto& [kind, peer, src, src_block, src_offset, dst, dst_block, dst_offset, nbytes] :
       steps)
    plan->steps.push_back({checked<StepKind>(kind, 5), checked<Space>(src, 3),
                           checked<Space>(dst, 3), peer, src_block, dst_block, src_offset,
                           dst_offset, nbytes});
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
  plan->finish(size, slot_nbytes);
  compiled.plan = std::move(plan);
  return compiled;
}

// Views of a call as regions: on the stack for the usual few, so that the hot path allocates nothing.
class Regions {
 public:
  Regions(nb::handle views, const std::vector<Cut>& cuts, std::uint32_t needed) {
    const std::size_t count = nb::len(views);
    if (count < needed) throw Error(Fault::usage, "fewer arrays than the plan needs");
    Region* into = few_.data();
    if (count > few_.size()) {
      many_.resize(count);
      into = many_.data();
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto& view = nb::cast<const View&>(views[i]);
      into[i] = {view.data(), view.nbytes()};
      is_stand_in_ |= !view.finish.is_none();
    }
    regions_ = {into, count};
    for (const Cut& cut : cuts) {
      const std::uint64_t nbytes = regions_[cut.view].nbytes;
      if (cut.offset > nbytes || cut.nbytes > nbytes - cut.offset)
        throw Error(Fault::usage, "an array is smaller than its plan");
    }
  }
  Regions(const Regions&) = delete;
  std::span<const Region> span() const { return regions_; }
  bool is_stand_in() const { return is_stand_in_; }
  std::vector<Region> copy() const { return {regions_.begin(), regions_.end()}; }

 private:
  std::array<Region, 4> few_{};
  std::vector<Region> many_;
  bool is_stand_in_ = false;
  std::span<Region> regions_;
};

// A call as the bindings see it: its arrays, and the Python functions that know the rest of it. All
// three handles are borrowed from the caller's frame.
struct CallHandles {
  nb::handle call;
  nb::handle inputs;
  nb::handle outputs;
  nb::handle describe;  // describe(call, inputs, outputs) -> bytes

  std::string words() const {
    const nb::bytes text = nb::cast<nb::bytes>(describe(call, inputs, outputs));
    return {text.c_str(), text.size()};
  }
};

// From Group::run, on the thread that called GroupHandle::run: Python's own, so it may take the GIL.
std::string call_describe(void* context) {
  const nb::gil_scoped_acquire gil;
  try {
    return static_cast<const CallHandles*>(context)->words();
  } catch (const std::exception&) {
    PyErr_Clear();
    return {};
  }
}

// The plans of a group, found again by what they depend on: the kind, op and root, and dtype and shape
// of every array. Only calls with split sizes are not kept: those change with every call.
class Plans {
 public:
  const CompiledPlan& find(std::uint64_t code, const CallHandles& handles, nb::handle make,
                           bool is_kept) {
    if (!is_kept) return last_ = nb::cast<CompiledPlan>(make(handles.call, handles.inputs, handles.outputs));
    key_.clear();
    key_.push_back(code);
    add(handles.inputs);
    if (!handles.outputs.is(handles.inputs)) add(handles.outputs);
    const std::string_view key(reinterpret_cast<const char*>(key_.data()),
                               key_.size() * sizeof(std::uint64_t));
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    const std::string kept_key(key);  // `make` is Python and may come back here
    CompiledPlan made = nb::cast<CompiledPlan>(make(handles.call, handles.inputs, handles.outputs));
    // A program that never repeats a size must not grow without bound.
    if (plans_.size() >= most) plans_.clear();
    return plans_.insert_or_assign(kept_key, std::move(made)).first->second;
  }

 private:
  static constexpr std::size_t most = 1024;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

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
  std::unordered_map<std::string, CompiledPlan, Hash, std::equal_to<>> plans_;
  CompiledPlan last_;
};

class GroupHandle {
 public:
  GroupHandle(Segment segment, std::uint32_t rank, std::uint32_t spins, std::int64_t yield_ns,
              bool single_copy)
      : group_(std::move(segment), rank, Patience{spins, yield_ns}, single_copy),
        runner_(group_),
        messages_(group_) {}

  // `make(call, inputs, outputs)` compiles a Plan when this one was not seen before. Returns whether
  // an output is a stand-in whose `finish` must be called.
  bool run(std::uint64_t code, nb::handle inputs, nb::handle outputs, std::int64_t deadline_ns,
           nb::handle call, nb::handle make, nb::handle describe, bool is_kept) {
    CallHandles handles{call, inputs, outputs, describe};
    // A copy, cheap for its one pointer: another thread may drop the plan from the cache.
    const CompiledPlan compiled = plans_.find(code, handles, make, is_kept);
    const Plan& plan = *compiled.plan;
    const Regions in(inputs, plan.in_cuts, compiled.in_views);
    const Regions out(outputs, plan.out_cuts, compiled.out_views);
    if (runner_.is_idle()) {
      const nb::gil_scoped_release release;
      group_.run(plan, Describe{&call_describe, &handles}, in.span(), out.span(),
                 wait_until(deadline_ns), false);
      return out.is_stand_in();
    }
    // Behind the asynchronous ones, in order, and on their thread: it cannot ask Python later.
    std::string words = handles.words();
    const nb::gil_scoped_release release;
    const OpPointer op =
        runner_.submit(compiled.plan, std::move(words), in.copy(), out.copy(), deadline_ns);
    try {
      runner_.wait(*op, wait_until(no_deadline));
    } catch (const Error& error) {
      // Interrupted: the arrays must not be touched once the caller has them back.
      if (error.fault() == Fault::interrupted && !op->done()) {
        group_.break_group(Fault::interrupted, static_cast<int>(group_.rank()), "was interrupted");
        while (!op->done()) ::usleep(200);
      }
      throw;
    }
    return out.is_stand_in();
  }

  OpPointer submit(std::uint64_t code, nb::handle inputs, nb::handle outputs,
                   std::int64_t deadline_ns, nb::handle call, nb::handle make, nb::handle describe,
                   bool is_kept) {
    const CallHandles handles{call, inputs, outputs, describe};
    const CompiledPlan compiled = plans_.find(code, handles, make, is_kept);
    const Plan& plan = *compiled.plan;
    const Regions in(inputs, plan.in_cuts, compiled.in_views);
    const Regions out(outputs, plan.out_cuts, compiled.out_views);
    std::string words = handles.words();
    const nb::gil_scoped_release release;
    return runner_.submit(compiled.plan, std::move(words), in.copy(), out.copy(), deadline_ns);
  }

  void wait_op(const OpPointer& op, std::int64_t deadline_ns) {
    runner_.wait(*op, wait_until(deadline_ns));
  }
  void drain(std::int64_t deadline_ns) { runner_.drain(wait_until(deadline_ns)); }

  MessagePointer send(const View& view, int dtype, int peer, std::int64_t tag,
                      std::int64_t deadline_ns, bool is_async) {
    return messages_.send({view.data(), view.nbytes()}, dtype, peer, tag, deadline_ns, is_async);
  }
  MessagePointer recv(const View& view, int dtype, int peer, std::int64_t tag,
                      std::int64_t deadline_ns, bool is_async) {
    return messages_.recv({view.data(), view.nbytes()}, dtype, peer, tag, deadline_ns, is_async);
  }
  void wait_message(const MessagePointer& message, std::int64_t deadline_ns, bool breaks) {
    messages_.wait(message, wait_until(deadline_ns), breaks);
  }
  bool is_message_done(const MessagePointer& message) { return messages_.is_done(message); }
  bool is_idle() { return runner_.is_idle() && messages_.is_idle(); }

  std::vector<std::tuple<bool, std::uint64_t, std::uint64_t, bool>> facts() const {
    std::vector<std::tuple<bool, std::uint64_t, std::uint64_t, bool>> all;
    for (std::uint32_t r = 0; r < group_.size(); ++r) {
      const RankFacts f = group_.facts(r);
      all.emplace_back(f.attached, f.gate, f.seq, f.left);
    }
    return all;
  }

  std::optional<std::tuple<int, int, int, std::uint64_t, std::string>> cause() {
    const Cause& c = group_.segment().header().cause;
    if (c.state.load(std::memory_order_acquire) != 2) return std::nullopt;
    return std::tuple(c.fault, c.rank, c.noticed_by, c.seq, std::string(c.text));
  }

  Group& group() { return group_; }

 private:
  Plans plans_;  // with the GIL held
  Group group_;
  Runner runner_;
  PointToPoint messages_;
};

}  // namespace

void bind_group(nb::module_& module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;

  nb::class_<CompiledPlan>(module, "Plan", "A plan made ready to run; see plan/steps.py.")
      .def("__init__",
           [](CompiledPlan* self, const std::vector<StepTuple>& steps,
              const std::vector<CutTuple>& in_cuts, const std::vector<CutTuple>& out_cuts,
              int reduce, int dtype, std::uint64_t fingerprint, std::uint32_t size,
              std::uint64_t slot_nbytes) {
             new (self) CompiledPlan(
                 compile(steps, in_cuts, out_cuts, reduce, dtype, fingerprint, size, slot_nbytes));
           });

  nb::class_<Op>(module, "Op", "An asynchronous collective.")
      .def_prop_ro("done", [](const Op& op) { return op.done(); });
  nb::class_<Message, Op>(module, "Message", "A send or recv.")
      .def_prop_ro("source", [](const Message& m) { return m.source; })
      .def_prop_ro("nbytes", [](const Message& m) { return m.region.nbytes; })
      .def_prop_ro("dtype", [](const Message& m) { return m.dtype; })
      .def_prop_ro("peer_nbytes", [](const Message& m) { return m.peer_nbytes; })
      .def_prop_ro("peer_dtype", [](const Message& m) { return m.peer_dtype; });

  nb::class_<GroupHandle>(module, "Group", "One rank's side of a group in shared memory.")
      .def_static(
          "create",
          [](std::uint32_t size, std::uint32_t slot_nbytes, std::uint32_t channel_nbytes,
             std::uint64_t cookie, std::uint32_t spins, std::int64_t yield_ns, bool single_copy) {
            return new GroupHandle(Segment::create(size, slot_nbytes, channel_nbytes, cookie), 0,
                                   spins, yield_ns, single_copy);
          })
      .def_static(
          "open",
          [](std::uint32_t rank, std::int32_t pid, int fd, std::uint64_t cookie,
             std::uint32_t spins, std::int64_t yield_ns, bool single_copy) {
            return new GroupHandle(Segment::open(pid, fd, cookie), rank, spins, yield_ns,
                                   single_copy);
          })
      .def("join",
           [](GroupHandle& self, std::int64_t deadline_ns) {
             self.group().join(wait_until(deadline_ns));
           },
           Release())
      .def("run", &GroupHandle::run)
      .def("submit", &GroupHandle::submit)
      .def("wait_op", &GroupHandle::wait_op, Release())
      .def("drain", &GroupHandle::drain, Release())
      .def("send", &GroupHandle::send, Release())
      .def("recv", &GroupHandle::recv, Release())
      .def("wait_message", &GroupHandle::wait_message, Release())
      .def("is_message_done", &GroupHandle::is_message_done, Release())
      .def("is_idle", &GroupHandle::is_idle, Release())
      .def("facts", &GroupHandle::facts)
      .def("cause", &GroupHandle::cause)
      .def("abort",
           [](GroupHandle& self, const std::string& text) {
             self.group().break_group(Fault::broken, static_cast<int>(self.group().rank()), text);
           },
           Release())
      .def("leave", [](GroupHandle& self) { self.group().leave(); }, Release())
      .def_prop_ro("fd", [](GroupHandle& self) { return self.group().segment().fd(); })
      .def_prop_ro("single_copy", [](GroupHandle& self) { return self.group().single_copy(); })
      .def_prop_ro("seq", [](GroupHandle& self) { return self.group().seq(); })
      .def_prop_ro("failed_gate", [](GroupHandle& self) { return self.group().failed_gate(); })
      .def_prop_ro("descriptions", [](GroupHandle& self) {
        nb::list all;
        for (const std::string& text : self.group().descriptions())
          all.append(nb::bytes(text.data(), text.size()));
        return all;
      });
}

}  // namespace distdbg
