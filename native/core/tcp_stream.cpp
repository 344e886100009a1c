#include "tcp_stream.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "messages.hpp"
#include "tcp_socket.hpp"

namespace distdbg {

std::size_t TcpStream::write(const Piece* pieces, std::size_t count) {
  if (!can_write_) return 0;
  std::array<iovec, most_pieces> parts;
  msghdr message{};
  message.msg_iov = parts.data();
  for (std::size_t i = 0; i < count; ++i)
    if (pieces[i].nbytes > 0) parts[message.msg_iovlen++] = {pieces[i].data, pieces[i].nbytes};
  if (message.msg_iovlen == 0) return 0;
  ssize_t n = 0;
  do {
    n = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n >= 0) return static_cast<std::size_t>(n);
  if (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) {
    can_write_ = false;  // reading tells when all that came is read
    if (errno != EPIPE) error_number_ = errno;
  }
  return 0;
}

std::size_t TcpStream::take(std::byte* into, std::size_t nbytes) {
  const std::size_t n = std::min(nbytes, end_ - begin_);
  if (into != nullptr) std::memcpy(into, buffer_.data() + begin_, n);
  begin_ += n;
  return n;
}

std::size_t TcpStream::read(std::byte* into, std::size_t nbytes) {
  if (begin_ < end_) return take(into, nbytes);
  if (is_dry_ || taken_ >= round_nbytes) {
    has_starved_ = true;
    return 0;
  }
  const bool is_direct = into != nullptr && nbytes >= direct_nbytes;
  const std::size_t got = receive(into, is_direct ? nbytes : 0);
  if (got == 0) {
    has_starved_ = true;
    return 0;
  }
  taken_ += got;
  const std::size_t direct = is_direct ? std::min(got, nbytes) : 0;
  begin_ = 0;
  end_ = got - direct;
  return is_direct ? direct : take(into, nbytes);
}

// Into `into` first, if that is to have any, then into the buffer.
std::size_t TcpStream::receive(std::byte* into, std::size_t nbytes) {
  std::array<iovec, 2> parts{{{into, nbytes}, {buffer_.data(), buffer_.size()}}};
  msghdr message{};
  message.msg_iov = parts.data() + (nbytes == 0 ? 1 : 0);
  message.msg_iovlen = nbytes == 0 ? 1 : 2;
  ssize_t got = 0;
  do {
    got = ::recvmsg(fd_, &message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) {
    is_dry_ = true;
    return 0;
  }
  if (got <= 0) {
    fail(got < 0 ? errno : 0);
    return 0;
  }
  const auto n = static_cast<std::size_t>(got);
  is_dry_ = n < nbytes + buffer_.size();
  return n;
}

void TcpStream::fail(int error_number) {
  is_dry_ = has_ended_ = true;
  can_write_ = false;
  if (error_number_ == 0) error_number_ = error_number;
}

void TcpStream::stop_writing() {
  if (can_write_) ::shutdown(fd_, SHUT_WR);
  can_write_ = false;
}

void TcpStream::end() {
  stop_writing();
  begin_round();
  while (read(nullptr, std::size_t{64} << 10) != 0) continue;
}

std::string TcpStream::why(int error_number) {
  switch (error_number) {
    case 0: return "died: its connection was closed";
    case EPROTO: return "sent what is no message of distdbg";
    case ETIMEDOUT: return "has fallen silent: its host or the network to it is down";
    default: return "lost the connection: " + errno_words(error_number);
  }
}

}  // namespace distdbg
