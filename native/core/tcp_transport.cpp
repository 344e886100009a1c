#include "tcp_transport.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "error.hpp"
#include "store_address.hpp"
#include "store_wire.hpp"

namespace distdbg {

namespace {

// Small messages are read together; longer ones go straight to where they are wanted.
constexpr std::size_t buffer_nbytes = 16 * 1024;
constexpr std::size_t direct_nbytes = 4 * 1024;

void send_all(int fd, std::string_view bytes, const Wait& wait) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    else if (errno == EAGAIN)
      wait_for_socket(fd, POLLOUT, wait);
    else if (errno != EINTR)
      throw Error(Fault::network, std::strerror(errno), errno);
  }
}

std::string receive_all(int fd, std::size_t nbytes, const Wait& wait) {
  std::string bytes(nbytes, '\0');
  for (std::size_t have = 0; have < nbytes;) {
    const ssize_t got = ::recv(fd, bytes.data() + have, nbytes - have, MSG_DONTWAIT);
    if (got > 0)
      have += static_cast<std::size_t>(got);
    else if (got == 0)
      throw Error(Fault::network, "it closed the connection: is its DISTDBG_TOKEN another one?");
    else if (errno == EAGAIN)
      wait_for_socket(fd, POLLIN, wait);
    else if (errno != EINTR)
      throw Error(Fault::network, std::strerror(errno), errno);
  }
  return bytes;
}

// Both prove that they know the token.
void introduce(int fd, const LinkName& name, const std::string& token, const Wait& wait) {
  LinkMeeting meeting;
  meeting.rank_nonce = make_store_nonce();
  meeting.hub_address = peer_store_address(fd);
  send_all(fd, encode_link_hello(meeting.rank_nonce), wait);
  if (!check_link_answer(receive_all(fd, link_answer_nbytes, wait), token, meeting))
    throw Error(Fault::network, "who listens there has another DISTDBG_TOKEN", EACCES);
  send_all(fd, encode_link_name(name, token, meeting), wait);
}

}  // namespace

// ------------------------------------------------------------------------------- one connection

TcpTransport::Stream::Stream(Descriptor socket)
    : socket_(std::move(socket)),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(buffer_nbytes)) {}

void TcpTransport::Stream::end(const std::string& why) {
  if (why_.empty()) why_ = why;
}

void TcpTransport::Stream::fail(int error_number) {
  end(error_number == 0            ? "closed its connection"
      : error_number == ECONNRESET ? "was cut off (connection reset)"
      : error_number == ETIMEDOUT
          ? "has fallen silent (no answer to keep-alive)"
          : std::string("was cut off (") + std::strerror(error_number) + ")");
}

std::size_t TcpTransport::Stream::write(const Piece* pieces, std::size_t count) {
  if (is_over()) return 0;
  iovec parts[3];
  std::size_t n = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (pieces[i].nbytes > 0) parts[n++] = {pieces[i].data, pieces[i].nbytes};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = n;
  for (;;) {
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EINTR) continue;
    // What it has sent before is still to be read, and may say why.
    if (errno != EAGAIN && errno != EPIPE && errno != ECONNRESET) fail(errno);
    return 0;
  }
}

std::size_t TcpTransport::Stream::read(std::byte* into, std::size_t nbytes) {
  if (begin_ == end_) {
    if (is_drained_ || is_over()) return 0;
    const bool is_direct = nbytes >= direct_nbytes;
    std::byte* const where = is_direct ? into : buffer_.get();
    const std::size_t most = is_direct ? nbytes : buffer_nbytes;
    // Without a place MSG_TRUNC throws it away.
    const int flags = MSG_DONTWAIT | (where == nullptr ? MSG_TRUNC : 0);
    const ssize_t got = ::recv(socket_.get(), where, most, flags);
    if (got < 0 && errno == EINTR) return read(into, nbytes);
    if (got <= 0) {
      is_drained_ = true;
      if (got == 0) fail(0);
      if (got < 0 && errno != EAGAIN) fail(errno);
      return 0;
    }
    is_drained_ = static_cast<std::size_t>(got) < most;
    if (is_direct) return static_cast<std::size_t>(got);
    begin_ = 0;
    end_ = static_cast<std::size_t>(got);
  }
  const std::size_t n = std::min(nbytes, end_ - begin_);
  if (into != nullptr) std::memcpy(into, buffer_.get() + begin_, n);
  begin_ += n;
  return n;
}

// Bytes that were not read would make the kernel reset the connection, and throw away at the peer what we
// have sent last.
void TcpTransport::Stream::close() {
  if (socket_.get() < 0) return;
  ::shutdown(socket_.get(), SHUT_WR);
  while (::recv(socket_.get(), nullptr, 1 << 20, MSG_DONTWAIT | MSG_TRUNC) > 0) {
  }
  socket_.reset();
  end("this rank has closed it");
}

// --------------------------------------------------------------------------------- the transport

TcpTransport::TcpTransport(const NetPlace& place, std::uint32_t purpose, Receiver& receiver)
    : place_(place),
      purpose_(purpose),
      receiver_(receiver),
      peers_(place.addresses.size()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_.get() < 0) throw Error(Fault::system, "eventfd failed", errno);
  place_.hub->expect(place_.cookie, place_.rank, purpose_, *this);
}

TcpTransport::~TcpTransport() { close(); }

