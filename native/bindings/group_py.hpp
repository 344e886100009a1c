// A group's data plane as Python sees it: one object that holds the group, its asynchronous
// collectives and its messages. No policy here; distdbg/runtime/backends/cpu.py has that.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "bindings.hpp"
#include "call_words.hpp"
#include "control_py.hpp"
#include "group.hpp"
#include "hash.hpp"
#include "held_arrays.hpp"
#include "net_py.hpp"
#include "p2p.hpp"
#include "plans_py.hpp"
#include "record_py.hpp"
#include "regions.hpp"
#include "runner.hpp"
#include "view.hpp"

namespace distdbg {

// What close() ends. Shared, because another thread may still be inside a call: the last one out
// stops the threads and unmaps the memory.
struct Parts {
  Parts(Segment segment, std::uint32_t rank, const Patience& patience, bool single_copy,
        const NetFacts& net)
      : group(std::move(segment), rank, patience, single_copy, net.host_of, net.make),
        runner(group),
        messages(group) {}
  std::shared_ptr<Recorder> kept;  // what words of ops in flight refer to; outlives them
  Group group;
  Runner runner;
  PointToPoint messages;
};

class GroupHandle {
 public:
  GroupHandle(Segment segment, std::uint32_t rank, std::uint32_t spins, std::int64_t yield_ns,
              bool single_copy, const NetFacts& net)
      : parts_(std::make_shared<Parts>(std::move(segment), rank, Patience{spins, yield_ns},
                                       single_copy, net)) {}

  // In a forked child neither the threads nor the memory came along: there is nothing to end.
  ~GroupHandle() {
    if (is_forked()) new std::shared_ptr<Parts>(std::move(parts_));
  }
  GroupHandle(const GroupHandle&) = delete;
  GroupHandle& operator=(const GroupHandle&) = delete;

  bool is_forked() const { return generation_ != fork_generation(); }

  // With the GIL held, which protects parts_.
  std::shared_ptr<Parts> parts() const {
    if (is_forked())
      throw Error(Fault::usage, "it belongs to the parent process; use spawn, not fork, for ranks");
    if (!parts_) throw Error(Fault::usage, "this rank has left the group");
    return parts_;
  }

  // Leaves, stops the threads, unmaps; ops in flight fail, here and at the peers.
  void close() {
    if (!parts_ || is_forked()) return;
    std::shared_ptr<Parts> last = std::exchange(parts_, nullptr);
    recorder_.reset();
    {
      const ReleaseGil release;
      last->group.leave();
      last->messages.abandon();
      last.reset();
    }
    held_.clear();
  }

  // `make(call, inputs, outputs)` compiles a Plan not seen before. Returns what is left to do: finish_stand_ins
  // for an output whose `finish` must be called, tell_suspicions when there are some to take.
  int run(std::uint64_t code, nb::handle inputs, nb::handle outputs, std::int64_t limit_ns,
          nb::handle call, nb::handle make, std::int64_t extra) {
    const std::shared_ptr<Parts> p = parts();
    const Moment issued = enter(*p);
    started_ns_ = issued.now_ns;
    const std::int64_t deadline_ns = issued.job_ns + limit_ns;
    const CallHandles handles{call, inputs, outputs};
    // A copy, cheap for its one pointer: another thread may drop the plan from the cache.
    const CompiledPlan compiled = plans_.find(code, handles, make, extra);
    const Plan& plan = *compiled.plan;
    const Regions in(inputs, plan.in_cuts, compiled.in_views);
    const Regions out(outputs, plan.out_cuts, compiled.out_views);
    CallWords words;
    RecordedOp recorded = begin(*p, plan, started_ns_, 0, words);
    Describe known = describe(words);
    if (p->group.checks(check_order)) look_at_call(handles, words, known);
    const auto left_to_do = [&] {
      return (out.is_stand_in() ? finish_stand_ins : 0) |
             (p->group.options() != 0 && p->group.has_suspicions() ? tell_suspicions : 0);
    };
    try {
      const ReleaseGil release;
      if (p->runner.is_idle())
        p->group.run(plan, known, in.span(), out.span(), wait_until(*p, deadline_ns), false,
                     recorded);
      else
        run_behind(*p, compiled, words, recorded, in, out, deadline_ns, known);
    } catch (...) {
      keep_if_written(outputs);
      throw;
    }
    return left_to_do();
  }

