#include "ucx_transport.hpp"

#include <algorithm>
#include <utility>

#include "error.hpp"
#include "fork.hpp"

namespace distdbg {
namespace {

// The connections say little, and each look at one is a system call.
constexpr std::int64_t tcp_check_ns = 500'000;
// What a peer has said by UCX may come after its connection has ended.
constexpr std::int64_t grace_ns = 100 * ns_per_ms;
// An endpoint fails before or after the connection does, which knows more.
constexpr std::int64_t failure_grace_ns = 1'000 * ns_per_ms;
constexpr std::int64_t close_limit_ns = 2'000 * ns_per_ms;
constexpr std::int64_t ask_again_ns = 2 * ns_per_ms;

enum class End : std::uint64_t { whole, cut };

constexpr const char* cut_words = "left in the middle of an op";

}  // namespace

UcxTransport::UcxTransport(TcpHub& hub, const TcpPlace& place, std::vector<Worker> workers,
                           std::shared_ptr<UcxEngine> engine, Receiver& receiver)
    : own_{place.cookie, place.kind, 0, place.rank},
      workers_(std::move(workers)),
      engine_(std::move(engine)),
      mailbox_(std::make_shared<UcxMailbox>()),
      receiver_(receiver),
      generation_(fork_generation()),
      peers_(place.size),
      tcp_(hub.tcp_transport(place, *this)) {
  for (Peer& peer : peers_) {
    peer.outbox = Outbox<UcxStream>(place.has_sums);
    peer.inbox = Inbox<UcxStream>(place.has_sums);
  }
  tcp_->watch_also(engine_->fd());
  mailbox_->wake = [tcp = tcp_.get()] { tcp->wake(); };
  engine_->open(own_, mailbox_);
}

UcxTransport::~UcxTransport() { close(); }

bool UcxTransport::is_ours() const { return !is_closed_ && fork_generation() == generation_; }

UcxTransport::Peer& UcxTransport::know(std::uint32_t rank) {
  Peer& peer = peers_[rank];
  if (!std::exchange(peer.is_known, true)) known_.push_back(rank);
  return peer;
}

bool UcxTransport::open(std::uint32_t rank, Peer& peer) {
  if (peer.stream.is_open()) return true;
  if (rank >= workers_.size() || workers_[rank].address.empty()) return false;
  peer.stream.open(*engine_, workers_[rank].address, {own_.cookie, own_.kind, own_.to, rank},
                   workers_[rank].is_here);
  return true;
}

void UcxTransport::connect(std::uint32_t peer, const Wait& wait) {
  if (!is_ours()) throw Error(Fault::broken, "the UCX transport is closed");
  if (peer < peers_.size() && !peers_[peer].lost.empty())
    throw Error(Fault::network, "rank " + std::to_string(peer) + " " + peers_[peer].lost, 0,
                static_cast<int>(peer));
  tcp_->connect(peer, wait);
  if (!open(peer, know(peer)))
    throw Error(Fault::network, "rank " + std::to_string(peer) + " has no address of UCX", 0,
                static_cast<int>(peer));
}

// ---------------------------------------------------------------------------------- messages

void UcxTransport::post(std::uint32_t rank, const Envelope& envelope, const Payload& payload,
                        bool* is_sent) {
  if (!is_ours()) return;
  Peer& peer = peers_[rank];
  if (!peer.lost.empty() || peer.is_cut || peer.has_left || !open(rank, peer)) return;
  know(rank).outbox.post(peer.stream, envelope, payload, is_sent);
}

bool UcxTransport::take_news() {
  bool has_moved = engine_->collect(*mailbox_, news_, read_);
  // First all of it, since a receiver may throw.
  for (const UcxNews& news : news_) {
    if (news.from >= peers_.size()) {
      read_.push_back(news.part);
      continue;
    }
    Peer& peer = know(news.from);
    switch (news.type) {
      case UcxType::data:
        if (peer.lost.empty()) {
          peer.stream.add(news.part);
        } else {
          read_.push_back(news.part);
        }
        break;
      case UcxType::room: peer.stream.set_room(news.number); break;
      case UcxType::have: peer.stream.set_arrived(news.number); break;
      case UcxType::ask: break;
    }
    has_moved = true;
  }
  news_.clear();
  return has_moved;
}

bool UcxTransport::move(std::uint32_t rank, Peer& peer) {
  bool has_moved = false;
  if (peer.is_corrupt) {
    peer.stream.drop(read_);
  } else if (peer.stream.has_unread() || peer.inbox.is_refused()) {
    try {
      has_moved |= peer.inbox.read(peer.stream, rank, receiver_);
    } catch (const WrongSum&) {
      // Its other direction may be sound, and tells the peer: so it is not closed.
      peer.is_corrupt = has_moved = true;
      receiver_.corrupted(rank, "UCX");
    } catch (const Error& error) {
      if (error.fault() != Fault::system) throw;
      peer.stream.drop(read_);  // whatever follows cannot be understood
      end(peer, "sent what is no message of distdbg", 0);
      has_moved = true;
    }
    if (open(rank, peer)) peer.stream.settle(read_);
  }
  if (!peer.outbox.empty()) has_moved |= peer.outbox.flush(peer.stream);
  return has_moved;
}

bool UcxTransport::poll() {
  if (!is_ours()) return false;
  bool has_moved = false;
  const std::int64_t now = now_ns();
  if (now >= next_tcp_ns_) {
    next_tcp_ns_ = now + tcp_check_ns;
    has_moved |= tcp_->poll();
    look_for_failures();
  }
  has_moved |= take_news();
  for (std::size_t i = 0; i < known_.size(); ++i) has_moved |= move(known_[i], peers_[known_[i]]);
  for (std::size_t i = 0; i < known_.size();) {
    if (lose_if_ended(known_[i], peers_[known_[i]])) {
      known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(i));
      has_moved = true;
    } else {
      ++i;
    }
  }
  if (has_moved) tcp_->wake_others();
  return has_moved;
}

