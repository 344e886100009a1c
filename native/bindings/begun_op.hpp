// A known op that was begun with async_op=True. Most are waited for at once: until somebody asks for more than
// that, nothing of Python is made of it but its Work, and it stands alone in the list of ops that nobody has
// waited for.
//
//   wait       what Work.wait does of an op that ends well
//   unfold     makes the rest of it (runtime/api/known_calls.py). The collector and signal handlers come here as
//              well, in the middle of anything: so there is no lock, and of several who make it the first counts
//   take       what was made, which takes its place in the list
//   hand_to    fills the Work with it
//
// Each function is one step for the threads of Python, but for the wait itself, which releases the GIL.
#pragma once

#include <utility>

#include "attributes.hpp"
#include "bindings.hpp"
#include "group_py.hpp"

namespace distdbg {

struct BegunOp {
  // False: it has to be waited for as any other op. An error is raised, and is that of this wait.
  bool wait() {
    if (is_over) return true;
    if (!made.is_none()) return false;
    const char* const how_changed =
        nb::inst_ptr<GroupHandle>(group_object)->wait_op(op, no_deadline);
    if (is_over) return true;  // another thread, or a signal handler, was here meanwhile
    if (!made.is_none()) return false;
    if (!is_listed() || *how_changed != 0) {
      call_unfold();
      return false;
    }
    is_over = true;
    const nb::object gone = std::exchange(views, nb::none());
    PyList_SetSlice(unwaited.ptr(), 0, 1, nullptr);
    return true;
  }

  void call_unfold() { unfold(self); }

  // False: it has ended since `was_over` was asked, so it has to be made anew.
  bool take(nb::object parts, nb::handle started, bool was_over) {
    if (!made.is_none()) return true;
    if (is_over != was_over) return false;
    made = std::move(parts);
    if (is_over || !is_listed()) return true;
    if (started.is_none())
      PyList_SetSlice(unwaited.ptr(), 0, 1, nullptr);
    else
      PyList_SetItem(unwaited.ptr(), 0, nb::borrow(started).release().ptr());
    return true;
  }

  // Once: whoever comes second finds it done.
  void hand_to(nb::handle work) const {
    static PyObject* const begun = intern("begun");
    static PyObject* const names[] = {intern("_call"), intern("pending"), intern("started")};
    static PyObject* const group_name = intern("_group");
    static PyObject* const empty[] = {intern("_future"), intern("_public")};
    if (!get(work, begun).is(self)) return;
    set(work, group_name, group);
    for (Py_ssize_t i = 0; i < 3; ++i) set(work, names[i], PyTuple_GetItem(made.ptr(), i));
    for (PyObject* const name : empty) set(work, name, nb::none());
    set(work, begun, nb::none());
  }

  // The list holds this alone, if it does.
  bool is_listed() const {
    return PyList_Size(unwaited.ptr()) != 0 && PyList_GetItem(unwaited.ptr(), 0) == self.ptr();
  }

  nb::handle self;
  nb::object group;         // the ProcessGroup
  nb::object engine;        // that carries it out
  nb::object group_object;  // its GroupHandle
  OpPointer op;
  nb::object views;  // until it is over
  nb::object like;   // a Call like it, without arrays
  nb::object output;
  nb::object input;
  nb::object unwaited;  // the list
  nb::object unfold;
  nb::object made = nb::none();
  bool is_left = false;  // it was put into the list, and Python knows nothing of it
  bool is_over = false;  // it has ended well, and somebody has waited for it

  // For the collector: a program may keep a Work where its array or its group has it.
  template <class Function>
  int each(Function&& function) {
    for (nb::object* const one :
         {&group, &engine, &views, &like, &output, &input, &unwaited, &made})
      if (const int stop = function(*one)) return stop;
    return 0;
  }
  static int traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    if (!nb::inst_ready(object)) return 0;
    return nb::inst_ptr<BegunOp>(object)->each(
        [&](const nb::object& one) { return one.is_valid() ? visit(one.ptr(), arg) : 0; });
  }
  static int clear(PyObject* object) {
    return nb::inst_ptr<BegunOp>(object)->each([](nb::object& one) {
      const nb::object gone = std::exchange(one, nb::none());
      return 0;
    });
  }
};

}  // namespace distdbg
