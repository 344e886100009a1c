// The messages of another library's group as its tap sees them, see distdbg/torch_bridge/tap/lane_message.py: one call
// records a message, posts what is said of it beside it, and hands it to torch; one call waits for it.
#include <nanobind/stl/string.h>

#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "tap_ops.hpp"
#include "torch_keys.hpp"

namespace distdbg {

namespace {

// Lines, and words of the other side, that are kept for one look.
constexpr std::size_t most_seen = 64;

// Attributes of the objects of distdbg/torch_bridge/tap, each name made once.
struct Names {
  PyObject* const are_certain = intern("are_certain");
  PyObject* const compare_first = intern("compare_first");
  PyObject* const held = intern("held");
  PyObject* const known = intern("known");
  PyObject* const lane = intern("lane");
  PyObject* const level = intern("level");
  PyObject* const lost_tags = intern("lost_tags");
  PyObject* const make_words = intern("make_words");
  PyObject* const note = intern("note");
  PyObject* const on_unposted = intern("on_unposted");
  PyObject* const on_unstarted = intern("on_unstarted");
  PyObject* const on_work_class = intern("on_work_class");
  PyObject* const op = intern("op");
  PyObject* const raise_trouble = intern("raise_trouble");
  PyObject* const seq = intern("seq");
  PyObject* const trouble = intern("trouble");
  PyObject* const watch = intern("watch");
  PyObject* const wide = intern("wide");
  PyObject* const work = intern("work");
};

const Names& names() {
  static const Names all;
  return all;
}

// What all messages of one look have in common, and what was said of them so far.
struct MessageLook {
  nb::object form;
  nb::object place;  // in the counts of messages
  bool is_send = false;
  int peer = -1;
  int device = -1;
  std::int64_t tag = 0;
  std::int64_t common_tag = 0;                          // of notes: the backend may ignore tags
  std::unordered_map<std::uint32_t, nb::object> words;  // of this side, by the lines that called
  std::vector<std::string> alike;                       // of the other side, compared before

  bool is_alike(std::string_view said) const {
    for (const std::string& each : alike)
      if (each == said) return true;
    return false;
  }
  void note_alike(std::string_view said) {
    if (alike.size() >= most_seen) alike.clear();
    alike.emplace_back(said);
  }
};

class TappedMessages {
 public:
  // `checks`: runtime/backends/checked/messages.py. `counts`: of messages so far, by place. `waits`: who waits in torch.
  // `kind`: the class of what `launch` makes of each. `note_nbytes`: of what both sides say. `key`: of our kernels.
  TappedMessages(nb::object ops, std::shared_ptr<RecorderHandle> recorder, GroupHandle& control,
                 nb::object engine, nb::object checks, nb::object order, nb::dict counts,
                 nb::dict waits, nb::object kind, std::uint64_t note_nbytes, nb::object key)
      : ops_object_(std::move(ops)),
        ops_(nb::cast<TappedOps&>(ops_object_)),
        recorder_(std::move(recorder)),
        parts_(control.parts()),
        engine_(std::move(engine)),
        checks_(std::move(checks)),
        acquire_(order.attr("acquire")),
        release_(order.attr("release")),
        counts_(std::move(counts)),
        waits_(std::move(waits)),
        kind_(std::move(kind)),
        note_nbytes_(note_nbytes),
        keys_(std::move(key)) {}

  // A message from its begin until torch has it: its Work. `lane_ops`, `work_classes`: as groups.py has them.
  // NotImplemented: nothing was started, and it takes the long way.
  nb::object launch(nb::handle lane, nb::handle known, MessageLook& look, nb::handle groups,
                    nb::handle start, const nb::tuple& arguments) {
    const Names& n = names();
    if (!parts_ || !is_certain(look)) return nb::borrow(Py_NotImplemented);
    nb::object message;
    {
      const Locked in_order(acquire_, release_);
      const std::uint64_t seq = count(look) + 1;
      std::optional<TappedOp> op =
          ops_.begin_message(nb::cast<Form&>(look.form), seq, look.tag, look.peer, flags);
      if (!op) return nb::borrow(Py_NotImplemented);
      if (PyDict_SetItem(counts_.ptr(), look.place.ptr(),
                         owned(PyLong_FromUnsignedLongLong(seq)).ptr()) != 0)
        nb::raise_python_error();
      const std::uint32_t site = op->site;
      message = make(lane, known, nb::cast(std::move(*op)), seq);
      const nb::object words = look.is_send ? words_of(known, look, site) : nb::object();
      try {
        const MessagePointer note = post(look, words);
        if (!look.is_send) set(message, n.note, nb::cast(note));
      } catch (
          const Error&) {  // the group has been broken in this moment: posted again, it says why
        if (!nb::cast<bool>(get(message, n.on_unposted)())) return nb::borrow(Py_NotImplemented);
      }
    }
    if (!look.is_send && nb::cast<int>(get(engine_, n.level)) == level_detail_of_check &&
        !nb::cast<bool>(get(message, n.compare_first)()))
      return nb::borrow(Py_NotImplemented);
    nb::object work;
    const nb::object op = get(message, n.op);
    ops_.begin_on_device(nb::cast<TappedOp&>(op), look.device, true);
    try {
      const TorchKeys::Excluded below(keys_);
      work = owned(PyObject_CallObject(start.ptr(), arguments.ptr()));
    } catch (nb::python_error& error) {
      get(message,
          n.on_unstarted)(error.value());  // may raise the reason, which its caller gets instead
      throw;
    }
    remember(groups, message, work);
    return work;
  }

