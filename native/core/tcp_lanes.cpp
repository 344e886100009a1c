#include "tcp_lanes.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "tcp_dial.hpp"
#include "tcp_transport.hpp"

namespace distdbg {
namespace {

// What lanes are worth waiting for.
constexpr std::int64_t lanes_limit_ns = 1'000 * ns_per_ms;

}  // namespace

void TcpTransport::add_lane(std::uint32_t peer, TcpLine line, bool is_outgoing) {
  Peer& p = peers_[peer];
  const auto count = std::count_if(p.lanes.begin(), p.lanes.end(), [&](const auto& lane) {
    return lane->is_outgoing == is_outgoing;
  });
  if (count + 1 >= most_streams || !p.lost.empty()) return;
  set_options(line);
  p.lanes.push_back(std::make_unique<Lane>(std::move(line), place_.has_sums, is_outgoing));
}

// One after the other; without them all goes by one connection.
void TcpTransport::dial_lanes(std::uint32_t peer, const Wait& wait) {
  Peer& p = peers_[peer];
  p.wants_lanes = false;
  if (peer >= place_.addresses.size() || place_.addresses[peer].empty()) return;
  TcpWay way = way_from(place_.rank, peer);
  way.options |= is_lane;
  Wait brief = wait;
  brief.deadline_ns = std::min(wait.deadline_ns, now_ns() + lanes_limit_ns);
  try {
    for (std::uint32_t i = 1; i < std::min(place_.streams, most_streams); ++i)
      add_lane(peer,
               dial_tcp(place_.addresses[peer], way, token_, relay_, brief, [] { return false; }),
               true);
  } catch (const Error& error) {
    if (error.fault() != Fault::network) throw;
  }
}

// False: by the connection alone.
bool TcpTransport::post_in_shares(Peer& peer, const Envelope& envelope, const Payload& payload,
                                  bool* is_sent) {
  // The thread that encrypts would carry all of them.
  if (place_.streams < 2 || relay_ != nullptr) return false;
  std::array<Lane*, most_streams> lanes{};
  std::uint32_t shares = 1;
  for (const auto& lane : peer.lanes) {
    if (!lane->is_outgoing) continue;
    if (!lane->link.stream.can_write()) return false;
    lanes[shares++] = lane.get();
  }
  if (shares == 1) {
    peer.wants_lanes = !std::exchange(peer.has_tried_lanes, true);
    return false;
  }
  const std::uint64_t nbytes = payload.nbytes();
  SplitMessage& split = peer.splits.emplace_back(SplitMessage{payload, shares, {}, is_sent});
  const auto sent = [&](std::uint32_t share) {
    return is_sent == nullptr ? nullptr : &split.are_sent[share];
  };
  Envelope whole = envelope;
  whole.nbytes |= std::uint64_t{shares - 1} << lanes_shift;
  peer.outbox.post(peer.links.front()->stream, whole,
                   part_of(payload, 0, share_begin(nbytes, shares, 1)), sent(0));
  for (std::uint32_t share = 1; share < shares; ++share) {
    const std::uint64_t begin = share_begin(nbytes, shares, share);
    const std::uint64_t end = share_begin(nbytes, shares, share + 1);
    lanes[share]->outbox.post(lanes[share]->link.stream, {end - begin, {begin, nbytes}},
                              part_of(payload, begin, end), sent(share));
  }
  if (is_sent == nullptr) {
    peer.splits.pop_back();  // what has not left is copied
  } else {
    note_sent(peer);
  }
  return true;
}

void TcpTransport::note_sent(Peer& peer) {
  while (!peer.splits.empty() && peer.splits.front().has_left()) {
    *peer.splits.front().is_sent = true;
    peer.splits.pop_front();
  }
}

// False: a part of it has left, so that what follows would not be understood.
bool TcpTransport::cancel_unsent(Peer& peer, const std::byte* memory) {
  bool is_whole = peer.outbox.cancel(memory);
  for (auto split = peer.splits.begin(); split != peer.splits.end();) {
    if (!split->is_of(memory)) {
      ++split;
      continue;
    }
    is_whole &= !split->has_begun();
    std::uint32_t share = 1;
    for (const auto& lane : peer.lanes) {
      if (!lane->is_outgoing || share == split->shares) continue;
      const std::uint64_t nbytes = split->payload.nbytes();
      const Payload part = part_of(split->payload, share_begin(nbytes, split->shares, share),
                                   share_begin(nbytes, split->shares, share + 1));
      ++share;
      for (const Piece& piece : part.pieces)
        if (piece.nbytes > 0) is_whole &= lane->outbox.cancel(piece.data);
    }
    split = peer.splits.erase(split);
  }
  return is_whole;
}

}  // namespace distdbg
