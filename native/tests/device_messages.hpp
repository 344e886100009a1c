// What stands for a device and for Python in tests of messages whose arrays are on a GPU. What would be copied there is
// copied by its address, which the description holds, or through places in which pieces come and go.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "check.hpp"
#include "p2p.hpp"
#include "ranks.hpp"

namespace distdbg {

inline constexpr int dtype = 0;

struct Array {
  std::vector<float> values;
  Region on_device() const { return {nullptr, values.size() * sizeof(float)}; }
  Region on_host() { return region_of(values); }
  std::vector<std::byte> description() {
    const float* at = values.data();
    std::vector<std::byte> bytes(sizeof at);
    std::memcpy(bytes.data(), &at, sizeof at);
    return bytes;
  }
};

// What Python does for a message. Where it goes through the host: in pieces of so many bytes.
struct Server {
  PointToPoint& messages;
  MessagePointer message;
  Array& array;
  bool can_open = true;
  std::uint64_t piece = 1 << 20;
  std::vector<std::byte> places = {};
  std::uint64_t served = 0;
  std::uint64_t most_in_places = 0;

  std::uint64_t nbytes() const { return message->region.nbytes; }
  std::byte* memory() { return reinterpret_cast<std::byte*>(array.values.data()); }

  void serve() {
    switch (message->want.load()) {
      case Want::take: {
        if (!can_open) {
          give(true);
          break;
        }
        const float* from = nullptr;
        CHECK(message->description.size() == sizeof from);
        std::memcpy(&from, message->description.data(), sizeof from);
        std::memcpy(array.values.data(), from, nbytes());
        messages.took(message, 1234);
        CHECK(message->done());
        break;
      }
      case Want::memory:
      case Want::data: give(false); break;
      case Want::pieces: move(); break;
      case Want::nothing: break;
    }
  }

  void give(bool cannot_open) {
    if (message->pieces.piece_nbytes != 0) piece = message->pieces.piece_nbytes;
    const std::uint64_t count = (nbytes() + piece - 1) / piece;
    places.resize(piece * std::min<std::uint64_t>(3, count));
    messages.give(message, {places.data(), places.size()}, piece, cannot_open);
    move();
  }

  // A device that copies at once.
  void move() {
    const bool is_send = message->source < 0;
    std::uint64_t moved = messages.move_pieces(message, served);
    for (;;) {
      const std::uint64_t until = is_send ? std::min(nbytes(), moved + places.size()) : moved;
      if (served == until) return;
      const std::uint64_t n = std::min(piece, nbytes() - served);
      std::byte* place = places.data() + served % places.size();
      is_send ? std::memcpy(place, memory() + served, n) : std::memcpy(memory() + served, place, n);
      served += n;
      if (is_send) most_in_places = std::max(most_in_places, served - moved);
      moved = messages.move_pieces(message, served);
    }
  }

  void finish() {
    for (messages.wait(message, in_seconds(20), true); !message->done();
         messages.wait(message, in_seconds(20), true))
      serve();
    message->rethrow();
  }
};

}  // namespace distdbg
