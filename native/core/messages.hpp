// Messages over an ordered stream of bytes, in each direction. A Stream moves what it can and says how much:
//
//   std::size_t write(const Piece* pieces, std::size_t count)   from the first piece on, at most `most_pieces`
//   std::size_t read(std::byte* into, std::size_t nbytes)       `into` may be nullptr: thrown away
//
// With sums, where a link may change what it carries, each message has one or two more fields:
//
//   envelope[64]   u32 CRC-32C of it   payload   u32 CRC-32C of that, unless it is empty
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "crc32c.hpp"
#include "transport.hpp"

namespace distdbg {

// As the size of a payload: nothing follows on this stream. A transport says how many messages it has sent to
// that peer, by whatever stream; the hub of one that had closed before says only that.
constexpr std::uint64_t last_envelope_nbytes = ~std::uint64_t{0};
constexpr std::uint64_t had_closed_before = ~std::uint64_t{0};
inline Envelope last_envelope(std::uint64_t sent) { return {last_envelope_nbytes, {sent}}; }

// Thrown by an Inbox when a message is not what was sent; what follows it cannot be understood.
struct WrongSum {};

// So much is summed at a time: it stays in the cache between the sum and the system call.
constexpr std::uint64_t summed_part_nbytes = 512 * 1024;

// What is written at a time: several messages that wait for one another leave together.
constexpr std::size_t pieces_of_message = 4;
constexpr std::size_t most_pieces = 8 * pieces_of_message;

struct MessageHead {
  Envelope envelope;
  std::uint32_t sum = 0;
};
constexpr std::size_t sum_nbytes = sizeof MessageHead::sum;
static_assert(offsetof(MessageHead, sum) == sizeof(Envelope));

// What has yet to leave for one peer.
template <class Stream>
class Outbox {
 public:
  explicit Outbox(bool with_sums = false) : with_sums_(with_sums) {}

  bool empty() const { return queue_.empty(); }
  // Messages that have left whole.
  std::uint64_t sent() const { return sent_; }

  // True when anything has left.
  bool post(Stream& stream, const Envelope& envelope, const Payload& payload, bool* is_sent) {
    Message made(envelope, payload, is_sent, with_sums_);
    const bool is_next = queue_.empty();
    if (is_next && !payload.is_followed && advance(made, stream)) {
      note_sent(made);
      return true;
    }
    const bool has_begun = made.has_begun();
    const bool is_kept = (is_sent == nullptr || payload.is_copied) && payload.nbytes() > 0;
    queue_.push_back(std::move(made));
    if (payload.is_followed) {
      is_held_ |= is_next;
    } else if (is_held_) {
      const bool has_moved = flush(stream);
      if (is_kept && !queue_.empty()) queue_.back().keep();
      return has_moved;
    }
    if (is_kept) queue_.back().keep();
    return has_begun;
  }

  bool flush(Stream& stream) {
    is_held_ = false;
    bool has_moved = false;
    while (!queue_.empty()) {
      std::array<Piece, most_pieces> pieces;
      std::array<std::uint64_t, most_pieces / pieces_of_message> offered;
      std::size_t count = 0;
      std::uint64_t total = 0;
      for (Message& message : queue_) {
        offered[count] = message.offer(&pieces[count * pieces_of_message]);
        total += offered[count++];
        if (count == offered.size() || !message.offers_all()) break;
      }
      const std::uint64_t written = stream.write(pieces.data(), count * pieces_of_message);
      has_moved |= written != 0;
      std::uint64_t left = written;
      for (std::size_t i = 0; i < count; ++i) {
        Message& message = queue_.front();
        const std::uint64_t of_it = std::min(left, offered[i]);
        message.move(of_it);
        left -= of_it;
        if (!message.has_left()) break;
        note_sent(message);
        queue_.pop_front();
      }
      if (written < total) break;
    }
    return has_moved;
  }

  // False: a part of it has left, so that what follows would not be understood.
  bool cancel(const std::byte* memory) {
    const auto is_of = [memory](const Message& message) { return message.is_of(memory); };
    if (!queue_.empty() && queue_.front().has_begun() && is_of(queue_.front())) return false;
    std::erase_if(queue_, is_of);
    return true;
  }

  void clear() {
    queue_.clear();
    is_held_ = false;
  }