  // The same of a known call (known_calls.hpp), with one frame of this package above it. False: nothing was done.
  bool run_known(const CompiledPlan& known, std::span<const Region> in, std::span<const Region> out,
                 nb::handle output, std::int64_t limit_ns) {
    const std::shared_ptr<Parts> p = parts_;
    // A copy: whoever runs meanwhile may drop it from its cache.
    const std::shared_ptr<const Plan> plan = known.plan;
    Moment issued;
    if (!p || !enter_known(*p, issued)) return false;
    CallWords words;
    RecordedOp recorded = begin(*p, *plan, started_ns_, 0, words, 1);
    try {
      const ReleaseGil release;
      p->group.run(*plan, describe(words), in, out, wait_until(*p, issued.job_ns + limit_ns), false,
                   recorded);
    } catch (...) {
      keep_if_written(output);
      throw;
    }
    return true;
  }

  // The same of one that goes on when this returns; null: nothing was done.
  OpPointer submit_known(const CompiledPlan& known, std::vector<Region> in, std::vector<Region> out,
                         nb::object arrays, std::int64_t limit_ns);

  OpPointer submit(std::uint64_t code, nb::handle inputs, nb::handle outputs, std::int64_t limit_ns,
                   nb::handle call, nb::handle make, std::int64_t extra) {
    const std::shared_ptr<Parts> p = parts();
    const Moment issued = enter(*p);
    const std::int64_t deadline_ns = issued.job_ns + limit_ns;
    const CallHandles handles{call, inputs, outputs};
    const CompiledPlan compiled = plans_.find(code, handles, make, extra);
    const Plan& plan = *compiled.plan;
    const Regions in(inputs, plan.in_cuts, compiled.in_views);
    const Regions out(outputs, plan.out_cuts, compiled.out_views);
    CallWords words;
    const RecordedOp recorded = begin(*p, plan, issued.now_ns, flag_async, words);
    Describe known;
    if (p->group.checks(check_order)) look_at_call(handles, words, known);
    OpPointer op;
    {
      const ReleaseGil release;
      op = p->runner.submit(compiled.plan, words, recorded, in.copy(), out.copy(), deadline_ns,
                            known.site, known.flags, p->group.level() >= level_detail);
    }
    op->is_plain = !in.is_stand_in() && !out.is_stand_in();
    held_.hold(op, nb::make_tuple(inputs, outputs));
    return op;
  }
  OpPointer meet(const CompiledPlan& compiled, std::int64_t limit_ns);
  // Whether somebody else wrote to the arrays of an op that has ended well, up to now: "early", before it
  // started, "late", after it ended, or "". Must be asked before the program has them back.
  const char* how_changed(const Op& op) const {
    if (op.has_changed_early) return "early";
    // A later op of the group may have written to them, and those run in order.
    if (!op.is_sampled || !parts_ || parts_->group.issued() != op.issued) return "";
    return sample(op.outputs) == op.ended_sample ? "" : "late";
  }

  // An op that has ended can be asked also after close(). Returns how_changed.
  const char* wait_op(const OpPointer& op, std::int64_t deadline_ns) {
    const HeldArrays::WhenDone releases(held_, *op);
    if (op->done()) {
      if (parts_) parts_->runner.found_done(*op);
      op->rethrow();
    } else {
      const std::shared_ptr<Parts> p = parts();
      const std::shared_ptr<RecorderHandle> recorder = recorder_;
      const RecordedWait waiting(writer(), op->number, site_of_wait(*op), deadline_ns);
      const ReleaseGil release;
      p->runner.wait(*op, wait_until(*p, deadline_ns));
    }
    return how_changed(*op);
  }

