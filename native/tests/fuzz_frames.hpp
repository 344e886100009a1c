// What a fuzzer of the frames and of the handshake between hosts feeds: an input, and what it goes through. The
// first byte of an input says which of the three, the second how.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "error.hpp"
#include "messages.hpp"
#include "store_wire.hpp"
#include "tcp_lanes.hpp"
#include "tcp_wire.hpp"

namespace distdbg {
namespace {

using Bytes = std::string;

constexpr std::uint64_t most_nbytes = 1 << 20;  // what this receiver takes; the rest is thrown away
const std::string token = "token";
const std::string nonce(store_nonce_nbytes, 'n');
const std::string hub_address(store_address_nbytes, 'h');
const std::string own_address(store_address_nbytes, 'r');
const TcpWay way{77, 0, 1, 0, 0};

// What has come, a little at a time.
class Arriving {
 public:
  explicit Arriving(std::string_view bytes) : bytes_(bytes) {}
  void more(std::size_t nbytes) { until_ = std::min(bytes_.size(), until_ + nbytes); }
  bool is_over() const { return at_ == bytes_.size(); }
  bool has_all() const { return until_ == bytes_.size(); }
  std::size_t read(std::byte* into, std::size_t nbytes) {
    const std::size_t n = std::min(nbytes, until_ - at_);
    if (into != nullptr) std::memcpy(into, bytes_.data() + at_, n);
    at_ += n;
    return n;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  std::size_t until_ = 0;
};

class Owner final : public Receiver {
 public:
  bool place(std::uint32_t, const Envelope& envelope, Payload& into) override {
    if (envelope.words[6] == 1) return false;  // not now
    ++placed_;
    memory_.resize(std::min(envelope.nbytes, most_nbytes));
    const bool fits = envelope.nbytes <= most_nbytes;
    const std::uint64_t first = fits ? envelope.nbytes / 3 : 0;
    into.pieces[0] = {fits ? memory_.data() : nullptr, first};
    into.pieces[1] = {fits ? memory_.data() + first : nullptr, envelope.nbytes - first};
    return true;
  }
  void arrived(std::uint32_t, const Envelope&) override { CHECK(++arrived_ <= placed_); }
  void lost(std::uint32_t, const std::string&) override {}

 private:
  std::vector<std::byte> memory_;
  std::uint64_t placed_ = 0;
  std::uint64_t arrived_ = 0;
};

// A connection and a lane beside it, the bytes of each behind one another.
void read_frames(std::string_view bytes, std::uint8_t options) {
  const bool has_sums = (options & 1) != 0;
  const std::size_t lane_begin = (options & 2) != 0 ? bytes.size() / 2 : bytes.size();
  Arriving stream(bytes.substr(0, lane_begin));
  Arriving lane_stream(bytes.substr(lane_begin));
  Inbox<Arriving> inbox(has_sums);
  Inbox<Arriving> lane_inbox(has_sums);
  Owner owner;
  JointMessage joint;
  std::uint64_t done = 0;
  JointReceiver whole(joint, owner);
  ShareReceiver share(joint, owner, done);
  const std::size_t step = std::size_t{1} << (options >> 4);
  try {
    bool has_moved = true;
    while (has_moved || !stream.has_all() || !lane_stream.has_all()) {
      stream.more(step);
      lane_stream.more(step);
      has_moved = inbox.read(stream, 1, whole);
      if (joint.is_open()) has_moved |= lane_inbox.read(lane_stream, 1, share);
      if (inbox.has_ended()) return;
    }
  } catch (const WrongSum&) {
    CHECK(has_sums);
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::system);
  }
}

Bytes good_request() {
  return encode_tcp_request(way, Bytes(store_nonce_nbytes, 'm'), hub_address, own_address);
}
Bytes good_proof() { return prove_tcp_role(TcpRole::dialler, token, nonce, good_request()); }

// Whether it is let in.
bool knock(std::string_view bytes) {
  TcpDoor door(token, nonce, hub_address, own_address);
  std::string reply;
  auto state = TcpDoor::State::listens;
  std::size_t at = 0;
  while (state == TcpDoor::State::listens && at < bytes.size()) {
    const std::size_t n = std::min(door.wants(), bytes.size() - at);
    CHECK(n > 0 && n <= tcp_request_nbytes + tcp_proof_nbytes);
    state = door.take(bytes.substr(at, n), reply);
    at += n;
  }
  CHECK(reply.size() < 4096);
  // Nobody gets in but by these bytes.
  const bool is_open = state == TcpDoor::State::open;
  if (is_open) CHECK(bytes.substr(0, at) == good_request() + good_proof());
  return is_open;
}

// All that the hub says is read before it is looked at.
void dial(std::string_view bytes) {
  const std::size_t hello_nbytes = encode_tcp_hello(nonce).size();
  const std::size_t verdict_nbytes = encode_tcp_verdict(TcpVerdict::proven, good_proof()).size();
  if (bytes.size() < hello_nbytes + verdict_nbytes) return;
  TcpDialler dialler(way, token);
  try {
    dialler.take_hello(bytes.substr(0, hello_nbytes), hub_address, own_address);
    dialler.take_verdict(bytes.substr(hello_nbytes, verdict_nbytes));
    CHECK(false);  // it takes a proof of this very request, which has a nonce of its own
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::network);
  }
}

void try_one(const Bytes& input) {
  if (input.size() < 2) return;
  const std::string_view rest = std::string_view(input).substr(2);
  switch (static_cast<std::uint8_t>(input[0]) % 3) {
    case 0: read_frames(rest, static_cast<std::uint8_t>(input[1])); break;
    case 1: knock(rest); break;
    default: dial(rest); break;
  }
}

Bytes frame(const Envelope& envelope, std::size_t nbytes) {
  Bytes bytes(reinterpret_cast<const char*>(&envelope), sizeof envelope);
  return bytes.append(nbytes, 'x');
}

std::vector<Bytes> seeds() {
  const std::uint64_t large = split_nbytes;
  const Bytes share = frame({large / 2, {large / 2, large}}, 64);
  return {
      Bytes("\0\x40", 2) + frame({8, {}}, 8) + frame({0, {}}, 0) + frame(last_envelope(2), 0),
      Bytes("\0\x41", 2) + frame({8, {}}, 16),
      Bytes("\0\xa2", 2) + frame({large | std::uint64_t{1} << lanes_shift, {}}, 64) + share,
      Bytes("\x01\0", 2) + good_request() + good_proof(),
      Bytes("\x02\0", 2) + encode_tcp_hello(nonce) +
          encode_tcp_verdict(TcpVerdict::proven, Bytes(tcp_proof_nbytes, 'p')),
  };
}

}  // namespace
}  // namespace distdbg
