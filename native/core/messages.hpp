// Messages over an ordered stream of bytes, in each direction. A Stream moves what it can and says how much:
//
//   std::size_t write(const Piece* pieces, std::size_t count)   from the first piece on
//   std::size_t read(std::byte* into, std::size_t nbytes)       `into` may be nullptr: thrown away
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "transport.hpp"

namespace distdbg {

// As the size of a payload: nothing follows.
constexpr std::uint64_t last_envelope_nbytes = ~std::uint64_t{0};

// What has yet to leave for one peer.
template <class Stream>
class Outbox {
 public:
  bool empty() const { return queue_.empty(); }

  // True when anything has left.
  bool post(Stream& stream, const Envelope& envelope, const Payload& payload, bool* is_sent) {
    std::size_t moved = 0;
    if (queue_.empty()) {
      const Piece pieces[3] = {
          {as_bytes(envelope), sizeof envelope}, payload.pieces[0], payload.pieces[1]};
      moved = stream.write(pieces, 3);
      if (moved == sizeof envelope + payload.nbytes()) {
        if (is_sent != nullptr) *is_sent = true;
        return true;
      }
    }
    Message& message = queue_.emplace_back(Message{envelope, payload, {}, is_sent});
    if (queue_.size() == 1) moved_ = moved;
    if (is_sent == nullptr && payload.nbytes() > 0) message.keep();
    return moved != 0;
  }

  bool flush(Stream& stream) {
    bool has_moved = false;
    while (!queue_.empty()) {
      Message& message = queue_.front();
      Piece pieces[3] = {{as_bytes(message.envelope), sizeof(Envelope)},
                         message.payload.pieces[0],
                         message.payload.pieces[1]};
      std::uint64_t skip = moved_;
      std::uint64_t left = 0;
      for (Piece& piece : pieces) {
        const std::uint64_t n = std::min(skip, piece.nbytes);
        piece.data += n;
        piece.nbytes -= n;
        skip -= n;
        left += piece.nbytes;
      }
      const std::size_t n = stream.write(pieces, 3);
      has_moved |= n != 0;
      moved_ += n;
      if (n < left) break;
      if (message.is_sent != nullptr) *message.is_sent = true;
      queue_.pop_front();
      moved_ = 0;
    }
    return has_moved;
  }

  // False: a part of it has left, so that what follows would not be understood.
  bool cancel(const std::byte* memory) {
    const auto is_of = [memory](const Message& message) {
      const auto& pieces = message.payload.pieces;
      return pieces[0].data == memory || pieces[1].data == memory;
    };
    if (!queue_.empty() && moved_ != 0 && is_of(queue_.front())) return false;
    std::erase_if(queue_, is_of);
    return true;
  }

  void clear() {
    queue_.clear();
    moved_ = 0;
  }

 private:
  struct Message {
    Envelope envelope;
    Payload payload;
    std::vector<std::byte> copy;
    bool* is_sent;

    void keep() {
      copy.resize(payload.nbytes());
      std::byte* at = copy.data();
      for (const Piece& piece : payload.pieces) {
        if (piece.nbytes > 0) std::memcpy(at, piece.data, piece.nbytes);
        at += piece.nbytes;
      }
      payload = one_piece(copy.data(), copy.size());
    }
  };
  static std::byte* as_bytes(const Envelope& envelope) {
    return reinterpret_cast<std::byte*>(const_cast<Envelope*>(&envelope));
  }

  std::deque<Message> queue_;
  std::uint64_t moved_ = 0;  // of the first message, its envelope included
};

// What is arriving from one peer.
template <class Stream>
class Inbox {
 public:
  // Reads what is there; true when anything has moved.
  bool read(Stream& stream, std::uint32_t peer, Receiver& receiver) {
    bool has_moved = false;
    for (;;) {
      if (have_ < sizeof envelope_) {
        const std::size_t n =
            stream.read(reinterpret_cast<std::byte*>(&envelope_) + have_, sizeof envelope_ - have_);
        if (n == 0) return has_moved;
        has_moved = true;
        have_ += n;
        if (have_ < sizeof envelope_) continue;
      }
      if (envelope_.nbytes == last_envelope_nbytes) {
        have_ = 0;
        has_ended_ = true;
        return has_moved;
      }
      if (!is_placed_) {
        into_ = {};
        if (!receiver.place(peer, envelope_, into_)) return has_moved;
        is_placed_ = true;
      }
      for (Piece& piece : into_.pieces) {
        while (piece.nbytes > 0) {
          const std::size_t n = stream.read(piece.data, piece.nbytes);
          if (n == 0) return has_moved;
          has_moved = true;
          if (piece.data != nullptr) piece.data += n;
          piece.nbytes -= n;
        }
      }
      // First, since the receiver may cancel or ask for more.
      have_ = 0;
      is_placed_ = false;
      receiver.arrived(peer, envelope_);
      has_moved = true;
    }
  }

  // Whether the peer has said that this was its last.
  bool has_ended() const { return has_ended_; }
  // Whether all that was read were whole messages.
  bool is_between_messages() const { return have_ == 0; }

  // Whether the envelope of the next message is there, and the receiver has no place for it yet.
  bool is_refused() const { return have_ == sizeof envelope_ && !is_placed_; }

  // What has yet to come of a message into `[begin, end)` is thrown away.
  void cancel(const std::byte* begin, const std::byte* end) {
    for (Piece& piece : into_.pieces)
      if (piece.data >= begin && piece.data < end) piece.data = nullptr;
  }

 private:
  Envelope envelope_{};
  std::size_t have_ = 0;  // of the envelope
  bool is_placed_ = false;
  bool has_ended_ = false;
  Payload into_;
};

}  // namespace distdbg