  // A send or recv that goes on when this returns.
  MessagePointer post(bool is_send, const View& view, int peer, std::int64_t tag,
                      std::int64_t limit_ns) {
    const std::shared_ptr<Parts> p = parts();
    const Region region{view.data(), view.nbytes()};
    const int dtype = view.dtype_code();
    const Moment issued = enter(*p);
    const std::shared_ptr<Form> form = message_form(is_send, view);
    const MessageCall call = message_call(form.get(), issued.now_ns);
    const std::int64_t deadline_ns = issued.job_ns + limit_ns;
    MessagePointer message;
    {
      const ReleaseGil release;
      message = is_send ? p->messages.send(region, dtype, peer, tag, deadline_ns, true, call)
                        : p->messages.recv(region, dtype, peer, tag, deadline_ns, true, call);
    }
    message->is_plain = view.finish.is_none();
    held_.hold(message, nb::find(view));
    return message;
  }
  // As PointToPoint::send_note, and of the other side where there are no words. Not recorded.
  MessagePointer post_note(std::optional<nb::bytes> words, std::uint64_t nbytes, int peer,
                           std::int64_t tag) {
    const std::shared_ptr<Parts> p = parts();
    if (!words) {
      const ReleaseGil release;
      return p->messages.recv_note(nbytes, peer, tag);
    }
    const std::span known(static_cast<const std::byte*>(words->data()), words->size());
    const ReleaseGil release;
    return p->messages.send_note(known, nbytes, peer, tag);
  }
  bool are_sends_received() const {
    const std::shared_ptr<Parts> p = parts();
    const ReleaseGil release;
    return p->messages.are_sends_received();
  }
  // A send or recv of an array on a GPU, begun (device_messages_py.cpp). `form`: of the record; None: not recorded.
  MessagePointer post_device(bool is_send, std::uint64_t nbytes, int dtype, int peer,
                             std::int64_t tag, std::int64_t limit_ns, bool is_async, Form* form,
                             const nb::bytes& description) {
    const std::shared_ptr<Parts> p = parts();
    const auto* data = reinterpret_cast<const std::byte*>(description.c_str());
    std::vector<std::byte> words(data, data + description.size());
    const Moment issued = enter(*p);
    if (!is_async) started_ns_ = issued.now_ns;
    const MessageCall call = message_call(recorder_ ? form : nullptr, issued.now_ns);
    const std::int64_t deadline_ns = issued.job_ns + limit_ns;
    const Region region{nullptr, nbytes};
    const ReleaseGil release;
    return is_send ? p->messages.send_device(region, dtype, peer, tag, deadline_ns, is_async, call,
                                             std::move(words))
                   : p->messages.recv_device(region, dtype, peer, tag, deadline_ns, is_async, call);
  }
  // A blocking send or recv in one call: the group rank it came from. If it fails, `last_message` has
  // the facts.
  int transfer(bool is_send, const View& view, int peer, std::int64_t tag, std::int64_t limit_ns) {
    const std::shared_ptr<Parts> p = parts();
    const Region region{view.data(), view.nbytes()};
    const int dtype = view.dtype_code();
    const Moment issued = enter(*p);
    started_ns_ = issued.now_ns;
    const std::int64_t deadline_ns = issued.job_ns + limit_ns;
    const std::shared_ptr<Form> form = message_form(is_send, view);
    const MessageCall call = message_call(form.get(), started_ns_);
    return carry(*p, is_send, region, nb::find(view), dtype, peer, tag, deadline_ns, call);
  }
  // The same of a message that is known, as run_known.
  bool transfer_known(bool is_send, Region region, nb::handle array, int dtype, int peer,
                      std::int64_t tag, std::int64_t limit_ns, const std::shared_ptr<Form>& known) {
    const std::shared_ptr<Parts> p = parts_;
    const std::shared_ptr<Form> form = known;
    Moment issued;
    if (!p || !enter_known(*p, issued)) return false;
    const MessageCall call = message_call(form.get(), started_ns_, 1);
    carry(*p, is_send, region, array, dtype, peer, tag, issued.job_ns + limit_ns, call);
    return true;
  }
  MessagePointer last_message() const { return last_message_; }

  // `breaks`: reaching the deadline breaks the group, because it is the op's own.
  void wait_message(const MessagePointer& message, std::int64_t deadline_ns, bool breaks) {
    const HeldArrays::WhenDone releases(held_, *message);
    if (message->done()) return message->rethrow();
    const std::shared_ptr<Parts> p = parts();
    const std::shared_ptr<RecorderHandle> recorder = recorder_;
    const RecordedWait waiting(writer(), message->number, site_of_wait(*message),
                               breaks ? no_deadline : deadline_ns);
    const ReleaseGil release;
    p->messages.wait(message, wait_until(*p, deadline_ns), breaks);
  }
  bool is_message_done(const MessagePointer& message) const {
    if (message->done()) return true;
    const std::shared_ptr<Parts> p = parts();
    const ReleaseGil release;
    return p->messages.is_done(message);
  }

  std::vector<std::tuple<bool, std::uint64_t, std::uint64_t, bool>> facts() const;

