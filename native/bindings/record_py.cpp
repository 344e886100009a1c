#include "record_py.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "event_reader.hpp"
#include "queued_ops.hpp"

namespace distdbg {

void RecorderHandle::set_context_source(nb::object ask, nb::str module) {
  ask_context_ = ask.is_none() ? nb::object() : std::move(ask);
  context_module_ = std::move(module);
}

void RecorderHandle::write_context() {
  if (PyDict_Contains(PyImport_GetModuleDict(), context_module_.ptr()) != 1) {
    PyErr_Clear();
    return;
  }
  Recorder* const to = writer();
  if (to == nullptr) return;
  const nb::object ask = ask_context_;  // it stays while it is called
  const nb::object words = ask(to->last_number());
  if (words.is_none()) return;
  const auto [high, low, span, is_sampled] =
      nb::cast<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, bool>>(words);
  to->set_context({high, low, span, is_sampled});
}

namespace {

Form make_form(const nb::bytes& text, const nb::str& name, int kind, std::uint64_t nbytes,
               std::uint64_t fingerprint, const nb::str& dtype) {
  Form form;
  form.text.assign(text.c_str(), text.size());
  form.name = to_utf8(name);
  form.dtype = to_utf8(dtype);
  form.kind = static_cast<std::uint8_t>(kind);
  form.nbytes = nbytes;
  form.fingerprint = fingerprint;
  return form;
}

// An op of a backend that is not ours, from its begin to its end.
struct ForeignOp {
  std::shared_ptr<RecorderHandle> handle;
  RecordedOp op;
  std::uint64_t number = 0;
  std::shared_ptr<WatchedOp> watched;  // then `op` is there
  std::int64_t ran_ns = -1;            // by a device's clock; -1: it did not measure
  QueuedEnd queued;                    // or in a queue of its device's

  void watch(EventReader& reader, std::uintptr_t begin, std::uintptr_t end, int source) {
    if (handle->writer() == nullptr || watched) return;
    watched = std::make_shared<WatchedOp>(handle->recorder, op);
    reader.watch(watched, to_event(begin), to_event(end), source);
  }
  void started() {
    Recorder* const writer = handle->writer();
    if (writer == nullptr) return;
    if (!watched) return writer->started(op);
    const auto keep = watched;
    const ReleaseGil released;  // the reader holds its lock while it asks the driver
    keep->started();
  }
  void ended(std::uint32_t status, int source) {
    Recorder* const writer = handle->writer();
    if (writer == nullptr) return;
    if (!watched && queued.take(*writer, handle->recorder, op, status, source)) return;
    if (!watched && status == 0 && ran_ns >= 0) return writer->ended_after(op, ran_ns, source);
    if (!watched) return writer->ended(op, status, source);
    const auto keep = watched;
    const ReleaseGil released;
    keep->ended(status, source);
  }

