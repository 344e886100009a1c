// The reduce op in torch's options, remembered as it is set: torch makes a new object of it each time it is read, which
// takes longer than all else that is read of an op.
#include "attributes.hpp"

namespace distdbg {

namespace {

// A property of torch's that notes the last value set, see distdbg/torch_bridge/tap/methods.py.
class NotedOp {
 public:
  explicit NotedOp(nb::object property)
      : get_(property.attr("fget")), set_(property.attr("fset")) {}

  nb::object read(nb::handle options) const { return get_(options); }

  void write(nb::handle options, nb::handle value) {
    set_(options, value);
    code_ = code(value);
    options_ = nb::borrow(options);  // held, so that no other object is at its place
  }

  // Torch's number of the op in these options.
  Py_hash_t code_of(nb::handle options) {
    if (!options_.is(options)) return code(get_(options));
    options_.reset();
    return code_;
  }

 private:
  static Py_hash_t code(nb::handle op) {
    const Py_hash_t found = PyObject_Hash(op.ptr());
    if (found == -1) nb::raise_python_error();
    return found;
  }

  const nb::object get_;
  const nb::object set_;
  nb::object options_;
  Py_hash_t code_ = 0;
};

// Calls `function` where errors of C++ have to be Python's.
template <class Function>
auto guarded(Function&& function, decltype(function()) failed) -> decltype(function()) {
  try {
    return function();
  } catch (nb::python_error& error) {
    error.restore();
  }
  return failed;
}

PyObject* get_noted(PyObject* self, PyObject* of, PyObject* /*type*/) {
  if (of == nullptr) return Py_NewRef(self);
  return guarded([&] { return nb::inst_ptr<NotedOp>(self)->read(of).release().ptr(); }, nullptr);
}

int set_noted(PyObject* self, PyObject* of, PyObject* value) {
  if (value == nullptr) {
    PyErr_SetString(PyExc_AttributeError, "an option cannot be deleted");
    return -1;
  }
  return guarded(
      [&] {
        nb::inst_ptr<NotedOp>(self)->write(of, value);
        return 0;
      },
      -1);
}

PyType_Slot slots[] = {{Py_tp_descr_get, reinterpret_cast<void*>(get_noted)},
                       {Py_tp_descr_set, reinterpret_cast<void*>(set_noted)},
                       {0, nullptr}};

}  // namespace

void bind_noted_op(nb::module_& module) {
  nb::class_<NotedOp>(module, "NotedOp", "A property that notes the reduce op that was set last.",
                      nb::type_slots(slots))
      .def(nb::init<nb::object>(), nb::arg("property"))
      .def("code_of", &NotedOp::code_of, nb::arg("options"));
}

}  // namespace distdbg
