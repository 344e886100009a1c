// How a View gets and gives back its memory, and what of it Python sees.
#include "view.hpp"

#include "hash.hpp"

namespace distdbg {

View::View(nb::handle object, bool writable, int dtype_code)
    : array(nb::borrow(object)), finish(nb::none()), dtype_code_(dtype_code), writable_(writable) {
  if (dtype_code != unknown_dtype && !is_dtype(dtype_code)) {
    throw nb::value_error("not a dtype code");
  }
  if (object.is_none()) {
    buffer_.itemsize = 1;
    return;
  }
  const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) throw nb::python_error();
  if (dtype_code != unknown_dtype &&
      itemsize(static_cast<Dtype>(dtype_code)) != static_cast<std::uint64_t>(buffer_.itemsize)) {
    PyBuffer_Release(&buffer_);
    throw nb::value_error("the items of the buffer have another size than the dtype");
  }
  // An exporter may answer 0 for items it has none of.
  if (buffer_.itemsize <= 0) buffer_.itemsize = 1;
}

View::~View() { PyBuffer_Release(&buffer_); }

nb::tuple View::shape() const {
  nb::object result = nb::steal(PyTuple_New(buffer_.ndim));
  if (!result.is_valid()) throw nb::python_error();
  for (int i = 0; i < buffer_.ndim; ++i) {
    PyObject* extent = PyLong_FromSsize_t(buffer_.shape[i]);
    if (extent == nullptr || PyTuple_SetItem(result.ptr(), i, extent) != 0) {
      throw nb::python_error();
    }
  }
  return nb::borrow<nb::tuple>(result);
}

void bind_view(nb::module_& module) {
  nb::class_<View>(module, "View")
      .def(nb::init<nb::handle, bool, int>(),
           nb::sig("def __init__(self, obj: typing.Any, writable: bool, dtype_code: int = -1) -> "
                   "None"),
           nb::arg("obj").none(), nb::arg("writable"), nb::arg("dtype_code") = View::unknown_dtype)
      .def_prop_ro("nbytes", &View::nbytes)
      .def_prop_ro("count", &View::count)
      .def_prop_ro("dtype", &View::dtype_code)
      .def_prop_ro("shape", &View::shape, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("readonly", &View::readonly)
      .def(
          "hash",
          [](const View& view, std::uint64_t offset, std::uint64_t nbytes, std::uint64_t seed) {
            if (offset > view.nbytes() || nbytes > view.nbytes() - offset)
              throw nb::value_error("the range leaves the array");
            const ReleaseGil release;
            return hash_bytes(view.data() + offset, nbytes, seed);
          },
          nb::arg("offset"), nb::arg("nbytes"), nb::arg("seed") = 0, "64 bits of a range of bytes.")
      .def(
          "read",
          [](const View& view, std::uint64_t offset, std::uint64_t nbytes) {
            if (offset > view.nbytes() || nbytes > view.nbytes() - offset)
              throw nb::value_error("the range leaves the array");
            return nb::bytes(reinterpret_cast<const char*>(view.data() + offset), nbytes);
          },
          nb::arg("offset"), nb::arg("nbytes"), "A copy of a range of bytes.")
      .def_rw("is_stand_in", &View::is_stand_in)
      .def_prop_ro("address",
                   [](const View& view) { return reinterpret_cast<std::uintptr_t>(view.data()); })
      .def_rw("array", &View::array, nb::arg().none(),
              nb::for_getter(nb::sig("def array(self) -> typing.Any")),
              nb::for_setter(nb::sig("def array(self, array: typing.Any, /) -> None")))
      .def_rw(
          "finish", &View::finish, nb::arg().none(),
          nb::for_getter(nb::sig("def finish(self) -> collections.abc.Callable[[], None] | None")),
          nb::for_setter(nb::sig("def finish(self, finish: collections.abc.Callable[[], None] "
                                 "| None, /) -> None")));
}

}  // namespace distdbg
