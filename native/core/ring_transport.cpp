#include "ring_transport.hpp"

#include <algorithm>
#include <utility>

#include "futex.hpp"

namespace distdbg {

namespace {

// Parts of a long message: small enough that the receiver starts early.
constexpr std::uint64_t least_part_nbytes = 16 * 1024;
constexpr std::uint64_t most_part_nbytes = 64 * 1024;

}  // namespace

std::size_t RingTransport::Stream::write(const Piece* pieces, std::size_t count) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) total += pieces[i].nbytes;
  const std::uint64_t part =
      std::min(std::clamp(total / 4, least_part_nbytes, most_part_nbytes), channel_.capacity() / 2);
  std::uint64_t done = 0;
  std::uint64_t in_piece = 0;
  while (done < total && !is_corrupt_) {
    const std::uint64_t room = channel_.room();
    is_corrupt_ = room > channel_.capacity();
    const std::uint64_t nbytes = is_corrupt_ ? 0 : std::min({total - done, part, room});
    if (nbytes == 0) break;
    for (std::uint64_t at = 0; at < nbytes;) {
      const std::uint64_t n = std::min(nbytes - at, pieces->nbytes - in_piece);
      channel_.put(at, pieces->data + in_piece, n);
      at += n;
      in_piece += n;
      if (in_piece == pieces->nbytes) {
        ++pieces;
        in_piece = 0;
      }
    }
    channel_.publish(nbytes);
    done += nbytes;
  }
  return done;
}

std::size_t RingTransport::Stream::read(std::byte* into, std::size_t nbytes) {
  const std::uint64_t available = channel_.available();
  is_corrupt_ = is_corrupt_ || available > channel_.capacity() || available < taken_;
  if (is_corrupt_) return 0;
  const std::uint64_t n = std::min<std::uint64_t>(nbytes, available - taken_);
  if (into != nullptr) {
    // `nbytes` is what is left: a long message is one to its end.
    is_long_ = nbytes >= tuning_->stream_nbytes || (is_long_ && into == goes_on_at_);
    goes_on_at_ = into + n;
    channel_.peek(taken_, into, n, is_long_);
  }
  taken_ += n;
  if (taken_ >= least_part_nbytes) settle();
  return n;
}

void RingTransport::Stream::settle() {
  if (taken_ != 0) channel_.consume(std::exchange(taken_, 0));
}

RingTransport::RingTransport(Segment& segment, std::uint32_t rank, std::vector<std::uint32_t> peers,
                             Receiver& receiver, const Tuning& tuning)
    : segment_(segment),
      rank_(rank),
      ranks_(std::move(peers)),
      receiver_(receiver),
      peers_(segment.size()) {
  for (const std::uint32_t r : ranks_) {
    peers_[r].out = Stream(Channel(segment.channel(rank, r), segment.channel_nbytes()), tuning);
    peers_[r].in = Stream(Channel(segment.channel(r, rank), segment.channel_nbytes()), tuning);
  }
}

void RingTransport::connect(std::uint32_t, const Wait&) {}  // whoever has the segment has the rings

void RingTransport::post(std::uint32_t peer, const Envelope& envelope, const Payload& payload,
                         bool* is_sent) {
  Peer& p = peers_[peer];
  if (!p.outbox.post(p.out, envelope, payload, is_sent)) return;
  if (static_cast<int>(peer) == polled_)
    is_polled_to_ring_ = true;
  else
    ring(segment_.rank(peer));
}

bool RingTransport::poll() {
  bool has_moved = false;
  for (const std::uint32_t r : ranks_) {
    Peer& p = peers_[r];
    if (p.is_lost) continue;
    const Polled polled(*this, r);
    bool is_to_ring = p.inbox.read(p.in, r, receiver_);  // the peer may wait for room
    p.in.settle();
    is_to_ring |= is_polled_to_ring_;
    if (!p.outbox.empty()) is_to_ring |= p.outbox.flush(p.out);
    if (is_to_ring) ring(segment_.rank(r));
    has_moved |= is_to_ring;
    if (p.in.is_corrupt() || p.out.is_corrupt()) {
      p.is_lost = true;
      p.outbox.clear();
      receiver_.lost(r, "wrote into the counters of the ring between both ranks");
    }
  }
  return has_moved;
}

void RingTransport::wait(std::int64_t timeout_ns, Look has_work) {
  RankState& mine = segment_.rank(rank_);
  mine.bell_sleepers.fetch_add(1, std::memory_order_seq_cst);
  full_fence();
  const std::uint32_t bell = mine.bell.load(std::memory_order_seq_cst);
  if (!has_work()) futex_wait(mine.bell, bell, timeout_ns);
  mine.bell_sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void RingTransport::cancel(const std::byte* memory, std::uint64_t nbytes) {
  if (nbytes == 0) return;
  for (const std::uint32_t r : ranks_) {
    Peer& p = peers_[r];
    if (!p.outbox.cancel(memory)) p.outbox.clear();
    p.inbox.cancel(memory, memory + nbytes);
  }
}

void RingTransport::close() {
  for (const std::uint32_t r : ranks_) peers_[r].outbox.clear();
}

}  // namespace distdbg
