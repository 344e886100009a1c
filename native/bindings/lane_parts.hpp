// What all ops of a group's short way have in common, looked up with the first of them: in a training step each look
// at an attribute is one at memory that is in no cache any more.
#pragma once

#include "attributes.hpp"

namespace distdbg {

// Of FastLane (distdbg/torch_bridge/tap/lane.py); none of it is replaced while the group is there.
struct LaneParts {
  explicit LaneParts(nb::handle lane)
      : of(lane.ptr()),
        checked(lane.attr("checked")),
        control(lane.attr("control")),
        op_class(lane.attr("op_class")),
        acquire(lane.attr("order").attr("acquire")),
        release(lane.attr("order").attr("release")),
        recorded(lane.attr("recorded")),
        seqs(lane.attr("seqs")),
        tapped(lane.attr("tapped")),
        followed(tapped.attr("followed")),
        groups(tapped.attr("groups")),
        lane_ops(groups.attr("lane_ops")),
        work_classes(groups.attr("work_classes")) {}

  int visit(visitproc visit, void* arg) const {
    for (const nb::object* const each :
         {&checked, &control, &op_class, &acquire, &release, &recorded, &seqs, &tapped, &followed,
          &groups, &lane_ops, &work_classes})
      Py_VISIT(each->ptr());
    return 0;
  }

  const PyObject* of;
  nb::object checked;
  nb::object control;
  nb::object op_class;
  nb::object acquire;  // of the lock that keeps the ops in order
  nb::object release;
  nb::object recorded;
  nb::object seqs;
  nb::object tapped;
  nb::object followed;
  nb::object groups;
  nb::object lane_ops;
  nb::object work_classes;
};

}  // namespace distdbg
