#include "tcp_transport.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "error.hpp"
#include "fork.hpp"
#include "tcp_dial.hpp"

namespace distdbg {
namespace {

// Up to here a look at each socket costs less than asking which of them have something.
constexpr std::size_t few_links = 4;
constexpr std::int64_t silence_check_ns = 500 * ns_per_ms;
// The connections of a peer that has ended all end, but not at the same moment.
constexpr std::int64_t grace_ns = 1'000 * ns_per_ms;

// The one whose has_work is being asked by this thread: it need not be woken.
thread_local const TcpTransport* asking = nullptr;

}  // namespace

TcpTransport::TcpTransport(TcpPlace place, std::string token, std::shared_ptr<TcpDesk> desk,
                           std::shared_ptr<TcpRelay> relay, Receiver& receiver)
    : place_(std::move(place)),
      token_(std::move(token)),
      desk_(std::move(desk)),
      relay_(std::move(relay)),
      arrivals_(std::make_shared<TcpArrivals>(place_.size, options())),
      receiver_(receiver),
      generation_(fork_generation()),
      peers_(place_.size) {
  for (Peer& peer : peers_) peer.outbox = Outbox<TcpStream>(place_.has_sums);
  watched_.push_back({arrivals_->bell().fd(), POLLIN, 0});
  desk_->open(way_from(0, place_.rank), arrivals_);
}

TcpTransport::~TcpTransport() { close(); }

std::string TcpTransport::Link::why() const {
  if (is_late()) return "left before this rank had reached it";
  const int error_number = line.relayed ? line.relayed->failure().first : 0;
  return error_number != 0 ? TcpStream::why(error_number) : stream.why();
}

std::string TcpTransport::Link::ends() const {
  const int socket = line.relayed ? line.relayed->network() : fd();
  return peer_address_words(socket) + " to " + own_address_words(socket);
}

bool TcpTransport::is_ours() const { return !is_closed_ && fork_generation() == generation_; }

// ------------------------------------------------------------------------------- connections

void TcpTransport::connect(std::uint32_t peer, const Wait& wait) {
  if (!is_ours()) throw Error(Fault::broken, "the TCP transport is closed");
  if (peer >= place_.size || peer == place_.rank)
    throw Error(Fault::usage, "no peer of this rank: " + std::to_string(peer));
  adopt();
  Peer& p = peers_[peer];
  if (!p.lost.empty())
    throw Error(Fault::network, "rank " + std::to_string(peer) + " " + p.lost, ECONNRESET,
                static_cast<int>(peer));
  if (!p.links.empty()) {
    if (p.wants_lanes) dial_lanes(peer, wait);
    return;
  }
  const auto has_come = [&] {
    adopt();
    return !p.links.empty();
  };
  const auto& addresses =
      peer < place_.addresses.size() ? place_.addresses[peer] : std::vector<std::string>{};
  try {
    TcpLine line = dial_tcp(addresses, way_from(place_.rank, peer), token_, relay_, wait, has_come);
    if (line.fd) add(peer, std::move(line));
  } catch (const Error& error) {
    if (error.fault() != Fault::network) throw;
    throw Error(
        Fault::network,
        std::string(error.what()) + "; this rank is at " + place_.addresses[place_.rank].front(),
        error.error_number(), error.peer());
  }
  update_watch();
}

void TcpTransport::add(std::uint32_t peer, TcpLine line) {
  Peer& p = peers_[peer];
  // Each side dials once, and only while it has no connection: a third is none of this protocol.
  if (p.links.size() == 2 || !p.lost.empty()) return;
  set_options(line);
  if (p.links.empty()) linked_.push_back(peer);
  p.links.push_back(std::make_unique<Link>(std::move(line), place_.has_sums));
  is_watch_stale_ = true;
}

void TcpTransport::set_options(const TcpLine& line) const {
  if (line.relayed) {
    line.relayed->set_options(place_.keepalive_s);
  } else {
    set_link_options(line.fd.get(), place_.keepalive_s);
  }
}

bool TcpTransport::adopt() {
  if (!arrivals_->has_any()) return false;
  for (auto& [from, is_of_lane, line] : arrivals_->take()) {
    if (is_of_lane) {
      add_lane(from, std::move(line), false);
    } else {
      add(from, std::move(line));
    }
  }
  return true;
}

// ---------------------------------------------------------------------------------- messages

void TcpTransport::post(std::uint32_t peer, const Envelope& envelope, const Payload& payload,
                        bool* is_sent) {
  Peer& p = peers_[peer];
  if (!is_ours() || p.links.empty() || !p.links.front()->stream.can_write()) return;
  if (payload.nbytes() < split_nbytes || !post_in_shares(p, envelope, payload, is_sent))
    p.outbox.post(p.links.front()->stream, envelope, payload, is_sent);
  // What is followed waits for no room, but for the next.
  if (!payload.is_followed && (!p.outbox.empty() || !p.splits.empty())) update_watch();
}

bool TcpTransport::read(std::uint32_t rank, Link& link, Receiver& into) {
  bool has_moved = false;
  try {
    if (!link.is_corrupt) return link.inbox.read(link.stream, rank, into);
    // Its other direction may be sound, and tells the peer: so it is not closed.
    while (link.stream.read(nullptr, std::size_t{64} << 10) != 0) has_moved = true;
  } catch (const WrongSum&) {
    link.is_corrupt = has_moved = true;
    receiver_.corrupted(rank, link.ends());
  } catch (const Error& error) {
    if (error.fault() != Fault::system) throw;
    has_moved |= !link.stream.has_ended();
    link.stream.fail(EPROTO);  // no frame of ours: whatever follows cannot be understood
  }
  return has_moved;
}

bool TcpTransport::move(std::uint32_t rank, Peer& peer, Reads reads) {
  const bool has_moved = move_all(rank, peer, reads);
  if (has_moved) peer.ended_ns = 0;  // what its other connections carry comes slowly, but it comes
  return has_moved;
}

bool TcpTransport::move_all(std::uint32_t rank, Peer& peer, Reads reads) {
  bool has_moved = false;
  JointReceiver whole(peer.joint, receiver_);
  for (const auto& link : peer.links) link->stream.begin_round();
  for (const auto& lane : peer.lanes) lane->link.stream.begin_round();
  do {
    for (std::size_t i = 0; i < peer.links.size(); ++i) {
      Link& link = *peer.links[i];
      if (reads == Reads::where_it_spoke && peer.spoke_by != nullptr && peer.spoke_by != &link)
        continue;
      if (read(rank, link, whole)) {
        has_moved = true;
        peer.spoke_by = &link;
      }
      link.is_blocked = !link.stream.has_starved();
    }
    if (!peer.joint.is_open()) break;
    for (std::size_t i = 0; i < peer.lanes.size(); ++i) {
      Lane& lane = *peer.lanes[i];
      if (lane.is_outgoing) continue;
      ShareReceiver share(peer.joint, receiver_, lane.done);
      has_moved |= read(rank, lane.link, share);
      lane.link.is_blocked = !lane.link.stream.has_starved();
    }
  } while (!peer.joint.is_open());  // its last share makes room for what is behind it
  if (!peer.outbox.empty()) has_moved |= peer.outbox.flush(peer.links.front()->stream);
  for (std::size_t i = 0; i < peer.lanes.size(); ++i) {
    Lane& lane = *peer.lanes[i];
    if (!lane.is_outgoing || !is_active(peer, lane)) continue;
    has_moved |= lane.outbox.flush(lane.link.stream);
    if (lane.link.stream.can_write()) continue;
    ShareReceiver nothing(peer.joint, receiver_, lane.done);
    read(rank, lane.link, nothing);  // tells why it has ended
  }
  note_sent(peer);
  return has_moved;
}

bool TcpTransport::poll() {
  if (!is_ours()) return false;
  bool has_moved = adopt();
  if (linked_.size() <= few_links) {
    for (std::size_t i = 0; i < linked_.size(); ++i)
      has_moved |= move(linked_[i], peers_[linked_[i]]);
  } else {
    for (const std::uint32_t r : ready_ranks()) has_moved |= move(r, peers_[r]);
  }
  look_for_silence();
  for (std::size_t i = 0; i < linked_.size();) {
    if (lose_if_ended(linked_[i], peers_[linked_[i]])) {
      linked_.erase(linked_.begin() + static_cast<std::ptrdiff_t>(i));
      has_moved = true;
    } else {
      ++i;
    }
  }
  update_watch();
  if (has_moved) wake_others();
  return has_moved;
}

// Each look at a socket is a system call, most of which find nothing while a peer is at work. So of two connections
// only the one is looked at by which the peer sends.
bool TcpTransport::poll_peer(std::uint32_t peer) {
  if (!is_ours() || peers_[peer].links.empty() || arrivals_->has_any() || has_unsent())
    return poll();
  if (!move(peer, peers_[peer], Reads::where_it_spoke)) return false;
  update_watch();
  wake_others();
  return true;
}

bool TcpTransport::has_unsent() const {
  return std::any_of(linked_.begin(), linked_.end(), [this](std::uint32_t r) {
    return !peers_[r].outbox.empty() || !peers_[r].splits.empty();
  });
}

std::vector<std::uint32_t> TcpTransport::ready_ranks() {
  update_watch();
  std::vector<pollfd> entries;
  entries.reserve(2 * linked_.size());
  for (const std::uint32_t r : linked_) {
    for_each_active(peers_[r], [&](const Link& link) {
      entries.push_back({link.watched == 0 ? -1 : link.fd(), link.watched, 0});
    });
  }
  ::poll(entries.data(), entries.size(), 0);
  std::vector<std::uint32_t> ready;
  auto entry = entries.begin();
  for (const std::uint32_t r : linked_) {
    bool is_ready = false;
    for_each_active(peers_[r], [&](const Link& link) {
      is_ready |= (entry++)->revents != 0 || link.is_blocked || link.stream.has_ended();
    });
    if (is_ready) ready.push_back(r);
  }
  return ready;
}

void TcpTransport::cancel(const std::byte* memory, std::uint64_t nbytes) {
  if (nbytes == 0 || !is_ours()) return;
  for (const std::uint32_t r : linked_) {
    Peer& p = peers_[r];
    if (!cancel_unsent(p, memory)) {
      p.outbox.clear();
      p.splits.clear();
      p.links.front()->stream.stop_writing();
      for (const auto& lane : p.lanes) {
        lane->outbox.clear();
        lane->link.stream.stop_writing();
      }
    }
    p.joint.cancel(memory, memory + nbytes);
    for (const auto& link : p.links) link->inbox.cancel(memory, memory + nbytes);
    for (const auto& lane : p.lanes) lane->link.inbox.cancel(memory, memory + nbytes);
  }
  update_watch();
}

void TcpTransport::close() {
  if (!is_ours()) return;
  desk_->shut(way_from(0, place_.rank));
  adopt();  // what has come and was not looked at ends like the others
  is_closed_ = true;
  {
    const std::lock_guard lock(watch_mutex_);
    watched_.resize(always_watched_);
  }
  wake();
  for (const std::uint32_t r : linked_) {
    Peer& p = peers_[r];
    for (const auto& link : p.links) {
      // Each says that it ends: of two the peer may know this one first, and the other has more.
      const bool is_whole = link != p.links.front() || (p.outbox.empty() && p.splits.empty());
      if (is_whole)
        Outbox<TcpStream>(place_.has_sums)
            .post(link->stream, last_envelope(p.outbox.sent()), {}, nullptr);
      link->stream.end();
    }
    for (const auto& lane : p.lanes) {
      if (lane->outbox.empty())
        lane->outbox.post(lane->link.stream, last_envelope(lane->outbox.sent()), {}, nullptr);
      lane->link.stream.end();
    }
    p.spoke_by = nullptr;
    p.links.clear();
    p.lanes.clear();
    p.outbox.clear();
    p.splits.clear();
  }
  linked_.clear();
}

// --------------------------------------------------------------------------------------- ends

void TcpTransport::look_for_silence() {
  const std::int64_t now = now_ns();
  if (now < next_silence_check_ns_) return;
  next_silence_check_ns_ = now + silence_check_ns;
  for (const std::uint32_t r : linked_) {
    for_each_active(peers_[r], [&](Link& link) {
      if (!link.stream.has_ended() && !link.is_blocked &&
          is_silent(link.progress(), place_.keepalive_s))
        link.stream.fail(ETIMEDOUT);
    });
  }
}

// Whether it has said there that it leaves, and all that it had sent is here.
bool TcpTransport::has_left_by(const Peer& peer, const Link& said) {
  if (!said.inbox.has_ended() || said.is_late() || peer.joint.is_open()) return false;
  std::uint64_t arrived = 0;
  for (const auto& link : peer.links) {
    if (!link->inbox.is_between_messages()) return false;
    arrived += link->inbox.arrived();
  }
  return arrived == said.inbox.last();
}

// True when the peer is lost now.
bool TcpTransport::lose_if_ended(std::uint32_t rank, Peer& peer) {
  const Link* ended = nullptr;
  bool has_all_ended = true;
  bool is_blocked = false;
  bool is_late = false;  // some link of it
  for (const auto& link : peer.links) {
    if (has_left_by(peer, *link)) return false;  // whatever becomes of its other link
    const bool came_late = link->is_late();
    is_late |= came_late;
    if (link->inbox.has_ended() && !came_late) continue;
    has_all_ended &= link->stream.has_ended();
    is_blocked |= link->is_blocked && !peer.joint.is_open();  // else by a share that may never come
    if ((ended == nullptr || ended->is_late()) && link->stream.has_ended()) ended = link.get();
  }
  for (const auto& lane : peer.lanes) {
    const Link& link = lane->link;
    if (!lane->is_outgoing && peer.joint.is_open())
      has_all_ended &= link.stream.has_ended() || link.inbox.has_ended();
    if (ended == nullptr && link.stream.has_ended() && !link.inbox.has_ended()) ended = &link;
  }
  if (ended == nullptr) return false;
  // Who says that it had closed may have dialled before, by a connection that is not here yet.
  if (!has_all_ended || is_late) {
    if (peer.ended_ns == 0) peer.ended_ns = now_ns();
    if (is_blocked || now_ns() < peer.ended_ns + grace_ns) return false;
  }
  peer.lost = ended->why();
  bool is_whole = !peer.joint.is_open();
  for (const auto& link : peer.links) is_whole &= link->inbox.is_between_messages();
  if (!is_whole) peer.lost += " in the middle of a message";
  peer.outbox.clear();
  peer.splits.clear();
  peer.spoke_by = nullptr;
  peer.links.clear();
  peer.lanes.clear();
  is_watch_stale_ = true;
  receiver_.lost(rank, peer.lost);
  return true;
}

// ------------------------------------------------------------------------------------ waiting

void TcpTransport::wait(std::int64_t timeout_ns, Look has_work) {
  if (fork_generation() != generation_) return;
  TcpBell& bell = arrivals_->bell();
  bell.enter();
  struct Awake {
    TcpBell& bell;
    ~Awake() { bell.leave(); }
  } const awake{bell};
  const TcpTransport* const before = std::exchange(asking, this);
  bool is_needed = true;
  try {
    is_needed = has_work();
  } catch (...) {
    asking = before;
    throw;
  }
  asking = before;
  if (is_needed) return;
  thread_local std::vector<pollfd> entries;
  {
    const std::lock_guard lock(watch_mutex_);
    entries = watched_;
  }
  timeout_ns = std::max<std::int64_t>(timeout_ns, 0);
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000),
                         static_cast<long>(timeout_ns % 1'000'000'000)};
  ::ppoll(entries.data(), entries.size(), &timeout, nullptr);
}

void TcpTransport::watch_also(int fd) {
  const std::lock_guard lock(watch_mutex_);
  watched_.resize(always_watched_++);
  watched_.push_back({fd, POLLIN, 0});
  is_watch_stale_ = true;
}

void TcpTransport::wake_others() { arrivals_->bell().ring(asking == this ? 1 : 0); }

// Who sleeps meanwhile sleeps with what was to be looked for before, so it is woken.
void TcpTransport::update_watch() {
  const auto watch = [this](Link& link, bool has_unsent) {
    // One that nobody reads from would be ready all the time, and so would one that has ended.
    const bool is_idle = link.is_blocked || link.stream.has_ended();
    const bool writes = has_unsent && link.stream.can_write();
    const auto events = static_cast<short>((is_idle ? 0 : POLLIN) | (writes ? POLLOUT : 0));
    if (std::exchange(link.watched, events) != events) is_watch_stale_ = true;
  };
  for (const std::uint32_t r : linked_) {
    const Peer& p = peers_[r];
    for (std::size_t i = 0; i < p.links.size(); ++i)
      watch(*p.links[i], i == 0 && !p.outbox.empty());
    for (const auto& lane : p.lanes) {
      if (is_active(p, *lane)) {
        watch(lane->link, !lane->outbox.empty());
      } else if (std::exchange(lane->link.watched, short{0}) != 0) {
        is_watch_stale_ = true;
      }
    }
  }
  if (!std::exchange(is_watch_stale_, false)) return;
  {
    const std::lock_guard lock(watch_mutex_);
    watched_.resize(always_watched_);
    for (const std::uint32_t r : linked_) {
      for_each_active(peers_[r], [&](const Link& link) {
        if (link.watched != 0) watched_.push_back({link.fd(), link.watched, 0});
      });
    }
  }
  wake_others();
}

}  // namespace distdbg