void UcxTransport::wait(std::int64_t timeout_ns, Look has_work) {
  if (fork_generation() != generation_) return;
  engine_->enter();
  struct Awake {
    UcxEngine& engine;
    ~Awake() { engine.leave(); }
  } const awake{*engine_};
  const auto must_look = [&] { return has_work() || !engine_->may_sleep(); };
  tcp_->wait(timeout_ns, must_look);
}

void UcxTransport::cancel(const std::byte* memory, std::uint64_t nbytes) {
  if (nbytes == 0 || !is_ours()) return;
  for (const std::uint32_t rank : known_) {
    Peer& peer = peers_[rank];
    if (!peer.outbox.cancel(memory)) cut(rank, peer);
    peer.inbox.cancel(memory, memory + nbytes);
  }
}

// --------------------------------------------------------------------------------------- ends

void UcxTransport::cut(std::uint32_t rank, Peer& peer) {
  peer.outbox.clear();
  if (std::exchange(peer.is_cut, true)) return;
  tcp_->post(rank, {0, {static_cast<std::uint64_t>(End::cut)}}, {}, nullptr);
}

void UcxTransport::end(Peer& peer, std::string why, std::int64_t grace) {
  const std::int64_t at = now_ns() + grace;
  if (peer.lost_ns != 0 && peer.lost_ns <= at) return;
  peer.ended = std::move(why);
  peer.lost_ns = at;
}

bool UcxTransport::place(std::uint32_t, const Envelope& envelope, Payload&) {
  if (envelope.nbytes != 0) throw Error(Fault::system, "a frame is too long");
  return true;
}

void UcxTransport::arrived(std::uint32_t rank, const Envelope& envelope) {
  Peer& peer = know(rank);
  if (envelope.words[0] == static_cast<std::uint64_t>(End::whole)) {
    peer.has_left = true;
    peer.outbox.clear();
  } else {
    end(peer, cut_words, grace_ns);
  }
}

void UcxTransport::lost(std::uint32_t rank, const std::string& why) {
  end(know(rank), why, grace_ns);
}

void UcxTransport::look_for_failures() {
  const std::uint64_t failures = engine_->failures();
  if (std::exchange(failures_, failures) == failures) return;
  for (const std::uint32_t rank : known_) {
    Peer& peer = peers_[rank];
    const std::string why = peer.stream.why();
    if (!why.empty() && !peer.has_left)
      end(peer, "lost the connection: UCX says " + why, failure_grace_ns);
  }
}

// True when the peer is lost now. All that it has sent is taken before; who has said its last is no loss.
bool UcxTransport::lose_if_ended(std::uint32_t rank, Peer& peer) {
  if (peer.lost_ns == 0 || now_ns() < peer.lost_ns || peer.has_left) return false;
  if (peer.inbox.has_ended()) return false;
  if (peer.stream.has_unread() || peer.inbox.is_refused()) return false;
  peer.lost = peer.ended;
  if (!peer.inbox.is_between_messages() && peer.lost != cut_words)
    peer.lost += " in the middle of a message";
  peer.outbox.clear();
  receiver_.lost(rank, peer.lost);
  return true;
}

void UcxTransport::flush() {
  const std::int64_t until = now_ns() + close_limit_ns;
  std::int64_t next_ask_ns = 0;
  for (;;) {
    tcp_->poll();
    take_news();
    bool is_done = true;
    const bool asks = now_ns() >= next_ask_ns;
    if (asks) next_ask_ns = now_ns() + ask_again_ns;
    for (const std::uint32_t rank : known_) {
      Peer& peer = peers_[rank];
      if (peer.has_left || peer.lost_ns != 0 || peer.is_cut || peer.stream.has_all_arrived() ||
          !peer.stream.why().empty())
        continue;
      is_done = false;
      if (asks) peer.stream.ask();
    }
    if (is_done || now_ns() >= until) return;
    engine_->enter();
    tcp_->wait(ask_again_ns, [&] { return !engine_->may_sleep(); });
    engine_->leave();
  }
}

void UcxTransport::close() {
  if (!is_ours()) return;
  for (const std::uint32_t rank : known_) {
    Peer& peer = peers_[rank];
    if (!peer.outbox.empty()) peer.outbox.flush(peer.stream);
    if (!peer.outbox.empty()) {
      cut(rank, peer);
    } else if (peer.stream.is_open() && !peer.is_cut && !peer.has_left) {
      peer.outbox.post(peer.stream, {last_envelope_nbytes, {}}, {}, nullptr);
      peer.outbox.clear();
    }
  }
  flush();
  is_closed_ = true;
  for (const std::uint32_t rank : known_) {
    if (peers_[rank].is_cut) continue;
    const End how = peers_[rank].stream.has_all_arrived() ? End::whole : End::cut;
    tcp_->post(rank, {0, {static_cast<std::uint64_t>(how)}}, {}, nullptr);
  }
  tcp_->close();
  engine_->shut(own_);
  for (Peer& peer : peers_) {
    peer.outbox.clear();
    peer.stream.drop(read_);
  }
  UcxMailbox nobody;
  engine_->collect(nobody, news_, read_);
}

}  // namespace distdbg
