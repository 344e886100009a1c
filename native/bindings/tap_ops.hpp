// The ops of another library's group as its tap sees them: one call begins an op in the record and starts the
// agreement on it. What the arguments of the op mean, and all that goes wrong, is for Python
// (distdbg/torch_bridge/tap).
#pragma once

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <optional>

#include "attributes.hpp"
#include "group_py.hpp"
#include "lane_parts.hpp"
#include "queued_ops.hpp"

namespace distdbg {

// Between the binding and the user's code is at least the function that torch's is replaced by.
constexpr int frames_above_user_of_tap = 1;

// distdbg/runtime/backends/checked/checked_engine.py
constexpr int level_detail_of_check = 2;

// Attributes of the objects of distdbg/torch_bridge/tap and of torch, each name made once.
struct TapNames {
  PyObject* const add_done_callback = intern("add_done_callback");
  PyObject* const agree = intern("agree");
  PyObject* const count = intern("count");
  PyObject* const device = intern("device");
  PyObject* const done = intern("done");
  PyObject* const form = intern("form");
  PyObject* const get_future = intern("get_future");
  PyObject* const held = intern("held");
  PyObject* const known = intern("known");
  PyObject* const lane = intern("lane");
  PyObject* const lane_ops = intern("lane_ops");
  PyObject* const level = intern("level");
  PyObject* const on_failure = intern("on_failure");
  PyObject* const on_unstarted = intern("on_unstarted");
  PyObject* const on_work_class = intern("on_work_class");
  PyObject* const op = intern("op");
  PyObject* const plan = intern("plan");
  PyObject* const seq = intern("seq");
  PyObject* const timeout_ns = intern("timeout_ns");
  PyObject* const unbox_work = intern("unbox_work");
  PyObject* const value = intern("value");
  PyObject* const wide = intern("wide");
  PyObject* const work = intern("work");
  PyObject* const work_classes = intern("work_classes");
};

inline const TapNames& tap_names() {
  static const TapNames all;
  return all;
}

// An op from its begin to its end.
struct TappedOp {
  std::shared_ptr<RecorderHandle> recorder;
  RecordedOp recorded;
  std::uint64_t number = 0;
  OpPointer agreement;  // null: this op is not compared, or not like this
  std::uint32_t site = 0;
  PreviousOp previous;
  std::int64_t issued_ns = 0;
  QueuedEnd queued;

  void end(std::uint32_t status, int source) {
    Recorder* const writer = recorder->writer();
    if (writer == nullptr) return;
    if (!queued.take(*writer, recorder->recorder, recorded, status, source))
      writer->ended(recorded, status, source);
  }
  // Its library's future is done with having queued it.
  void end_behind(nb::handle future) {
    Recorder* const writer = recorder->writer();
    if (writer != nullptr && !queued.take_behind(future, *writer, recorder->recorder, recorded))
      writer->ended(recorded, 0, -1);
  }
  // A stream waits for it now; what it may be compared with comes later.
  void leave_to_device(int source) {
    Recorder* const writer = recorder->writer();
    if (writer != nullptr) queued.take(*writer, recorder->recorder, recorded, 0, source);
  }
};

// What torch calls when an op of its own has ended, on a thread of C++'s: there a frame of Python costs more
// than all else that is done.
class TappedEnd {
 public:
  // `owner`: the LaneOp, which is told of a failure; it is one of `followed` until then.
  TappedEnd(nb::object op, nb::object owner, nb::object followed)
      : op_(std::move(op)), owner_(std::move(owner)), followed_(std::move(followed)) {}

  void operator()(nb::handle future) const {
    try {
      call(future, tap_names().value);
    } catch (nb::python_error&) {
      get(owner_, tap_names().on_failure)(future);
      return;
    }
    nb::cast<TappedOp&>(op_).end(0, -1);
    set(owner_, tap_names().held, nb::handle(Py_True));
    if (PySet_Discard(followed_.ptr(), owner_.ptr()) < 0) nb::raise_python_error();
  }

