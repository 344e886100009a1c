// Messages of arrays on a GPU, after they were posted: what they want, and what Python gives them.
#include "group_py.hpp"

namespace distdbg {

namespace {

Wait wait_for(const Parts& parts, const Message& message) {
  return parts.group.wait_until(message.deadline_ns, &python_interrupted);
}

// What wants something, for a thread that must not keep the group's Python side alive: whatever was cached for
// its calls refers to its engine, and that to everything.
struct WantedMessages {
  std::weak_ptr<Parts> parts;
};

}  // namespace

void bind_device_messages(nb::class_<GroupHandle>& group) {
  nb::class_<WantedMessages>(group, "WantedMessages")
      .def(
          "next",
          [](const WantedMessages& self, std::int64_t timeout_ns) {
            const std::shared_ptr<Parts> p = self.parts.lock();
            if (!p) throw Error(Fault::usage, "this rank has left the group");
            const ReleaseGil release;
            return p->messages.next_wanted(timeout_ns);
          },
          nb::arg("timeout_ns"), nb::sig("def next(self, timeout_ns: int) -> Message | None"),
          "An asynchronous message that wants something; None: none, for so long.");

  group
      .def(
          "await_device",
          [](const GroupHandle& self, const MessagePointer& message) {
            const std::shared_ptr<Parts> p = self.parts();
            const ReleaseGil release;
            p->messages.wait(message, wait_for(*p, *message), true);
          },
          "Of a blocking message: until it has ended, or wants something. Throws its error.")
      .def(
          "look_at_message",
          [](const GroupHandle& self, const MessagePointer& message) {
            const std::shared_ptr<Parts> p = self.parts();
            const ReleaseGil release;
            p->messages.look(message, wait_for(*p, *message));
          },
          "Throws what ends a message while its own thread serves it.")
      .def(
          "wanted_messages", [](const GroupHandle& self) { return WantedMessages{self.parts()}; },
          "The queue of them; it does not keep the group alive.")
      .def("wake_wanted",
           [](const GroupHandle& self) {
             const std::shared_ptr<Parts> p = self.parts();
             const ReleaseGil release;  // who holds the lock of the messages may wait for the GIL
             p->messages.wake_wanted();
           })
      .def(
          "took",
          [](const GroupHandle& self, const MessagePointer& message, std::int64_t ran_ns) {
            const std::shared_ptr<Parts> p = self.parts();
            const ReleaseGil release;
            p->messages.took(message, ran_ns);
          },
          nb::arg("message"), nb::arg("ran_ns"))
      .def(
          "give",
          [](const GroupHandle& self, const MessagePointer& message, const View& places,
             std::uint64_t piece_nbytes, bool cannot_open) {
            const std::shared_ptr<Parts> p = self.parts();
            const Region region{places.data(), places.nbytes()};
            const ReleaseGil release;
            p->messages.give(message, region, piece_nbytes, cannot_open);
          },
          nb::arg("message"), nb::arg("places"), nb::arg("piece_nbytes"), nb::arg("cannot_open"))
      .def(
          "move_pieces",
          [](const GroupHandle& self, const MessagePointer& message, std::uint64_t served) {
            const std::shared_ptr<Parts> p = self.parts();
            const ReleaseGil release;
            return p->messages.move_pieces(message, served);
          },
          nb::arg("message"), nb::arg("served"),
          "The device has copied so many bytes; how many have come, or left.");
}

}  // namespace distdbg
