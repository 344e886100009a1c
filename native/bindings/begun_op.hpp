// A known op that was begun with async_op=True. Most are waited for at once: until somebody asks for more than
// that, nothing of Python is made of it but its Work, and it stands in the list of ops that nobody has waited for.
//
//   wait       what Work.wait does of an op that ends well
//   unfold     makes the rest of it, once (runtime/api/known_calls.py), which takes its place in that list
//
// All with the GIL held, which the wait itself releases.
#pragma once

#include <utility>

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
    // Another thread may have unfolded it, or does so now.
    if (!is_alone() || *how_changed != 0) {
      call_unfold();
      return false;
    }
    PyList_SetSlice(unwaited.ptr(), 0, 1, nullptr);
    return is_over = true;
  }

  void call_unfold() { unfold(self); }

  bool is_alone() const {
    return PyList_Size(unwaited.ptr()) == 1 && PyList_GetItem(unwaited.ptr(), 0) == self.ptr();
  }

  nb::handle self;
  nb::object group;         // the ProcessGroup
  nb::object engine;        // that carries it out
  nb::object group_object;  // its GroupHandle
  OpPointer op;
  nb::tuple views;
  nb::object like;  // a Call like it, without arrays
  nb::object output;
  nb::object input;
  nb::object unwaited;  // the list
  nb::object unfold;
  nb::object made = nb::none();  // by `unfold`
  bool is_over = false;          // it has ended well, and somebody has waited for it
};

}  // namespace distdbg