  // Waits for it in torch, then compares. False: it is not over, and Python has to say how it is; what torch raises is
  // raised as it is.
  bool wait(nb::handle message, MessageLook& look, nb::handle work, nb::handle real) {
    const Names& n = names();
    const nb::object op_object = get(message, n.op);
    TappedOp& op = nb::cast<TappedOp&>(op_object);
    {
      Recorder* const writer = Recorder::hides_waits() ? nullptr : recorder_->writer();
      const RecordedWait waiting(writer, op.number,
                                 writer == nullptr ? 0 : recorder_->sites->here(frames_above_wait));
      const Listed listed(waits_, message);
      PyObject* arguments[] = {work.ptr()};
      owned(PyObject_Vectorcall(real.ptr(), arguments, 1, nullptr));
    }
    op.leave_to_device(look.is_send ? -1 : look.peer);
    if (!get(message, n.trouble).is_none() || !is_as_expected(message, look)) return false;
    op.end(0, look.is_send ? -1 : look.peer);
    if (!ops_.are_all_well()) get(get(message, n.lane), n.raise_trouble)();
    return true;
  }

  // Leaves the control group alone from here on, so that it can be closed.
  void close() { parts_.reset(); }

 private:
  static constexpr int flags = flag_async | flag_message | flag_end_noticed;
  // The wait of Work that torch's is replaced by, and that of the message.
  static constexpr int frames_above_wait = 2;

  bool is_certain(const MessageLook& look) const {
    const Names& n = names();
    if (!get(checks_, n.are_certain).is(nb::handle(Py_True))) return false;
    const nb::object lost = get(checks_, n.lost_tags);
    if (PySet_Size(lost.ptr()) == 0) return true;
    return PySet_Contains(lost.ptr(), owned(PyLong_FromLongLong(look.common_tag)).ptr()) == 0;
  }

  std::uint64_t count(const MessageLook& look) const {
    PyObject* const so_far = PyDict_GetItemWithError(counts_.ptr(), look.place.ptr());
    if (so_far == nullptr && PyErr_Occurred() != nullptr) nb::raise_python_error();
    return so_far == nullptr ? 0 : PyLong_AsUnsignedLongLong(so_far);
  }

  // Its object, made without a frame of Python.
  nb::object make(nb::handle lane, nb::handle known, const nb::object& op, std::uint64_t seq) {
    const Names& n = names();
    nb::object made = owned(PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(kind_.ptr()), 0));
    set(made, n.lane, lane);
    set(made, n.known, known);
    set(made, n.op, op);
    set(made, n.seq, owned(PyLong_FromUnsignedLongLong(seq)));
    for (PyObject* const each : {n.work, n.held, n.wide, n.note, n.watch, n.trouble})
      set(made, each, nb::handle(Py_None));
    return made;
  }

  // What this side says, from the line at hand.
  static nb::object words_of(nb::handle known, MessageLook& look, std::uint32_t site) {
    const auto found = look.words.find(site);
    if (found != look.words.end()) return found->second;
    nb::object words = get(known, names().make_words)();
    if (look.words.size() >= most_seen) look.words.clear();
    look.words.emplace(site, words);
    return words;
  }

  MessagePointer post(const MessageLook& look, const nb::object& words) const {
    const std::shared_ptr<Parts> parts = parts_;
    if (!look.is_send) {
      const ReleaseGil release;
      return parts->messages.recv_note(note_nbytes_, look.peer, look.common_tag);
    }
    const auto known = nb::cast<nb::bytes>(words);
    const std::span said(static_cast<const std::byte*>(known.data()), known.size());
    const ReleaseGil release;
    return parts->messages.send_note(said, note_nbytes_, look.peer, look.common_tag);
  }

