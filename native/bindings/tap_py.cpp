// The ops of another library's group as its tap sees them: one call begins an op in the record and starts the
// agreement on it. What the arguments of the op mean, and all that goes wrong, is for Python
// (distdbg/torch_bridge/tap).
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string_view.h>
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
  OpPointer agreement;  // null: this op is not compared, or not like this
  std::uint32_t site = 0;
  PreviousOp previous;
  std::int64_t issued_ns = 0;

  void end(std::uint32_t status, int source) {
    if (Recorder* const writer = recorder->writer()) writer->ended(recorded, status, source);
  }
};

// What torch calls when an op of its own has ended, on a thread of C++'s: there a frame of Python costs more
// than all else that is done.
class TappedEnd {
 public:
  // `owner` and `followed` as LaneOp has them; `on_error` takes the future of an op that has failed.
  TappedEnd(nb::object op, nb::object owner, nb::object followed, nb::object on_error)
      : op_(std::move(op)),
        owner_(std::move(owner)),
        followed_(std::move(followed)),
        on_error_(std::move(on_error)) {}

  void operator()(nb::handle future) const {
    try {
      future.attr("value")();
    } catch (nb::python_error&) {
      on_error_(future);
      return;
    }
    nb::cast<TappedOp&>(op_).end(0, -1);
    nb::setattr(owner_, "held", nb::none());
    if (PySet_Discard(followed_.ptr(), owner_.ptr()) < 0) nb::raise_python_error();
  }

 private:
  nb::object op_;
  nb::object owner_;
  nb::object followed_;
  nb::object on_error_;
};

class TappedOps {
 public:
  TappedOps(std::shared_ptr<RecorderHandle> recorder, std::uint64_t group, GroupHandle* control,
            const ControlHandle* page)
      : recorder_(std::move(recorder)), group_(group) {
    if (page != nullptr) page_ = page->control;
    control_ = &control_of(page);
    go_on();
    if (control == nullptr) return;
    parts_ = control->parts();
    // The words of agreements in flight are in it.
    parts_->kept = recorder_->recorder;
  }

  // `comm`: the name of this op; empty: that of the record.
  // Nullopt: nothing has begun, because something is to be looked at first: other breakpoints, an agreement
  // that has failed, a group that is broken, a forked child.
  std::optional<TappedOp> begin(Form& form, const CompiledPlan* plan, std::uint64_t seq,
                                std::int64_t limit_ns, int flags, nb::handle about,
                                std::string_view comm) {
    Recorder* const writer = recorder_->writer();
    if (writer == nullptr || !is_quiet()) return std::nullopt;
    recorder_->look_at_context();
    const Named named(*writer, comm);
    TappedOp op;
    op.recorder = recorder_;
    OpFacts facts;
    const Moment now = control_->moment();
    facts.group = group_;
    facts.seq = seq;
    facts.issued_ns = op.issued_ns = now.now_ns;
    facts.site = recorder_->sites->here(frames_above_user);
    facts.flags = static_cast<std::uint8_t>(flags);
    CallWords words;
    op.recorded = writer->begin(facts, form, &words.previous);
    op.number = op.recorded.number;
    op.site = facts.site;
    op.previous = words.previous;
    if (plan == nullptr) return op;
    words.facts = &plan->plan->words;
    words.recorder = writer;
    words.site = facts.site;
    words.comm = writer->comm();
    RecordedOp unrecorded;  // in the record of the control group
    unrecorded.seq = parts_->group.issue();
    {
      const ReleaseGil release;
      op.agreement =
          parts_->runner.submit_lazily(plan->plan, words, unrecorded, now.job_ns + limit_ns);
    }
    unsettled_.push_back({op.agreement, nb::borrow(about), seq, op.issued_ns});
    return op;
  }

  // The same of a send or recv, which no agreement is for.
  std::optional<TappedOp> begin_message(Form& form, std::uint64_t seq, std::int64_t tag, int peer,
                                        int flags) {
    Recorder* const writer = recorder_->writer();
    if (writer == nullptr || !is_quiet()) return std::nullopt;
    recorder_->look_at_context();
    TappedOp op;
    op.recorder = recorder_;
    OpFacts facts;
    facts.group = group_;
    facts.seq = seq;
    facts.issued_ns = op.issued_ns = control_->moment().now_ns;
    facts.value = tag;
    facts.site = op.site = recorder_->sites->here(frames_above_user);
    facts.peer = peer;
    facts.flags = static_cast<std::uint8_t>(flags);
    op.recorded = writer->begin(facts, form);
    op.number = op.recorded.number;
    return op;
  }

  // Blocks until all ranks agree on an op that has begun without; throws how they do not.
  void agree(const TappedOp& op, const CompiledPlan& plan, std::int64_t limit_ns) {
    const std::shared_ptr<Parts> p = parts_;
    if (!p) throw Error(Fault::usage, "this rank has left the group");
    CallWords words;
    words.facts = &plan.plan->words;
    words.recorder = recorder_->recorder.get();
    words.site = op.site;
    words.comm = words.recorder->comm();
    words.previous = op.previous;
    RecordedOp unrecorded;
    unrecorded.seq = p->group.issue();
    const std::int64_t deadline_ns = control_->moment().job_ns + limit_ns;
    const Describe describe{[](void* known) { return static_cast<CallWords*>(known)->make(); },
                            &words};
    const ReleaseGil release;
    if (p->runner.is_idle()) {
      p->group.run(*plan.plan, describe, {}, {},
                   p->group.wait_until(deadline_ns, &python_interrupted), false, unrecorded);
      return;
    }
    // Behind those that nobody waits for.
    const OpPointer behind = p->runner.submit(plan.plan, words, unrecorded, {}, {}, deadline_ns);
    p->runner.wait(*behind, p->group.wait_until(no_deadline, &python_interrupted));
  }