 private:
  class Message {
   public:
    Message(const Envelope& envelope, const Payload& payload, bool* sent, bool with_sums)
        : is_sent(sent), with_sums_(with_sums), payload_(payload), nbytes_(payload.nbytes()) {
      head_.envelope = envelope;
      if (with_sums) head_.sum = crc32c(&envelope, sizeof envelope);
    }
    bool* is_sent;

    bool has_begun() const { return moved_ != 0; }
    bool is_of(const std::byte* memory) const {
      return payload_.pieces[0].data == memory || payload_.pieces[1].data == memory;
    }

    void keep() {
      copy_.resize(nbytes_);
      std::byte* at = copy_.data();
      for (const Piece& piece : payload_.pieces) {
        if (piece.nbytes > 0) std::memcpy(at, piece.data, piece.nbytes);
        at += piece.nbytes;
      }
      payload_ = one_piece(copy_.data(), copy_.size());
    }

    // What is to leave next, and how many bytes that is.
    std::uint64_t offer(Piece* pieces) {
      const std::uint64_t head_nbytes = sizeof(Envelope) + (with_sums_ ? sum_nbytes : 0);
      if (with_sums_ && (summed_ == 0 || moved_ >= head_nbytes + summed_)) sum_more();
      const std::uint64_t ready = with_sums_ ? summed_ : nbytes_;
      pieces[0] = {reinterpret_cast<std::byte*>(&head_), head_nbytes};
      pieces[1] = payload_.pieces[0];
      pieces[2] = payload_.pieces[1];
      pieces[3] = {reinterpret_cast<std::byte*>(&sum_), has_tail() ? sum_nbytes : 0};
      pieces[1].nbytes = std::min(pieces[1].nbytes, ready);
      pieces[2].nbytes = std::min(pieces[2].nbytes, ready - pieces[1].nbytes);
      return skip({pieces, pieces_of_message}, moved_);
    }
    // Whether nothing is left of it behind what it offers.
    bool offers_all() const { return !with_sums_ || summed_ == nbytes_; }
    void move(std::uint64_t nbytes) { moved_ += nbytes; }
    bool has_left() const {
      return offers_all() && moved_ == sizeof(Envelope) + (with_sums_ ? sum_nbytes : 0) + nbytes_ +
                                           (has_tail() ? sum_nbytes : 0);
    }

   private:
    // What is left of the pieces after so many bytes.
    static std::uint64_t skip(std::span<Piece> pieces, std::uint64_t nbytes) {
      std::uint64_t left = 0;
      for (Piece& piece : pieces) {
        const std::uint64_t n = std::min(nbytes, piece.nbytes);
        piece.data += n;
        piece.nbytes -= n;
        nbytes -= n;
        left += piece.nbytes;
      }
      return left;
    }

    // Whether its sum may leave.
    bool has_tail() const { return with_sums_ && nbytes_ != 0 && summed_ == nbytes_; }

    void sum_more() {
      const std::uint64_t until = std::min(nbytes_, summed_ + summed_part_nbytes);
      std::uint64_t begin = 0;
      for (const Piece& piece : payload_.pieces) {
        const std::uint64_t from = std::clamp(summed_, begin, begin + piece.nbytes) - begin;
        const std::uint64_t to = std::clamp(until, begin, begin + piece.nbytes) - begin;
        if (to > from) sum_ = crc32c(piece.data + from, to - from, sum_);
        begin += piece.nbytes;
      }
      summed_ = until;
    }

    bool with_sums_;
    std::uint32_t sum_ = 0;     // of the payload, as far as it is summed
    std::uint64_t summed_ = 0;  // so many bytes
    std::uint64_t moved_ = 0;   // have left, with head and sums
    MessageHead head_;
    Payload payload_;
    std::uint64_t nbytes_;
    std::vector<std::byte> copy_;
  };

  // True once all of it has left.
  static bool advance(Message& message, Stream& stream) {
    do {
      std::array<Piece, pieces_of_message> pieces;
      const std::uint64_t offered = message.offer(pieces.data());
      const std::uint64_t written = stream.write(pieces.data(), pieces.size());
      message.move(written);
      if (written < offered) return false;
    } while (!message.has_left());
    return true;
  }

