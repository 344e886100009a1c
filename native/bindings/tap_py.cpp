// The classes of tap_ops.hpp in Python.
#include "tap_ops.hpp"

namespace distdbg {

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
      .def("launch", &TappedOps::launch, nb::arg("lane"), nb::arg("known"), nb::arg("is_async"),
           nb::arg("limit_ns"), nb::arg("is_boxed"), nb::arg("comm"), nb::arg("start"),
           nb::arg("arguments"), nb::arg("is_foreseen") = false)
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
