// Large messages over several connections of one pair of ranks. One of them, which carries all short ones as
// well, has the envelope and the first share of the payload; each lane beside it has one share more, as a
// message of its own:
//
//   connection   Envelope{nbytes of the payload | lanes << 56, words of the owner}   share 0
//   lane         Envelope{nbytes of the share, {where it begins, nbytes of the payload}}   share
//
// Shares leave a lane in the order of their messages, and nothing behind a large message is taken before all
// its shares are there: so order needs no numbers. Whoever sends dials the lanes, and data go one way on them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "error.hpp"
#include "messages.hpp"
#include "transport.hpp"

namespace distdbg {

// A payload from here on is worth more than one connection.
constexpr std::uint64_t split_nbytes = 512 * 1024;
// Of one pair of ranks, in one direction.
constexpr std::uint32_t most_streams = 8;
constexpr int lanes_shift = 56;
constexpr std::uint64_t whole_mask = (std::uint64_t{1} << lanes_shift) - 1;

// Where a share begins; `share` == `shares`: where the last one ends.
constexpr std::uint64_t share_begin(std::uint64_t nbytes, std::uint32_t shares,
                                    std::uint32_t share) {
  constexpr std::uint64_t page = 4096;
  return share == shares ? nbytes : nbytes / shares * share / page * page;
}

inline Payload part_of(const Payload& payload, std::uint64_t begin, std::uint64_t end) {
  Payload part;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < payload.pieces.size(); ++i) {
    const Piece& piece = payload.pieces[i];
    const std::uint64_t from = std::clamp(begin, at, at + piece.nbytes) - at;
    const std::uint64_t to = std::clamp(end, at, at + piece.nbytes) - at;
    part.pieces[i] = {piece.data == nullptr ? nullptr : piece.data + from, to - from};
    at += piece.nbytes;
  }
  return part;
}

// A large message that leaves.
struct SplitMessage {
  Payload payload;
  std::uint32_t shares;
  std::array<bool, most_streams> are_sent{};
  bool* is_sent;

  bool is_of(const std::byte* memory) const {
    return payload.pieces[0].data == memory || payload.pieces[1].data == memory;
  }
  bool has_left() const { return std::all_of(&are_sent[0], &are_sent[shares], std::identity{}); }
  bool has_begun() const { return std::any_of(&are_sent[0], &are_sent[shares], std::identity{}); }
};

// Puts the large messages of one peer together, on their way to its owner.
class JointMessage {
 public:
  // Whether one is on its way here; nothing else is taken then.
  bool is_open() const { return shares_left_ != 0; }
  // Differs for each.
  std::uint64_t number() const { return number_; }

  bool place(Receiver& owner, std::uint32_t peer, const Envelope& envelope, Payload& into) {
    if (is_open()) return false;
    const auto lanes = static_cast<std::uint32_t>(envelope.nbytes >> lanes_shift);
    if (lanes == 0) return owner.place(peer, envelope, into);
    Envelope whole = envelope;
    whole.nbytes &= whole_mask;
    if (lanes >= most_streams || whole.nbytes < split_nbytes)
      throw Error(Fault::system, "a frame has more shares than it may");
    Payload payload;
    if (!owner.place(peer, whole, payload)) return false;
    whole_ = whole;
    payload_ = payload;
    shares_left_ = lanes + 1;
    ++number_;
    into = part_of(payload_, 0, share_begin(whole.nbytes, lanes + 1, 1));
    return true;
  }
  void arrived(Receiver& owner, std::uint32_t peer, const Envelope& envelope) {
    if (envelope.nbytes >> lanes_shift == 0) return owner.arrived(peer, envelope);
    share_arrived(owner, peer);
  }

  // Of a lane.
  void place_share(const Envelope& share, Payload& into) const {
    if (share.words[1] != whole_.nbytes || share.words[0] > whole_.nbytes ||
        share.nbytes > whole_.nbytes - share.words[0])
      throw Error(Fault::system, "a share is of no message");
    into = part_of(payload_, share.words[0], share.words[0] + share.nbytes);
  }
  void share_arrived(Receiver& owner, std::uint32_t peer) {
    if (--shares_left_ == 0) owner.arrived(peer, whole_);
  }

  void cancel(const std::byte* begin, const std::byte* end) {
    for (Piece& piece : payload_.pieces)
      if (piece.data >= begin && piece.data < end) piece.data = nullptr;
  }

 private:
  Envelope whole_{};
  Payload payload_;
  std::uint32_t shares_left_ = 0;
  std::uint64_t number_ = 0;
};

// What a connection's inbox tells.
class JointReceiver final : public Receiver {
 public:
  JointReceiver(JointMessage& joint, Receiver& owner) : joint_(joint), owner_(owner) {}
  bool place(std::uint32_t peer, const Envelope& envelope, Payload& into) override {
    return joint_.place(owner_, peer, envelope, into);
  }
  void arrived(std::uint32_t peer, const Envelope& envelope) override {
    joint_.arrived(owner_, peer, envelope);
  }
  void lost(std::uint32_t, const std::string&) override {}

 private:
  JointMessage& joint_;
  Receiver& owner_;
};

// What a lane's inbox tells. `done` is the number of the message whose share it has brought last.
class ShareReceiver final : public Receiver {
 public:
  ShareReceiver(JointMessage& joint, Receiver& owner, std::uint64_t& done)
      : joint_(joint), owner_(owner), done_(done) {}
  bool place(std::uint32_t, const Envelope& share, Payload& into) override {
    if (!joint_.is_open() || done_ == joint_.number()) return false;
    joint_.place_share(share, into);
    return true;
  }
  void arrived(std::uint32_t peer, const Envelope&) override {
    done_ = joint_.number();
    joint_.share_arrived(owner_, peer);
  }
  void lost(std::uint32_t, const std::string&) override {}

 private:
  JointMessage& joint_;
  Receiver& owner_;
  std::uint64_t& done_;
};

}  // namespace distdbg
