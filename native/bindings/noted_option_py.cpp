// NotedOption in Python: a descriptor in the place of torch's property.
#include "noted_option.hpp"

namespace distdbg {

namespace {

PyObject* get_noted(PyObject* self, PyObject* of, PyObject* /*type*/) {
  if (of == nullptr) return Py_NewRef(self);
  return guarded([&] { return nb::inst_ptr<NotedOption>(self)->read(of).release().ptr(); },
                 nullptr);
}

int set_noted(PyObject* self, PyObject* of, PyObject* value) {
  if (value == nullptr) {
    PyErr_SetString(PyExc_AttributeError, "an option cannot be deleted");
    return -1;
  }
  return guarded(
      [&] {
        nb::inst_ptr<NotedOption>(self)->write(of, value);
        return 0;
      },
      -1);
}

PyType_Slot slots[] = {{Py_tp_descr_get, reinterpret_cast<void*>(get_noted)},
                       {Py_tp_descr_set, reinterpret_cast<void*>(set_noted)},
                       {0, nullptr}};

}  // namespace

void bind_noted_option(nb::module_& module) {
  nb::class_<NotedOption>(module, "NotedOption", "A property that notes what was set last.",
                          nb::type_slots(slots))
      .def(nb::init<nb::object, bool>(), nb::arg("property"), nb::arg("is_flag") = false)
      .def("code_of", &NotedOption::code_of, nb::arg("options"))
      .def_prop_ro("was_set", &NotedOption::was_set);
}

}  // namespace distdbg