  bool are_all_well() { return !parts_ || have_agreed(); }

  // The agreements that have not ended well, with what `begin` was told about their ops; they are the
  // caller's from here on.
  nb::list take_unsettled() {
    have_agreed();
    nb::list all;
    for (const Unsettled& each : unsettled_)
      all.append(nb::make_tuple(each.agreement, each.about, each.seq, each.issued_ns));
    unsettled_.clear();
    return all;
  }

  // Its agreement has ended, and whoever waited for it has dealt with how.
  void forget(const TappedOp& op) {
    std::erase_if(unsettled_,
                  [&](const Unsettled& each) { return each.agreement == op.agreement; });
  }

  // What there was to look at has been looked at.
  void go_on() {
    const std::uint64_t now = control_->break_generation().load(std::memory_order_acquire);
    if (now % 2 == 0) seen_generation_ = now;
  }

  // Leaves the control group alone from here on, so that it can be closed.
  void close() {
    is_closed_ = true;
    parts_.reset();
  }

 private:
  bool is_quiet() {
    if (is_closed_ || control_->is_aborted() ||
        control_->break_generation().load(std::memory_order_acquire) != seen_generation_)
      return false;
    return !parts_ || (!parts_->group.is_broken() && have_agreed());
  }

  // Whether no agreement has failed that has ended; they end in order.
  bool have_agreed() {
    while (!unsettled_.empty() && unsettled_.front().agreement->done()) {
      if (unsettled_.front().agreement->error) return false;
      unsettled_.pop_front();
    }
    return true;
  }

  // An op with a name of its own.
  class Named {
   public:
    Named(Recorder& writer, std::string_view comm) : writer_(writer), before_(writer.comm()) {
      if (!comm.empty()) writer_.set_comm(comm);
    }
    ~Named() { writer_.restore_comm(before_); }
    Named(const Named&) = delete;
    Named& operator=(const Named&) = delete;

   private:
    Recorder& writer_;
    const std::uint32_t before_;
  };

  struct Unsettled {
    OpPointer agreement;
    nb::object about;
    std::uint64_t seq;
    std::int64_t issued_ns;
  };

  const std::shared_ptr<RecorderHandle> recorder_;
  const std::uint64_t group_;
  std::shared_ptr<Parts> parts_;
  std::deque<Unsettled> unsettled_;
  std::shared_ptr<const Control> page_;
  const Control* control_;  // of it, or of none
  bool is_closed_ = false;
  std::uint64_t seen_generation_ = 0;
};

}  // namespace

void bind_tap(nb::module_& module) {
  nb::class_<TappedOp>(module, "TappedOp", "An op in flight in a backend that is not ours.")
      .def_prop_ro("number", [](const TappedOp& self) { return self.number; })
      .def_prop_ro("agreement", [](const TappedOp& self) { return self.agreement; })
      .def_prop_ro("site", [](const TappedOp& self) { return self.site; })
      .def_prop_ro("issued_ns", [](const TappedOp& self) { return self.issued_ns; })
      .def_prop_ro("is_agreed",
                   [](const TappedOp& self) { return !self.agreement || self.agreement->done(); })
      .def("started",
           [](TappedOp& self) {
             if (Recorder* const writer = self.recorder->writer()) writer->started(self.recorded);
           })
      .def("ended", &TappedOp::end, nb::arg("status") = 0, nb::arg("source") = -1);

  nb::class_<TappedEnd>(module, "TappedEnd", "Told by torch that an op has ended.")
      .def(nb::init<nb::object, nb::object, nb::object, nb::object>(), nb::arg("op"),
           nb::arg("owner"), nb::arg("followed"), nb::arg("on_error"))
      .def("__call__", &TappedEnd::operator(), nb::arg("future"));

  nb::class_<TappedOps>(module, "TappedOps", "The ops of a group whose backend is not ours.")
      .def(nb::init<std::shared_ptr<RecorderHandle>, std::uint64_t, GroupHandle*,
                    const ControlHandle*>(),
           nb::arg("recorder"), nb::arg("group"), nb::arg("control").none(), nb::arg("page").none())
      .def("begin", &TappedOps::begin, nb::arg("form"), nb::arg("plan").none(), nb::arg("seq"),
           nb::arg("limit_ns"), nb::arg("flags"), nb::arg("about"), nb::arg("comm") = "")
      .def("begin_message", &TappedOps::begin_message, nb::arg("form"), nb::arg("seq"),
           nb::arg("tag"), nb::arg("peer"), nb::arg("flags"))
      .def("agree", &TappedOps::agree, nb::arg("op"), nb::arg("plan"), nb::arg("limit_ns"))
      .def("are_all_well", &TappedOps::are_all_well)
      .def("take_unsettled", &TappedOps::take_unsettled)
      .def("forget", &TappedOps::forget, nb::arg("op"))
      .def("go_on", &TappedOps::go_on)
      .def("close", &TappedOps::close);
}

}  // namespace distdbg