  void note_sent(const Message& message) {
    ++sent_;
    if (message.is_sent != nullptr) *message.is_sent = true;
  }

  std::deque<Message> queue_;
  // Nothing of the queue has been tried yet: it waits for the message that is to leave with it.
  bool is_held_ = false;
  std::uint64_t sent_ = 0;
  bool with_sums_;
};

// What is arriving from one peer.
template <class Stream>
class Inbox {
 public:
  explicit Inbox(bool with_sums = false) : with_sums_(with_sums) {}

  // Reads what is there; true when anything has moved. WrongSum: to be asked no more.
  bool read(Stream& stream, std::uint32_t peer, Receiver& receiver) {
    const std::size_t head_nbytes = sizeof(Envelope) + (with_sums_ ? sum_nbytes : 0);
    const Envelope& envelope = head_.envelope;
    bool has_moved = false;
    for (;;) {
      if (have_ < head_nbytes) {
        const std::size_t n =
            stream.read(reinterpret_cast<std::byte*>(&head_) + have_, head_nbytes - have_);
        if (n == 0) return has_moved;
        has_moved = true;
        have_ += n;
        if (have_ < head_nbytes) continue;
        if (with_sums_ && head_.sum != crc32c(&envelope, sizeof envelope)) throw WrongSum{};
      }
      if (envelope.nbytes == last_envelope_nbytes) {
        have_ = 0;
        has_ended_ = true;
        last_ = envelope.words[0];
        return has_moved;
      }
      if (!is_placed_) {
        into_ = {};
        if (!receiver.place(peer, envelope, into_)) return has_moved;
        is_placed_ = true;
        sum_ = 0;
        is_summed_ = with_sums_;
      }
      for (Piece& piece : into_.pieces) {
        while (piece.nbytes > 0) {
          const std::size_t n = stream.read(
              piece.data, with_sums_ ? std::min(piece.nbytes, summed_part_nbytes) : piece.nbytes);
          if (n == 0) return has_moved;
          has_moved = true;
          if (piece.data == nullptr) {
            is_summed_ = false;  // nobody sees it
          } else {
            if (is_summed_) sum_ = crc32c(piece.data, n, sum_);
            piece.data += n;
          }
          piece.nbytes -= n;
        }
      }
      if (with_sums_ && envelope.nbytes != 0) {
        while (tail_have_ < sum_nbytes) {
          const std::size_t n = stream.read(reinterpret_cast<std::byte*>(&tail_) + tail_have_,
                                            sum_nbytes - tail_have_);
          if (n == 0) return has_moved;
          has_moved = true;
          tail_have_ += n;
        }
        if (is_summed_ && tail_ != sum_) throw WrongSum{};
      }
      // First, since the receiver may cancel or ask for more.
      have_ = tail_have_ = 0;
      is_placed_ = false;
      ++arrived_;
      receiver.arrived(peer, envelope);
      has_moved = true;
    }
  }

  // Whether the peer has said that this was its last.
  bool has_ended() const { return has_ended_; }
  // What it said then, as last_envelope().
  std::uint64_t last() const { return last_; }
  // Whole messages so far.
  std::uint64_t arrived() const { return arrived_; }
  // Whether all that was read were whole messages.
  bool is_between_messages() const { return have_ == 0; }

  // Whether the envelope of the next message is there, and the receiver has no place for it yet.
  bool is_refused() const {
    return have_ == sizeof(Envelope) + (with_sums_ ? sum_nbytes : 0) && !is_placed_;
  }

  // What has yet to come of a message into `[begin, end)` is thrown away.
  void cancel(const std::byte* begin, const std::byte* end) {
    for (Piece& piece : into_.pieces)
      if (piece.data >= begin && piece.data < end) piece.data = nullptr;
  }

 private:
  MessageHead head_{};
  std::size_t have_ = 0;  // of the envelope and its sum
  bool with_sums_;
  bool is_placed_ = false;
  bool has_ended_ = false;
  std::uint64_t last_ = 0;
  std::uint64_t arrived_ = 0;
  bool is_summed_ = false;  // what has come of the payload
  std::uint32_t sum_ = 0;
  std::uint32_t tail_ = 0;  // the sum that the sender has made
  std::size_t tail_have_ = 0;
  Payload into_;
};

}  // namespace distdbg