 private:
  static void* to_event(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
};

}  // namespace

void bind_record(nb::module_& module) {
  nb::class_<Form>(module, "Form", "What calls of one shape have in common, in a record.")
      .def(
          "__init__",
          [](Form* self, const nb::bytes& text, const nb::str& name, int kind, std::uint64_t nbytes,
             std::uint64_t fingerprint, const nb::str& dtype) {
            new (self) Form(make_form(text, name, kind, nbytes, fingerprint, dtype));
          },
          nb::arg("text"), nb::arg("name"), nb::arg("kind"), nb::arg("nbytes"),
          nb::arg("fingerprint"), nb::arg("dtype") = "");

  nb::class_<ForeignOp>(module, "RecordedOp", "An op in flight in a backend that is not ours.")
      .def_prop_ro("number", [](const ForeignOp& self) { return self.number; })
      .def("started", &ForeignOp::started)
      .def("ended", &ForeignOp::ended)
      .def(
          "measured", [](ForeignOp& self, std::int64_t ran_ns) { self.ran_ns = ran_ns; },
          nb::arg("ran_ns"), "Its device says how long it took; `ended` counts back from the end.")
      .def(
          "set_begin", [](ForeignOp& self, const QueuedBegin& begin) { self.queued.begin = begin; },
          nb::arg("begin"), "Its device has it from `ended` on, and the record its end from there.")
      .def(
          "end_behind",
          [](ForeignOp& self, nb::handle future) {
            Recorder* const writer = self.handle->writer();
            if (writer != nullptr &&
                !self.queued.take_behind(future, *writer, self.handle->recorder, self.op))
              writer->ended(self.op, 0, -1);
          },
          nb::arg("future"), "The future is done with having queued it.")
      .def(
          "left_device", [](ForeignOp& self) { self.queued.leave(); },
          "Its device has done it, as its library says.")
      // Events of CUDA, by their addresses; they stay until `stop_watching` or `ended` has returned. One
      // thread at a time calls these, the others may run beside them.
      .def("watch", &ForeignOp::watch, nb::arg("reader"), nb::arg("begin"), nb::arg("end"),
           nb::arg("source"))
      .def("stop_watching", [](ForeignOp& self) {
        const auto watched = self.watched;
        const ReleaseGil released;
        if (watched) watched->stop_watching();
      });

  nb::class_<QueuedBegin>(module, "QueuedBegin", "Where an op began in a stream of its device.")
      .def_prop_ro("is_queued", [](const QueuedBegin& self) { return self.ops != nullptr; })
      .def_prop_ro("has_event", [](const QueuedBegin& self) { return self.event != nullptr; });

  nb::class_<StreamEvents>(module, "StreamEvents", "Events of ours in a GPU's streams.")
      .def(nb::new_([](const std::string& path) {
             return std::make_shared<StreamEvents>(open_cuda_events(path), open_cuda_streams(path));
           }),
           nb::arg("path"));

  nb::class_<QueuedOps>(module, "QueuedOps",
                        "A group's ops that a GPU has in its queues when their call returns.")
      .def(nb::new_([](std::shared_ptr<StreamEvents> events, std::shared_ptr<EventReader> reader,
                       nb::object current_stream, nb::object wait_in) {
             return std::make_shared<QueuedOps>(std::move(events), std::move(reader),
                                                std::move(current_stream), std::move(wait_in));
           }),
           nb::arg("events").none(), nb::arg("reader").none(), nb::arg("current_stream").none(),
           nb::arg("wait_in").none())
      .def("begin", &QueuedOps::begin, nb::arg("device"), nb::arg("is_async"))
      .def_rw("is_in_block", &QueuedOps::is_in_block)
      .def("broken_off", &QueuedOps::broken_off, nb::arg("status"));

  nb::class_<EventReader>(
      module, "EventReader",
      "Reads from a GPU's driver when ops start and end, on a thread of its own.")
      .def(
          "__init__",
          [](EventReader* self, const std::string& path) {
            new (self) EventReader(open_cuda_events(path));
          },
          nb::arg("path"))
      .def("close", &EventReader::close, nb::call_guard<ReleaseGil>());

  nb::class_<RecorderHandle>(module, "Recorder", "The writer of a rank's record.",
                             nb::is_weak_referenceable())
      .def_static(
          "create",
          [](const std::optional<nb::bytes>& path, int rank, int world_size,
             const std::string& host, const std::string& boot_id,
             const std::string& distdbg_version, const std::string& python_version,
             const std::string& run, const std::string& argv, std::uint32_t ring_count) {
            const RecordFacts facts{rank,           world_size, host, boot_id, distdbg_version,
                                    python_version, run,        argv};
            return std::make_shared<RecorderHandle>(
                path ? Recorder::create({path->c_str(), path->size()}, facts, ring_count)
                     : Recorder::in_memory(facts, ring_count));
          },
          nb::arg("path").none(), nb::arg("rank"), nb::arg("world_size"), nb::arg("host"),
          nb::arg("boot_id"), nb::arg("distdbg_version"), nb::arg("python_version"), nb::arg("run"),
          nb::arg("argv"), nb::arg("ring_count"))
      .def_prop_ro("path",
                   [](const RecorderHandle& self) -> std::optional<nb::bytes> {
                     const std::string& path = self.recorder->path();
                     if (path.empty()) return std::nullopt;
                     return nb::bytes(path.data(), path.size());
                   })
      .def_prop_ro("is_forked",
                   [](const RecorderHandle& self) { return self.recorder->is_forked(); })
      .def("add_group",
           [](RecorderHandle& self, const nb::str& name, const nb::str& desc,
              const std::string& ranks, const std::string& backend, int size, int rank,
              std::int64_t timeout_ns) {
             Recorder* const writer = self.writer();
             if (writer == nullptr) return std::uint64_t{0};
             return writer->add_group({to_utf8(name), to_utf8(desc), ranks, backend, size, rank,
                                       timeout_ns, self.sites->here(0)});
           })
      .def("close_group",
           [](RecorderHandle& self, std::uint64_t group) {
             if (Recorder* const writer = self.writer())
               writer->close_group(group, self.sites->here(0));
           })
      .def("begin",
           [](const std::shared_ptr<RecorderHandle>& self, std::uint64_t group, Form& form,
              std::uint64_t seq, std::int64_t value, int peer, int flags) {
             if (self->writer() == nullptr) return ForeignOp{self, {}, 0, {}, -1, {}};
             self->look_at_context();
             OpFacts facts;
             facts.group = group;
             facts.seq = seq;
             facts.issued_ns = now_ns();
             facts.value = value;
             facts.site = self->sites->here(0);
             facts.peer = peer;
             facts.flags = static_cast<std::uint8_t>(flags);
             ForeignOp op{self, self->recorder->begin(facts, form), 0, {}, -1, {}};
             op.queued.is_message = (flags & flag_message) != 0;
             op.number = op.op.number;
             return op;
           })
      .def(
          "note",
          [](RecorderHandle& self, int type, std::uint64_t group, std::uint64_t seq,
             std::int64_t value, Form* form, std::uint64_t text) {
            if (self.writer() == nullptr) return std::uint64_t{0};
            const auto event = static_cast<EventType>(type);
            if (event == EventType::mark || event == EventType::span_begin) self.look_at_context();
            OpFacts facts;
            facts.group = group;
            facts.seq = seq;
            facts.issued_ns = now_ns();
            facts.value = value;
            facts.site = self.sites->here(0);
            return self.recorder->note(event, facts, form, text);
          },
          nb::arg("type"), nb::arg("group"), nb::arg("seq"), nb::arg("value"),
          nb::arg("form").none(), nb::arg("text"))
      .def("add_text",
           [](RecorderHandle& self, const nb::bytes& text) {
             if (self.writer() == nullptr) return std::uint64_t{0};
             return self.recorder->add_text({text.c_str(), text.size()});
           })
      .def("set_error",
           [](RecorderHandle& self, std::uint64_t number, std::uint64_t text) {
             if (Recorder* const writer = self.writer()) writer->set_error(number, text);
           })
      .def("set_broken",
           [](RecorderHandle& self, std::uint64_t group, std::uint64_t text) {
             if (Recorder* const writer = self.writer()) writer->set_broken(group, text);
           })
      .def("set_exit",
           [](RecorderHandle& self, std::uint64_t how, std::uint64_t text) {
             if (Recorder* const writer = self.writer()) writer->set_exit(how, text);
             self.has_raised |= how == 3;
           })
      .def_ro("has_raised", &RecorderHandle::has_raised)
      // For waits that are not in native code; returns what end_wait takes.
      .def(
          "begin_wait",
          [](RecorderHandle& self, std::uint64_t number, std::uint32_t thread, bool is_limited) {
            Recorder* const writer = self.writer();
            if (writer == nullptr || number == 0 || Recorder::hides_waits()) return -1;
            return writer->begin_wait(number, thread != 0 ? 0 : self.sites->here(0), thread,
                                      is_limited);
          },
          nb::arg("number"), nb::arg("thread") = 0, nb::arg("is_limited") = false)
      .def("end_wait",
           [](RecorderHandle& self, int place) {
             if (Recorder* const writer = self.writer()) writer->end_wait(place);
           })
      .def_static("hide_waits", &Recorder::hide_waits)
      .def("set_level",
           [](RecorderHandle& self, int level) {
             if (Recorder* const writer = self.writer())
               writer->set_level(static_cast<std::uint8_t>(level));
           })
      .def(
          "skip_folder",
          [](RecorderHandle& self, std::string folder) {
            self.sites->skip_folder(std::move(folder));
          },
          nb::arg("folder"))
      .def("set_context_source", &RecorderHandle::set_context_source, nb::arg("ask").none(),
           nb::arg("module"))
      .def_prop_ro("ring_count",
                   [](const RecorderHandle& self) { return self.recorder->ring_count(); })
      .def("set_comm",
           [](RecorderHandle& self, const nb::str& name) {
             if (Recorder* const writer = self.writer()) writer->set_comm(to_utf8(name));
           })
      .def_prop_ro("comm",
                   [](const RecorderHandle& self) {
                     return std::string(self.recorder->string(self.recorder->comm()));
                   })
      .def_static("reads_frames", &CallSites::reads_frames)
      // "train.py:88 (step)" of the caller outside this package.
      .def(
          "call_site",
          [](RecorderHandle& self, std::size_t most_nbytes) {
            return self.recorder->site_words(self.sites->here(0), most_nbytes);
          },
          nb::arg("most_nbytes"))
      .def("site_words",
           [](RecorderHandle& self, std::uint32_t site) { return self.recorder->site_words(site); })
      // The sizes and offsets that distdbg/record/format.py must agree with.
      .def_static("layout", [] {
        nb::dict layout;
        layout["OP"] = sizeof(OpEntry);
        layout["GROUP"] = sizeof(GroupEntry);
        layout["COUNTER"] = sizeof(CounterEntry);
        layout["FORM"] = sizeof(FormEntry);
        layout["SITE"] = sizeof(SiteEntry);
        layout["TEXT"] = sizeof(TextEntry);
        layout["WAIT"] = sizeof(WaitEntry);
        layout["HEADER"] = sizeof(RecordHeader);
        layout["STATE"] = sizeof(RecordState);
        return layout;
      });
}

}  // namespace distdbg
