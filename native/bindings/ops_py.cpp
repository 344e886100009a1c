// What groups carry out and watch, as Python sees it: plans, ops, messages, processes.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "p2p.hpp"
#include "plans_py.hpp"

namespace distdbg {

void bind_ops(nb::module_& module) {
  nb::class_<CompiledPlan>(module, "Plan", "A plan made ready to run; see plan/steps.py.")
      .def(
          "__init__",
          [](CompiledPlan* self, const std::vector<StepTuple>& steps,
             const std::vector<CutTuple>& in_cuts, const std::vector<CutTuple>& out_cuts,
             int reduce, int dtype, std::uint64_t fingerprint, std::uint32_t size,
             std::uint64_t slot_nbytes, const nb::bytes& words, const Form& form, bool goes_on,
             bool reads_input, bool has_equal_outputs, const InPlaceTuple& in_place) {
            new (self) CompiledPlan(compile(steps, in_cuts, out_cuts, reduce, dtype, fingerprint,
                                            size, slot_nbytes, words, form, goes_on, reads_input,
                                            has_equal_outputs, in_place));
          },
          nb::arg("steps"), nb::arg("in_cuts"), nb::arg("out_cuts"), nb::arg("reduce"),
          nb::arg("dtype"), nb::arg("fingerprint"), nb::arg("size"), nb::arg("slot_nbytes"),
          nb::arg("words"), nb::arg("form"), nb::arg("goes_on") = false,
          nb::arg("reads_input") = true, nb::arg("has_equal_outputs") = false,
          nb::arg("in_place") = InPlaceTuple{});

  nb::class_<Op>(module, "Op", "An asynchronous collective.")
      .def_prop_ro("done", [](const Op& op) { return op.done(); })
      .def_prop_ro("number", [](const Op& op) { return op.number; })
      .def_prop_ro("site", [](const Op& op) { return op.site; })
      .def_prop_ro("submitted_ns", [](const Op& op) { return op.submitted_ns; })
      .def_prop_ro("is_plain", [](const Op& op) { return op.is_plain; });
  nb::class_<Message, Op>(module, "Message", "A send or recv.")
      .def_prop_ro("source", [](const Message& m) { return m.source; })
      .def_prop_ro("nbytes", [](const Message& m) { return m.region.nbytes; })
      .def_prop_ro("dtype", [](const Message& m) { return m.dtype; })
      .def_prop_ro("peer_nbytes", [](const Message& m) { return m.peer_nbytes; })
      .def_prop_ro("peer_dtype", [](const Message& m) { return m.peer_dtype; })
      .def_prop_ro("want",
                   [](const Message& m) {
                     switch (m.want.load(std::memory_order_acquire)) {
                       case Want::take: return "take";
                       case Want::memory: return "memory";
                       case Want::data: return "data";
                       case Want::pieces: return "pieces";
                       case Want::nothing: break;
                     }
                     return "";
                   })
      .def_prop_ro("description",
                   [](const Message& m) {
                     return nb::bytes(reinterpret_cast<const char*>(m.description.data()),
                                      m.description.size());
                   })
      .def_prop_ro("piece_nbytes", [](const Message& m) { return m.pieces.piece_nbytes; })
      .def_prop_ro("is_refused", [](const Message& m) { return m.is_refused; })
      .def_prop_ro("words", &Message::words)
      .def_prop_ro("peer_words", [](const Message& m) { return m.peer_words; })
      .def_prop_ro("seen", [](const Message& m) { return m.seen; })
      .def_prop_ro(
          "pieces_then",
          [](const Message& m) -> nb::object {
            if (!m.has_pieces) return nb::none();
            return nb::make_tuple(m.is_device_late, m.copied_then, m.moved_then);
          },
          nb::sig("def pieces_then(self) -> tuple[bool, int, int] | None"),
          "After a timeout, of what goes in pieces: whether this rank's device was late, and how "
          "many bytes "
          "it had copied, and had come or left.")
      .def_prop_ro("note", [](const Message& m) {
        const std::string_view words = m.note_words();
        return nb::bytes(words.data(), words.size());
      });

  nb::class_<Watched>(module, "Watched", "Whether a process still lives, and how it ended.")
      .def(nb::init<std::int32_t, std::uint64_t>())
      .def("is_dead", &Watched::is_dead)
      .def("how", &Watched::how);
}

}  // namespace distdbg