 private:
  nb::object op_;
  nb::object owner_;
  nb::object followed_;
};

class TappedOps {
 public:
  // `queued`: where they are when their call returns; null: their library's futures tell their ends.
  TappedOps(std::shared_ptr<RecorderHandle> recorder, std::uint64_t group, GroupHandle* control,
            const ControlHandle* page, std::shared_ptr<QueuedOps> queued)
      : recorder_(std::move(recorder)), group_(group), queued_(std::move(queued)) {
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
    facts.site = recorder_->sites->here(frames_above_user_of_tap);
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

  // An op from its begin until torch has it: what `start(*arguments)` returns, a Work, or where `is_boxed` what a
  // c10d op returns. Its LaneOp is found by the Work from then on; where `is_async`, torch tells its end. `lane`,
  // `known`: as in lane.py. A `limit_ns` below 0 is the group's own. NotImplemented: nothing was started, and the
  // long way says why. `is_foreseen`: all ranks are to start this op next, as they have agreed before, so at
  // DETAIL it waits for no agreement once they have met.
  nb::object launch(nb::handle lane, nb::handle known, bool is_async, std::int64_t limit_ns,
                    bool is_boxed, std::string_view comm, nb::handle start,
                    const nb::tuple& arguments, bool is_foreseen) {
    // Kept here as well: the group may be closed while torch has the op.
    const std::shared_ptr<const LaneParts> kept = parts_of(lane);
    const LaneParts& common = *kept;
    Launched launched;
    if (!start_op(lane, common, known, is_async, limit_ns, comm, start, arguments, is_foreseen,
                  launched))
      return nb::borrow(Py_NotImplemented);
    const nb::object work = is_boxed ? unbox(common.groups, launched.result) : launched.result;
    if (work.is_none()) {  // torch has nothing to wait for: to the program it has ended
      nb::cast<TappedOp&>(launched.op).end(0, -1);
      return launched.result;
    }
    if (PySet_Contains(common.work_classes.ptr(),
                       reinterpret_cast<PyObject*>(Py_TYPE(work.ptr()))) != 1)
      get(common.groups, tap_names().on_work_class)(work.type());
    const nb::object owner = keep(lane, common, known, launched, work, is_boxed || is_async);
    const nb::object id = owned(PyLong_FromVoidPtr(work.ptr()));
    if (PyDict_SetItem(common.lane_ops.ptr(), id.ptr(), owner.ptr()) != 0) nb::raise_python_error();
    if (is_async) follow(common, launched.op, owner, work);
    return launched.result;
  }

  // Directly before torch gets it. `device`: as queued_ops.hpp numbers them.
  void begin_on_device(TappedOp& op, int device, bool is_async) const {
    if (queued_) op.queued.begin = queued_->begin(device, is_async);
  }

  // The lane calls `launch` by this object, which it keeps, unless somebody has put another one before it.
  void set_own_launch(nb::handle launch) { own_launch_ = launch.ptr(); }
  bool is_own_launch(nb::handle launch) const { return launch.ptr() == own_launch_; }

  // Torch has told the end of this op to whoever waited for it: whether no agreement has failed.
  bool end(TappedOp& op) {
    op.end(0, -1);
    return are_all_well();
  }

  // `begin` of a send or recv, which no agreement is for.
  std::optional<TappedOp> begin_message(Form& form, std::uint64_t seq, std::int64_t tag, int peer,
                                        int flags) {
    Recorder* const writer = recorder_->writer();
    if (writer == nullptr || !is_quiet()) return std::nullopt;
    recorder_->look_at_context();
    TappedOp op;
    op.recorder = recorder_;
    op.queued.is_message = true;
    OpFacts facts;
    facts.group = group_;
    facts.seq = seq;
    facts.issued_ns = op.issued_ns = control_->moment().now_ns;
    facts.value = tag;
    facts.site = op.site = recorder_->sites->here(frames_above_user_of_tap);
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
    // The program waits for the op, or a deadlock would look like work.
    const RecordedWait waiting{recorder_->writer(), op.number, op.site};
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

  // The agreements that have not ended well, with what `begin` was told about their ops.
  nb::list unsettled() {
    have_agreed();
    nb::list all;
    for (const Unsettled& each : unsettled_)
      all.append(nb::make_tuple(each.agreement, each.about, each.seq, each.issued_ns));
    return all;
  }

  // The same; they are the caller's from here on.
  nb::list take_unsettled() {
    nb::list all = unsettled();
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
    met_.reset();
    parts_.reset();
    common_.reset();
  }

  // For the collector of cycles: the lane of these ops has them.
  int visit(visitproc visit, void* arg) const { return common_ ? common_->visit(visit, arg) : 0; }
  void forget_lane() { common_.reset(); }

 private:
  bool is_quiet() {
    if (is_closed_ || control_->is_aborted() ||
        control_->break_generation().load(std::memory_order_acquire) != seen_generation_)
      return false;
    return !parts_ || (!parts_->group.is_broken() && have_agreed());
  }

  struct Launched {
    nb::object op;
    nb::object seq;  // of its agreement
    nb::object result;
  };

  // Of the one lane whose ops they are.
  std::shared_ptr<const LaneParts> parts_of(nb::handle lane) {
    if (!common_ || common_->of != lane.ptr()) common_ = std::make_shared<const LaneParts>(lane);
    return common_;
  }

  // In the order of the group's ops. False: nothing has begun.
  bool start_op(nb::handle lane, const LaneParts& common, nb::handle known, bool is_async,
                std::int64_t limit_ns, std::string_view comm, nb::handle start,
                const nb::tuple& arguments, bool is_foreseen, Launched& launched) {
    const TapNames& n = tap_names();
    const Locked in_order(common.acquire, common.release);
    const std::uint64_t seq = nb::cast<std::uint64_t>(get(common.recorded, n.count)) + 1;
    const bool is_checked = !common.checked.is_none();
    bool is_detail = false;
    if (is_checked) {
      if (limit_ns < 0) limit_ns = nb::cast<std::int64_t>(get(common.control, n.timeout_ns));
      is_detail = nb::cast<int>(get(common.checked, n.level)) == level_detail_of_check;
    }
    const nb::object plan = get(known, n.plan);
    const bool waits_for_all = is_detail && !(is_foreseen && have_met());
    const bool agrees_here = !plan.is_none() && (!waits_for_all || is_async);
    std::optional<TappedOp> begun;
    try {
      begun = begin(nb::cast<Form&>(get(known, n.form)),
                    agrees_here ? &nb::cast<const CompiledPlan&>(plan) : nullptr, seq, limit_ns,
                    flag_async, known, comm);
    } catch (const Error&) {  // the group has been broken in this moment
    }
    if (!begun) return false;
    set(common.recorded, n.count, owned(PyLong_FromUnsignedLongLong(seq)));
    launched.seq = is_checked ? owned(PyIter_Next(common.seqs.ptr())) : nb::object(nb::int_(seq));
    const OpPointer agreement = begun->agreement;
    launched.op = nb::cast(std::move(*begun));
    bool has_agreed = false;
    try {
      if (waits_for_all) {
        has_met_ = false;
        // Whoever comes last has compared already.
        const bool is_last = agreement && agreement->done() && !agreement->error;
        if (!is_last) get(lane, n.agree)(launched.op, known, limit_ns);
        has_met_ = true;
        met_ = agreement;
      }
      has_agreed = true;
      if (queued_)
        begin_on_device(nb::cast<TappedOp&>(launched.op), nb::cast<int>(get(known, n.device)),
                        is_async);
      launched.result = owned(PyObject_CallObject(start.ptr(), arguments.ptr()));
    } catch (nb::python_error& error) {
      // May raise the reason, which its caller gets instead.
      if (nb::cast<bool>(get(lane, n.on_unstarted)(launched.op, known, launched.seq, has_agreed,
                                                   error.value())))
        return false;
      throw;
    }
    return true;
  }

  // The Work in what a c10d op returns; None where there is none.
  static nb::object unbox(nb::handle groups, nb::handle result) {
    nb::object boxed = nb::borrow(result);
    if (PyTuple_Check(result.ptr())) {
      const Py_ssize_t size = PyTuple_Size(result.ptr());
      boxed = size == 0 ? nb::none() : nb::borrow(PyTuple_GetItem(result.ptr(), size - 1));
    }
    if (boxed.is_none()) return boxed;
    try {
      return get(groups, tap_names().unbox_work)(boxed);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_RuntimeError)) throw;
      return nb::none();  // an op in a block of NCCL's, whose Work comes at the end
    }
  }

