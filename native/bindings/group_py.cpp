// The Python class of a group's data plane, see group_py.hpp.
#include "group_py.hpp"

namespace distdbg {

// Starts an op that is in no record and stops at no breakpoint: it compares what all are about to do elsewhere, in
// the order of the group's ops.
OpPointer GroupHandle::meet(const CompiledPlan& compiled, std::int64_t limit_ns) {
  const std::shared_ptr<Parts> p = parts();
  const std::int64_t deadline_ns = p->group.control().moment().job_ns + limit_ns;
  CallWords words;
  words.facts = &compiled.plan->words;
  RecordedOp unrecorded;
  unrecorded.seq = p->group.issue();
  if (recorder_) {
    words.recorder = recorder_->recorder.get();
    words.site = recorder_->sites->here(frames_above_user);
    words.comm = words.recorder->comm();
  }
  const ReleaseGil release;
  return p->runner.submit(compiled.plan, words, unrecorded, {}, {}, deadline_ns);
}

OpPointer GroupHandle::submit_known(const CompiledPlan& known, std::vector<Region> in,
                                    std::vector<Region> out, nb::object arrays,
                                    std::int64_t limit_ns) {
  const std::shared_ptr<Parts> p = parts_;
  std::shared_ptr<const Plan> plan = known.plan;
  Moment issued;
  if (!p || !enter_known(*p, issued, true)) return nullptr;
  CallWords words;
  const RecordedOp recorded = begin(*p, *plan, started_ns_, flag_async, words, 1);
  OpPointer op;
  {
    const ReleaseGil release;
    op = p->runner.submit(std::move(plan), words, recorded, std::move(in), std::move(out),
                          issued.job_ns + limit_ns, 0, 0, p->group.level() >= level_detail);
  }
  op->is_plain = true;
  held_.hold(op, std::move(arrays));
  return op;
}

void GroupHandle::run_behind(Parts& p, const CompiledPlan& compiled, const CallWords& words,
                             const RecordedOp& recorded, const Regions& in, const Regions& out,
                             std::int64_t deadline_ns, const Describe& known) {
  const OpPointer op = p.runner.submit(compiled.plan, words, recorded, in.copy(), out.copy(),
                                       deadline_ns, known.site, known.flags);
  try {
    p.runner.wait(*op, wait_until(p, no_deadline));
  } catch (const Error& error) {
    // Interrupted: the arrays must not be touched once the caller has them back.
    if (error.fault() == Fault::interrupted && !op->done()) {
      p.group.break_group(Fault::interrupted, static_cast<int>(p.group.rank()), "was interrupted");
      while (!op->done()) ::usleep(200);
    }
    if (op->is_left_written) Group::note_left_written();
    throw;
  }
}

std::vector<std::tuple<bool, std::uint64_t, std::uint64_t, bool>> GroupHandle::facts() const {
  const std::shared_ptr<Parts> p = parts();
  std::vector<std::tuple<bool, std::uint64_t, std::uint64_t, bool>> all;
  for (std::uint32_t r = 0; r < p->group.size(); ++r) {
    const RankFacts f = p->group.facts(r);
    all.emplace_back(f.attached, f.gate, f.seq, f.left);
  }
  return all;
}

nb::list GroupHandle::take_suspicions() const {
  nb::list all;
  for (const Suspicion& each : parts()->group.take_suspicions()) {
    nb::list words;
    for (const std::string& text : each.descriptions)
      words.append(nb::bytes(text.data(), text.size()));
    all.append(nb::make_tuple(
        each.answer.verdict == SiteOrder::Verdict::crossed ? "crossed" : "layouts", each.seq,
        each.answer.other_seq, nb::cast(each.sites), nb::cast(each.stand_ins), words));
  }
  return all;
}

namespace {

// The quickest of a few: what interrupts one makes it longer, never shorter.
double pause_ns() {
  constexpr int rounds = 1000;
  std::int64_t best = no_deadline;
  for (int i = 0; i < 5; ++i) {
    const std::int64_t began = now_ns();
    for (int k = 0; k < rounds; ++k) cpu_relax();
    best = std::min(best, now_ns() - began);
  }
  return static_cast<double>(best) / rounds;
}

}  // namespace

void bind_group(nb::module_& module) {
  nb::class_<GroupHandle> group(module, "Group", "One rank's side of a group in shared memory.");
  bind_device_messages(group);
  group
      .def_static(
          "create",
          [](std::uint32_t size, std::uint32_t slot_nbytes, std::uint32_t channel_nbytes,
             std::uint64_t cookie, std::uint32_t spins, std::int64_t yield_ns, bool single_copy,
             std::uint32_t options, std::uint32_t checksum_interval, std::uint32_t rank,
             const std::vector<std::uint32_t>& host_of, TcpHub* hub, std::uint64_t link_cookie,
             const std::vector<std::string>& addresses, double keepalive_s, std::uint32_t streams,
             bool has_sums, const PyUcx& ucx) {
            return new GroupHandle(Segment::create(size, slot_nbytes, channel_nbytes, cookie,
                                                   options, checksum_interval),
                                   rank, spins, yield_ns, single_copy,
                                   net_facts(rank, host_of, hub, link_cookie, addresses,
                                             keepalive_s, streams, has_sums, ucx));
          },
          nb::arg("size"), nb::arg("slot_nbytes"), nb::arg("channel_nbytes"), nb::arg("cookie"),
          nb::arg("spins"), nb::arg("yield_ns"), nb::arg("single_copy"), nb::arg("options") = 0,
          nb::arg("checksum_interval") = 0, nb::arg("rank") = 0,
          nb::arg("host_of") = std::vector<std::uint32_t>(), nb::arg("hub").none() = nb::none(),
          nb::arg("link_cookie") = 0, nb::arg("addresses") = std::vector<std::string>(),
          nb::arg("keepalive_s") = 0.0, nb::arg("streams") = 1, nb::arg("has_sums") = false,
          nb::arg("ucx") = nb::none())
      .def_static(
          "open",
          [](std::uint32_t rank, std::int32_t pid, int fd, std::uint64_t cookie,
             std::uint32_t spins, std::int64_t yield_ns, bool single_copy,
             const std::vector<std::uint32_t>& host_of, TcpHub* hub, std::uint64_t link_cookie,
             const std::vector<std::string>& addresses, double keepalive_s, std::uint32_t streams,
             bool has_sums, const PyUcx& ucx) {
            return new GroupHandle(Segment::open(pid, fd, cookie), rank, spins, yield_ns,
                                   single_copy,
                                   net_facts(rank, host_of, hub, link_cookie, addresses,
                                             keepalive_s, streams, has_sums, ucx));
          },
          nb::arg("rank"), nb::arg("pid"), nb::arg("fd"), nb::arg("cookie"), nb::arg("spins"),
          nb::arg("yield_ns"), nb::arg("single_copy"),
          nb::arg("host_of") = std::vector<std::uint32_t>(), nb::arg("hub").none() = nb::none(),
          nb::arg("link_cookie") = 0, nb::arg("addresses") = std::vector<std::string>(),
          nb::arg("keepalive_s") = 0.0, nb::arg("streams") = 1, nb::arg("has_sums") = false,
          nb::arg("ucx") = nb::none())
      .def("join",
           [](const GroupHandle& self, std::int64_t deadline_ns,
              const std::vector<std::tuple<std::int32_t, std::uint64_t>>& members) {
             std::vector<Identity> known;
             for (const auto& [pid, start_time] : members) known.push_back({pid, start_time});
             const std::shared_ptr<Parts> p = self.parts();
             const ReleaseGil release;
             p->group.join(p->group.wait_until(deadline_ns, &python_interrupted), known);
           })
      .def(
          "tune",
          [](const GroupHandle& self, std::uint64_t stream_nbytes, std::uint64_t tile_nbytes,
             std::uint64_t pushed_nbytes, std::uint64_t exchanged_nbytes) {
            self.parts()->group.set_tuning(
                {stream_nbytes, tile_nbytes, pushed_nbytes, exchanged_nbytes});
          },
          "Before any op: what the machine decides, see distdbg/runtime/tuning/profile.py.")
      .def_static("pause_ns", &pause_ns, nb::call_guard<ReleaseGil>(),
                  "How long one round of spinning takes on this machine.")
      .def("measure_links",
           [](const GroupHandle& self, const std::vector<std::uint32_t>& ring,
              std::int64_t deadline_ns) {
             const std::shared_ptr<Parts> p = self.parts();
             std::vector<LinkTimes> times;
             {
               const ReleaseGil release;
               times = p->group.measure_links(
                   ring, p->group.wait_until(deadline_ns, &python_interrupted));
             }
             std::vector<std::pair<std::int64_t, std::int64_t>> by_host;
             for (const LinkTimes& each : times) by_host.emplace_back(each.short_ns, each.long_ns);
             return std::make_pair(by_host, LinkTimes::long_nbytes);
           })
      .def("run", &GroupHandle::run)
      .def("submit", &GroupHandle::submit)
      .def("meet", &GroupHandle::meet)
      .def("wait_op", &GroupHandle::wait_op)
      .def("post", &GroupHandle::post)
      .def("post_note", &GroupHandle::post_note, nb::arg("words").none(), nb::arg("nbytes"),
           nb::arg("peer"), nb::arg("tag"))
      .def("are_sends_received", &GroupHandle::are_sends_received)
      .def("post_device", &GroupHandle::post_device, nb::arg("is_send"), nb::arg("nbytes"),
           nb::arg("dtype"), nb::arg("peer"), nb::arg("tag"), nb::arg("limit_ns"),
           nb::arg("is_async"), nb::arg("form").none(), nb::arg("description"))
      .def("set_recorder", &GroupHandle::set_recorder)
      .def("set_control", &GroupHandle::set_control)
      .def("notice_breakpoints", &GroupHandle::notice_breakpoints)
      .def("count_messages", &GroupHandle::count_messages, nb::call_guard<ReleaseGil>())
      .def("meets_itself", &GroupHandle::meets_itself, nb::call_guard<ReleaseGil>())
      .def_prop_ro("issued", &GroupHandle::count_issued)
      .def("transfer", &GroupHandle::transfer)
      .def_prop_ro("last_message", &GroupHandle::last_message)
      .def("wait_message", &GroupHandle::wait_message)
      .def("is_message_done", &GroupHandle::is_message_done)
      .def("facts", &GroupHandle::facts)
      .def("set_level", &GroupHandle::set_level)
      .def("take_suspicions", &GroupHandle::take_suspicions)
      .def_prop_ro("options", [](const GroupHandle& self) { return self.parts()->group.options(); })
      .def_prop_ro("level", [](const GroupHandle& self) { return self.parts()->group.level(); })
      .def("look", [](const GroupHandle& self) { self.parts()->group.look(); })
      .def("cause", &GroupHandle::cause)
      .def("how_left",
           [](const GroupHandle& self, std::uint32_t rank) {
             const Group& group = self.parts()->group;
             if (rank >= group.size()) throw Error(Fault::usage, "no such rank");
             return group.how_left(rank);
           })
      .def("has_left",
           [](const GroupHandle& self, std::uint32_t rank) {
             Group& group = self.parts()->group;
             if (rank >= group.size()) throw Error(Fault::usage, "no such rank");
             return group.segment().rank(rank).left.load(std::memory_order_acquire) != 0;
           })
      .def("leave_because",
           [](const GroupHandle& self, const nb::str& why, bool at_once) {
             Group& group = self.parts()->group;
             at_once ? group.depart(to_utf8(why)) : group.set_why(to_utf8(why));
           })
      .def("abort",
           [](const GroupHandle& self, const nb::str& text) {
             Group& group = self.parts()->group;
             group.break_group(Fault::broken, static_cast<int>(group.rank()), to_utf8(text));
             group.tell_hosts();
           })
      .def("close", &GroupHandle::close)
      .def_prop_ro("fd", [](const GroupHandle& self) { return self.parts()->group.segment().fd(); })
      .def_prop_ro("single_copy",
                   [](const GroupHandle& self) { return self.parts()->group.single_copy(); })
      .def_prop_ro(
          "slot_nbytes",
          [](const GroupHandle& self) { return self.parts()->group.segment().slot_nbytes(); })
      .def_prop_ro("started_ns", &GroupHandle::started_ns)
      .def_prop_ro("seq", [](const GroupHandle& self) { return self.parts()->group.seq(); });
}

}  // namespace distdbg