  // Until somebody waits for it.
  static void remember(nb::handle groups, nb::handle message, const nb::object& work) {
    const Names& n = names();
    const TapNames& tap = tap_names();
    if (work.is_none()) {  // torch has nothing to wait for: to the program it has ended
      nb::cast<TappedOp&>(get(message, n.op)).end(0, -1);
      return;
    }
    if (PySet_Contains(get(groups, tap.work_classes).ptr(),
                       reinterpret_cast<PyObject*>(Py_TYPE(work.ptr()))) != 1)
      get(groups, n.on_work_class)(work.type());
    set(message, n.work, owned(PyWeakref_NewRef(work.ptr(), nullptr)));
    const nb::object id = owned(PyLong_FromVoidPtr(work.ptr()));
    if (PyDict_SetItem(get(groups, tap.lane_ops).ptr(), id.ptr(), message.ptr()) != 0)
      nb::raise_python_error();
  }

  // Whether what its sender has said of it is what was compared before.
  bool is_as_expected(nb::handle message, const MessageLook& look) const {
    const Names& n = names();
    const nb::object object = get(message, n.note);
    if (object.is_none()) return true;
    const auto note = nb::cast<MessagePointer>(object);
    if (!note->done()) {
      const std::shared_ptr<Parts> parts = parts_;
      if (!parts) return false;
      const ReleaseGil release;
      if (!parts->messages.is_done(note)) return false;
    }
    if (note->error) return false;
    if (nb::cast<int>(get(engine_, n.level)) > 0 && !look.is_alike(note->note_words()))
      return false;
    set(message, n.note, nb::handle(Py_None));
    return true;
  }

  // Among those that somebody waits for in torch, for a block.
  class Listed {
   public:
    Listed(const nb::dict& waits, nb::handle message)
        : waits_(waits), id_(owned(PyLong_FromVoidPtr(message.ptr()))) {
      if (PyDict_SetItem(waits_.ptr(), id_.ptr(), message.ptr()) != 0) nb::raise_python_error();
    }
    ~Listed() {
      if (PyDict_DelItem(waits_.ptr(), id_.ptr()) != 0) PyErr_Clear();
    }
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;

   private:
    const nb::dict& waits_;
    const nb::object id_;
  };

  const nb::object ops_object_;
  TappedOps& ops_;
  const std::shared_ptr<RecorderHandle> recorder_;
  std::shared_ptr<Parts> parts_;
  const nb::object engine_;
  const nb::object checks_;
  const nb::object acquire_;  // of the lock that keeps the ops in order
  const nb::object release_;
  const nb::dict counts_;
  const nb::dict waits_;
  const nb::object kind_;
  const std::uint64_t note_nbytes_;
  const TorchKeys keys_;
};

}  // namespace

void bind_tap_messages(nb::module_& module) {
  nb::class_<MessageLook>(module, "MessageLook",
                          "What messages have in common that look alike to a tap.")
      .def(
          "__init__",
          [](MessageLook* self, nb::object form, nb::object place, bool is_send, int peer,
             std::int64_t tag, std::int64_t common_tag, int device) {
            new (self) MessageLook{.form = std::move(form),
                                   .place = std::move(place),
                                   .is_send = is_send,
                                   .peer = peer,
                                   .device = device,
                                   .tag = tag,
                                   .common_tag = common_tag,
                                   .words = {},
                                   .alike = {}};
          },
          nb::arg("form"), nb::arg("place"), nb::arg("is_send"), nb::arg("peer"), nb::arg("tag"),
          nb::arg("common_tag"), nb::arg("device") = -1)
      .def_ro("common_tag", &MessageLook::common_tag)
      .def(
          "is_alike",
          [](const MessageLook& self, const nb::bytes& said) {
            return self.is_alike({said.c_str(), said.size()});
          },
          nb::arg("said"))
      .def(
          "note_alike",
          [](MessageLook& self, const nb::bytes& said) {
            self.note_alike({said.c_str(), said.size()});
          },
          nb::arg("said"));

  nb::class_<TappedMessages>(module, "TappedMessages",
                             "The messages of a group whose backend is not ours.")
      .def(nb::init<nb::object, std::shared_ptr<RecorderHandle>, GroupHandle&, nb::object,
                    nb::object, nb::object, nb::dict, nb::dict, nb::object, std::uint64_t,
                    nb::object>(),
           nb::arg("ops"), nb::arg("recorder"), nb::arg("control"), nb::arg("engine"),
           nb::arg("checks"), nb::arg("order"), nb::arg("counts"), nb::arg("waits"),
           nb::arg("kind"), nb::arg("note_nbytes"), nb::arg("key"))
      .def("launch", &TappedMessages::launch, nb::arg("lane"), nb::arg("known"), nb::arg("look"),
           nb::arg("groups"), nb::arg("start"), nb::arg("arguments"))
      .def("wait", &TappedMessages::wait, nb::arg("message"), nb::arg("look"), nb::arg("work"),
           nb::arg("real"))
      .def("close", &TappedMessages::close);
}

}  // namespace distdbg
