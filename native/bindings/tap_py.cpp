// The ops of another library's group as its tap sees them: one call begins an op in the record and starts the
// agreement on it. What the arguments of the op mean, and all that goes wrong, is for Python
// (distdbg/torch_bridge/tap).
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <optional>

#include "group_py.hpp"

namespace distdbg {

namespace {

// Between the binding and the user's code are at least the function that begins an op, and the one that
// torch's is replaced by.
constexpr int frames_above_user = 2;

// An op from its begin to its end.
struct TappedOp {
  std::shared_ptr<RecorderHandle> recorder;
  RecordedOp recorded;
  std::uint64_t number = 0;
  OpPointer agreement;  // null: this op is not compared, or was before it began
  std::int64_t issued_ns = 0;
};

class TappedOps {
 public:
  TappedOps(std::shared_ptr<RecorderHandle> recorder, std::uint64_t group, GroupHandle* control)
      : recorder_(std::move(recorder)), group_(group) {
    if (control == nullptr) return;
    parts_ = control->parts();
    break_generation_ = &parts_->group.control().break_generation();
    seen_generation_ = break_generation_->load(std::memory_order_acquire);
    // The words of agreements in flight are in it.
    parts_->kept = recorder_->recorder;
  }

  // Nullopt: nothing has begun, because something is to be looked at first: other breakpoints, an agreement
  // that has failed, a group that is broken, a forked child.
  std::optional<TappedOp> begin(Form& form, const CompiledPlan* plan, std::uint64_t seq,
                                std::int64_t limit_ns, int flags) {
    Recorder* const writer = recorder_->writer();
    if (writer == nullptr || !is_quiet()) return std::nullopt;
    recorder_->look_at_context();
    TappedOp op{recorder_, {}, 0, nullptr, 0};
    OpFacts facts;
    const Moment now = parts_ ? parts_->group.control().moment() : Control::none().moment();
    facts.group = group_;
    facts.seq = seq;
    facts.issued_ns = op.issued_ns = now.now_ns;
    facts.site = recorder_->sites->here(frames_above_user);
    facts.flags = static_cast<std::uint8_t>(flags);
    CallWords words;
    op.recorded = writer->begin(facts, form, &words.previous);
    op.number = op.recorded.number;
    if (plan == nullptr) return op;
    words.facts = &plan->plan->words;
    words.recorder = writer;
    words.site = facts.site;
    words.comm = writer->comm();
    RecordedOp unrecorded;  // in the record of the control group
    unrecorded.seq = parts_->group.issue();
    {
      const ReleaseGil release;
      op.agreement = parts_->runner.submit(plan->plan, words, unrecorded, {}, {},
                                           now.job_ns + limit_ns);
    }
    unsettled_.push_back(op.agreement);
    return op;
  }

  // Leaves the control group alone from here on, so that it can be closed.
  void close() { parts_.reset(); }

 private:
  bool is_quiet() {
    if (!parts_) return true;
    const Group& group = parts_->group;
    return !group.is_broken() && !group.control().is_aborted() &&
           break_generation_->load(std::memory_order_acquire) == seen_generation_ &&
           have_agreed();
  }

  // Whether no agreement has failed that has ended; they end in order.
  bool have_agreed() {
    while (!unsettled_.empty() && unsettled_.front()->done()) {
      if (unsettled_.front()->error) return false;
      unsettled_.pop_front();
    }
    return true;
  }

  const std::shared_ptr<RecorderHandle> recorder_;
  const std::uint64_t group_;
  std::shared_ptr<Parts> parts_;
  std::deque<OpPointer> unsettled_;
  const std::atomic<std::uint64_t>* break_generation_ = nullptr;
  std::uint64_t seen_generation_ = 0;
};

}  // namespace

void bind_tap(nb::module_& module) {
  nb::class_<TappedOp>(module, "TappedOp", "An op in flight in a backend that is not ours.")
      .def_prop_ro("number", [](const TappedOp& self) { return self.number; })
      .def_prop_ro("agreement", [](const TappedOp& self) { return self.agreement; })
      .def_prop_ro("issued_ns", [](const TappedOp& self) { return self.issued_ns; })
      .def_prop_ro("is_agreed",
                   [](const TappedOp& self) { return !self.agreement || self.agreement->done(); })
      .def("started",
           [](TappedOp& self) {
             if (Recorder* const writer = self.recorder->writer()) writer->started(self.recorded);
           })
      .def(
          "ended",
          [](TappedOp& self, std::uint32_t status, int source) {
            if (Recorder* const writer = self.recorder->writer())
              writer->ended(self.recorded, status, source);
          },
          nb::arg("status") = 0, nb::arg("source") = -1);

  nb::class_<TappedOps>(module, "TappedOps", "The ops of a group whose backend is not ours.")
      .def(nb::init<std::shared_ptr<RecorderHandle>, std::uint64_t, GroupHandle*>(),
           nb::arg("recorder"), nb::arg("group"), nb::arg("control").none())
      .def("begin", &TappedOps::begin, nb::arg("form"), nb::arg("plan").none(), nb::arg("seq"),
           nb::arg("limit_ns"), nb::arg("flags"))
      .def("close", &TappedOps::close);
}

}  // namespace distdbg