  void set_level(std::uint32_t level) const { parts()->group.set_level(level); }

  // verdict, seq, seq of the op it crossed, then by rank: sites, whether not contiguous, words.
  nb::list take_suspicions() const;

  std::int64_t started_ns() const { return started_ns_; }

  // Before any op: where ops are recorded, as which group; make_form(is_send, view) makes that of a message.
  void set_recorder(std::shared_ptr<RecorderHandle> recorder, std::uint64_t group,
                    nb::object make_message_form) {
    recorder_ = std::move(recorder);
    record_group_ = group;
    make_message_form_ = std::move(make_message_form);
    parts()->group.set_recorder(recorder_->recorder);
  }

  // Before any wait. Deadlines given to any method are in the job time of this page.
  void set_control(const ControlHandle& handle) const {
    parts()->group.set_control(handle.control);
  }

  // From now on an op that finds other breakpoints armed than before does nothing but throw Fault::breakpoint.
  void notice_breakpoints() { break_generation_ = &parts()->group.control().break_generation(); }

  std::uint64_t count_issued() const { return parts()->group.issued(); }
  std::uint64_t count_messages(bool is_send, int peer) const {
    return parts()->messages.count(is_send, peer);
  }
  bool meets_itself(bool is_send, std::int64_t tag) const {
    return parts()->messages.meets_itself(is_send, tag);
  }

  std::optional<std::tuple<int, int, int, std::uint64_t, std::string>> cause() const {
    const Cause& c = parts()->group.segment().header().cause;
    if (c.state.load(std::memory_order_acquire) != 2) return std::nullopt;
    return std::tuple(c.fault, c.rank, c.noticed_by, c.seq, std::string(c.text));
  }

  // What a call that went well led to, for known_calls.hpp; no plan: it is not kept.
  CompiledPlan plan_of(std::uint64_t code, const CallHandles& handles, std::int64_t extra) {
    return plans_.look_up(code, handles, extra);
  }
  std::shared_ptr<Form> form_of(bool is_send, const View& view) {
    return message_form(is_send, view);
  }

  static constexpr int finish_stand_ins = 1, tell_suspicions = 2;

 private:
  // Of an op, before anything of it has begun: what may throw does it here.
  Moment enter(const Parts& p) {
    if (recorder_) recorder_->look_at_context();
    const Moment now = p.group.control().moment();
    look_for_breakpoints();
    return now;
  }

  void look_for_breakpoints() {
    const std::uint64_t now = break_generation_->load(std::memory_order_acquire);
    if (now == seen_generation_) [[likely]]
      return;
    if (now % 2 != 0) return;  // being written; the next op will see
    seen_generation_ = now;
    throw Error(Fault::breakpoint, "other breakpoints are armed");
  }

  // As enter(); false where that would throw, or the op is not a plain one.
  bool enter_known(const Parts& p, Moment& issued, bool is_async = false) {
    if (is_forked() || p.group.options() != 0) return false;
    if (!is_async && !p.runner.is_idle()) return false;  // it runs behind the others
    if (recorder_) recorder_->look_at_context();
    issued = p.group.control().moment();
    if (break_generation_->load(std::memory_order_acquire) != seen_generation_) return false;
    started_ns_ = issued.now_ns;
    return true;
  }

  // Behind the asynchronous ones, in order, and on their thread.
  static void run_behind(Parts& p, const CompiledPlan& compiled, const CallWords& words,
                         const RecordedOp& recorded, const Regions& in, const Regions& out,
                         std::int64_t deadline_ns, const Describe& known);
  int carry(Parts& p, bool is_send, Region region, nb::handle array, int dtype, int peer,
            std::int64_t tag, std::int64_t deadline_ns, const MessageCall& call) {
    MessagePointer message;
    try {
      const ReleaseGil release;
      message = is_send ? p.messages.send(region, dtype, peer, tag, deadline_ns, false, call)
                        : p.messages.recv(region, dtype, peer, tag, deadline_ns, false, call);
      p.messages.wait(message, wait_until(p, deadline_ns), true);
    } catch (...) {
      last_message_ = message;
      if (message && message->is_left_written) array.inc_ref();
      throw;
    }
    return message->source;
  }

  static Wait wait_until(const Parts& p, std::int64_t deadline_ns) {
    return p.group.wait_until(deadline_ns, &python_interrupted);
  }