  // Its LaneOp, made without a frame of Python.
  static nb::object keep(nb::handle lane, const LaneParts& common, nb::handle known,
                         const Launched& launched, nb::handle work, bool is_held) {
    const TapNames& n = tap_names();
    const nb::object owner =
        owned(PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(common.op_class.ptr()), 0));
    set(owner, n.lane, lane);
    set(owner, n.known, known);
    set(owner, n.op, launched.op);
    set(owner, n.seq, launched.seq);
    set(owner, n.work, owned(PyWeakref_NewRef(work.ptr(), nullptr)));
    // Its caller may get it from C++, and must find it again; or torch is to tell its end.
    set(owner, n.held, is_held ? work : nb::handle(Py_None));
    set(owner, n.wide, nb::none());
    return owner;
  }

  // Not by a callback: torch gives that a stream of its pool, in which the program may have queued something. False:
  // it has failed, or torch has no such stream, and it calls back.
  static bool is_behind(const nb::object& op, nb::handle future) {
    try {
      nb::cast<TappedOp&>(op).end_behind(future);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;
      return false;
    }
    return true;
  }

  // Has torch tell its end, on any thread.
  static void follow(const LaneParts& common, const nb::object& op, const nb::object& owner,
                     nb::handle work) {
    const TapNames& n = tap_names();
    nb::object future;
    try {
      future = call(work, n.get_future);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_RuntimeError)) throw;
      return;  // this kind of op has none
    }
    if (nb::cast<TappedOp&>(op).queued.begin.ops &&
        PyObject_IsTrue(call(future, n.done).ptr()) == 1 && is_behind(op, future)) {
      set(owner, n.held, nb::handle(Py_True));
      return;
    }
    if (PySet_Add(common.followed.ptr(), owner.ptr()) != 0) nb::raise_python_error();
    const nb::object ended = nb::cast(TappedEnd(op, owner, common.followed));
    PyObject* arguments[] = {future.ptr(), ended.ptr()};
    owned(PyObject_VectorcallMethod(n.add_done_callback, arguments, 2, nullptr));
  }

  // Whether the agreement that was waited for last has ended well: that wait gives up after a moment.
  bool have_met() const { return has_met_ && (!met_ || (met_->done() && !met_->error)); }

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
  const std::shared_ptr<QueuedOps> queued_;
  std::shared_ptr<Parts> parts_;
  std::deque<Unsettled> unsettled_;
  bool has_met_ = false;  // see have_met
  OpPointer met_;         // null: the op that waited has no agreement that goes on
  std::shared_ptr<const Control> page_;
  const Control* control_;  // of it, or of none
  bool is_closed_ = false;
  const PyObject* own_launch_ = nullptr;
  std::shared_ptr<const LaneParts> common_;  // with the first op of the short way
  std::uint64_t seen_generation_ = 0;
};

}  // namespace distdbg