void TcpTransport::close() {
  if (std::exchange(is_closed_, true)) return;
  place_.hub->forget(place_.cookie, place_.rank, purpose_);
  add_taken();
  for (Peer& peer : peers_) {
    // Each connection says that it ends: the peer may know this one before the other, which has more.
    const Envelope last{last_envelope_nbytes, {}};
    for (const auto& way : peer.ways) {
      const bool is_whole = way.get() != peer.out || peer.outbox.empty();
      if (is_whole) Outbox<Stream>().post(way->stream, last, {}, nullptr);
      way->stream.close();
    }
    peer.outbox.clear();
    peer.out = nullptr;
    peer.ways.clear();
  }
  linked_.clear();
}

void TcpTransport::take(std::uint32_t from, Descriptor socket) {
  if (from >= peers_.size()) return;
  const std::lock_guard lock(taken_mutex_);
  taken_.emplace_back(from, std::move(socket));
  has_taken_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t wrote = ::write(wake_.get(), &one, sizeof one);
}

void TcpTransport::add_taken() {
  if (!has_taken_.load(std::memory_order_acquire)) [[likely]]
    return;
  std::vector<std::pair<std::uint32_t, Descriptor>> taken;
  {
    const std::lock_guard lock(taken_mutex_);
    taken.swap(taken_);
    has_taken_.store(false, std::memory_order_relaxed);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
  }
  for (auto& [from, socket] : taken) add_way(from, std::move(socket));
}

void TcpTransport::add_way(std::uint32_t peer, Descriptor socket) {
  prepare_link(socket.get(), place_.keepalive_s);
  Peer& p = peers_[peer];
  if (p.ways.empty()) linked_.push_back(peer);
  p.ways.push_back(std::make_unique<Way>(std::move(socket)));
  if (p.out == nullptr) p.out = p.ways.back().get();
}

void TcpTransport::connect(std::uint32_t peer, const Wait& wait) {
  if (peers_[peer].out != nullptr) [[likely]]
    return;
  add_taken();
  if (peers_[peer].out != nullptr) return;
  try {
    Descriptor socket = connect_to(place_.addresses[peer], wait);
    introduce(socket.get(), {place_.cookie, place_.rank, peer, purpose_, 0}, place_.hub->token(),
              wait);
    add_way(peer, std::move(socket));
  } catch (const Error& error) {
    if (error.fault() != Fault::network) throw;
    throw Error(Fault::peer_lost, std::string("cannot be reached (") + error.what() + ")",
                error.error_number(), static_cast<int>(peer));
  }
}

void TcpTransport::post(std::uint32_t peer, const Envelope& envelope, const Payload& payload,
                        bool* is_sent) {
  Peer& p = peers_[peer];
  if (p.out == nullptr)
    throw Error(Fault::peer_lost, "is not connected", ENOTCONN, static_cast<int>(peer));
  p.outbox.post(p.out->stream, envelope, payload, is_sent);
}

bool TcpTransport::poll() {
  add_taken();
  bool has_moved = false;
  // By number: what arrives may lead to further ways.
  for (std::size_t i = 0; i < linked_.size(); ++i) {
    const std::uint32_t r = linked_[i];
    Peer& p = peers_[r];
    for (std::size_t w = 0; w < p.ways.size(); ++w) {
      Way& way = *p.ways[w];
      way.stream.look_again();
      has_moved |= way.inbox.read(way.stream, r, receiver_);
      way.is_held = way.inbox.is_held();
    }
    for (const auto& way : p.ways)
      if (way->stream.is_over() && !way->stream.has_bytes() && !way->is_held &&
          !way->inbox.has_ended())
        lose(r, way->stream.why());
    if (!p.outbox.empty() && p.out != nullptr) has_moved |= p.outbox.flush(p.out->stream);
  }
  return has_moved;
}

void TcpTransport::lose(std::uint32_t peer, const std::string& why) {
  Peer& p = peers_[peer];
  if (std::exchange(p.is_lost, true)) return;
  p.outbox.clear();
  receiver_.lost(peer, why);
}

void TcpTransport::wait(std::int64_t timeout_ns, Look has_work) {
  if (has_work()) return;
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
  for (const std::uint32_t r : linked_) {
    const Peer& p = peers_[r];
    for (const auto& way : p.ways) {
      if (way->stream.is_over() || way->inbox.has_ended()) continue;
      short events = 0;
      if (!way->is_held) events |= POLLIN;
      if (way.get() == p.out && !p.outbox.empty()) events |= POLLOUT;
      if (events != 0) polled.push_back({way->stream.fd(), events, 0});
    }
  }
  timespec limit{static_cast<time_t>(timeout_ns / 1'000'000'000),
                 static_cast<long>(timeout_ns % 1'000'000'000)};
  ::ppoll(polled.data(), polled.size(), &limit, nullptr);
}

void TcpTransport::cancel(const std::byte* memory, std::uint64_t nbytes) {
  if (nbytes == 0) return;
  for (const std::uint32_t r : linked_) {
    Peer& p = peers_[r];
    if (!p.outbox.cancel(memory)) {
      // The rest of a message that was begun never comes: the peer must not take what follows for it.
      p.outbox.clear();
      ::shutdown(p.out->stream.fd(), SHUT_RDWR);
      p.out->stream.end("was cut off by this rank in the middle of a message");
    }
    for (const auto& way : p.ways) way->inbox.cancel(memory, memory + nbytes);
  }
}

}  // namespace distdbg