  // Where call sites are compared: this one as every host and process would number it.
  void look_at_call(const CallHandles& handles, const CallWords& words, Describe& known) {
    if (words.site != 0) {
      std::uint64_t& hash = site_hashes_[words.site];
      if (hash == 0) {
        const std::string text = words.recorder->site_words(words.site);
        const std::size_t name = text.rfind('/') + 1;  // 0 without folders
        hash = std::max<std::uint64_t>(1, hash_bytes(text.data() + name, text.size() - name));
      }
      known.site = hash;
    }
    for (const nb::handle& views : {handles.inputs, handles.outputs})
      for (const nb::handle view : views)
        if (nb::cast<const View&>(view).is_stand_in) known.flags |= has_stand_in;
  }

  // How many frames of this package lie between a binding and the user's code: at least the engine, the
  // group and the function that was called.
  static constexpr int frames_above_user = 3;
  // The same of a wait: the pending op, twice. A Work is between it and the user, or a group that closes.
  static constexpr int frames_above_wait = 2;

  Recorder* writer() const { return recorder_ ? recorder_->writer() : nullptr; }

  std::uint32_t site_of_wait(const Op& op) const {
    if (!recorder_ || op.number == 0 || Recorder::hides_waits()) return 0;
    return recorder_->sites->here(frames_above_wait);
  }

  static Describe describe(CallWords& words) {
    return {[](void* context) { return static_cast<CallWords*>(context)->make(); }, &words};
  }

  RecordedOp begin(Parts& p, const Plan& plan, std::int64_t issued_ns, std::uint8_t flags,
                   CallWords& words, int frames = frames_above_user) {
    words.facts = &plan.words;
    RecordedOp recorded;
    recorded.seq = p.group.issue();
    if (!recorder_) return recorded;
    OpFacts facts;
    facts.group = record_group_;
    facts.seq = recorded.seq;
    facts.issued_ns = issued_ns;
    facts.site = recorder_->sites->here(frames);
    facts.flags = flags;
    words.recorder = recorder_->recorder.get();
    words.site = facts.site;
    words.comm = words.recorder->comm();
    return recorder_->recorder->begin(facts, plan.form, &words.previous);
  }

  MessageCall message_call(Form* form, std::int64_t issued_ns,
                           int frames = frames_above_user) const {
    MessageCall call;
    if (form == nullptr) return call;
    call.form = form;
    call.group = record_group_;
    call.issued_ns = issued_ns;
    call.site = recorder_->sites->here(frames);
    return call;
  }

  std::shared_ptr<Form> message_form(bool is_send, const View& view) {
    if (!recorder_) return nullptr;
    key_.clear();
    key_.push_back(static_cast<std::uint64_t>(view.dtype_code() + 1) << 1 | (is_send ? 1 : 0));
    for (const Py_ssize_t size : view.dimensions())
      key_.push_back(static_cast<std::uint64_t>(size));
    const std::string_view key(reinterpret_cast<const char*>(key_.data()),
                               key_.size() * sizeof(std::uint64_t));
    if (const auto found = forms_.find(key); found != forms_.end()) return found->second;
    const std::string kept_key(key);
    const nb::object made = make_message_form_(is_send, nb::find(view));
    if (forms_.size() >= 1024) forms_.clear();
    return forms_.emplace(kept_key, std::make_shared<Form>(nb::cast<const Form&>(made)))
        .first->second;
  }

  // All with the GIL held.
  HeldArrays held_;
  std::shared_ptr<RecorderHandle> recorder_;
  std::uint64_t record_group_ = 0;
  nb::object make_message_form_;
  std::vector<std::uint64_t> key_;
  std::unordered_map<std::string, std::shared_ptr<Form>, StringHash, std::equal_to<>> forms_;
  Plans plans_;
  std::unordered_map<std::uint32_t, std::uint64_t> site_hashes_;
  std::int64_t started_ns_ = 0;  // of the last blocking op
  MessagePointer last_message_;  // that failed while blocking
  std::uint32_t generation_ = fork_generation();
  // Of the page that parts_ keeps, or of none.
  const std::atomic<std::uint64_t>* break_generation_ = &Control::none().break_generation();
  std::uint64_t seen_generation_ = 0;
  std::shared_ptr<Parts> parts_;
};

void bind_device_messages(nb::class_<GroupHandle>& group);

}  // namespace distdbg
