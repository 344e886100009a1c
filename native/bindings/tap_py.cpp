// The classes of tap_ops.hpp in Python.
#include "tap_ops.hpp"

namespace distdbg {

namespace {

// A lane has its ops, and these have what is the lane's.
int visit_ops(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<TappedOps>(self)->visit(visit, arg) : 0;
}

int clear_ops(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<TappedOps>(self)->forget_lane();
  return 0;
}

// Without the bound method that a `__call__` of Python's would be.
PyObject* call_end(PyObject* self, PyObject* args, PyObject* named) {
  if (PyTuple_Size(args) != 1 || (named != nullptr && PyDict_Size(named) != 0)) {
    PyErr_SetString(PyExc_TypeError, "it is called with a future");
    return nullptr;
  }
  return guarded(
      [&] {
        (*nb::inst_ptr<TappedEnd>(self))(PyTuple_GetItem(args, 0));
        return Py_NewRef(Py_None);
      },
      nullptr);
}

PyType_Slot slots_of_end[] = {{Py_tp_call, reinterpret_cast<void*>(call_end)}, {0, nullptr}};

PyType_Slot slots_of_ops[] = {{Py_tp_traverse, reinterpret_cast<void*>(visit_ops)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear_ops)},
                              {0, nullptr}};

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
      .def("ended", &TappedOp::end, nb::arg("status") = 0, nb::arg("source") = -1)
      .def("end_behind", &TappedOp::end_behind, nb::arg("future"))
      .def("leave_to_device", &TappedOp::leave_to_device, nb::arg("source"))
      .def("left_device", [](TappedOp& self) { self.queued.leave(); });

  nb::class_<TappedEnd>(module, "TappedEnd", "Told by torch that an op has ended.",
                        nb::type_slots(slots_of_end))
      .def(nb::init<nb::object, nb::object, nb::object>(), nb::arg("op"), nb::arg("owner"),
           nb::arg("followed"));

  nb::class_<TappedOps>(module, "TappedOps", "The ops of a group whose backend is not ours.",
                        nb::type_slots(slots_of_ops))
      .def(nb::init<std::shared_ptr<RecorderHandle>, std::uint64_t, GroupHandle*,
                    const ControlHandle*, std::shared_ptr<QueuedOps>>(),
           nb::arg("recorder"), nb::arg("group"), nb::arg("control").none(), nb::arg("page").none(),
           nb::arg("queued").none() = nb::none())
      .def("begin", &TappedOps::begin, nb::arg("form"), nb::arg("plan").none(), nb::arg("seq"),
           nb::arg("limit_ns"), nb::arg("flags"), nb::arg("about"), nb::arg("comm") = "")
      .def("launch", &TappedOps::launch, nb::arg("lane"), nb::arg("known"), nb::arg("is_async"),
           nb::arg("limit_ns"), nb::arg("is_boxed"), nb::arg("comm"), nb::arg("start"),
           nb::arg("arguments"), nb::arg("is_foreseen") = false)
      .def("set_own_launch", &TappedOps::set_own_launch, nb::arg("launch"))
      .def("end", &TappedOps::end, nb::arg("op"))
      .def("begin_message", &TappedOps::begin_message, nb::arg("form"), nb::arg("seq"),
           nb::arg("tag"), nb::arg("peer"), nb::arg("flags"))
      .def("agree", &TappedOps::agree, nb::arg("op"), nb::arg("plan"), nb::arg("limit_ns"))
      .def("are_all_well", &TappedOps::are_all_well)
      .def("unsettled", &TappedOps::unsettled)
      .def("take_unsettled", &TappedOps::take_unsettled)
      .def("forget", &TappedOps::forget, nb::arg("op"))
      .def("go_on", &TappedOps::go_on)
      .def("close", &TappedOps::close);
}

}  // namespace distdbg
