// A connected, non-blocking socket as a Stream of messages.hpp. Small messages come several to a system call,
// by way of a small buffer; the bulk of large ones goes straight to where it belongs.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <string>

#include "transport.hpp"

namespace distdbg {

class TcpStream {
 public:
  explicit TcpStream(int fd) : fd_(fd) {}

  // Streams move until they are told once that there is no more: of that, anew.
  void begin_round() {
    is_dry_ = has_ended_;
    has_starved_ = false;
    taken_ = 0;
  }
  std::size_t write(const Piece* pieces, std::size_t count);
  std::size_t read(std::byte* into, std::size_t nbytes);

  // Whether the last round of reads was ended by the lack of data: nothing is in the buffer then.
  bool has_starved() const { return has_starved_; }
  // The other side has ended it, or it broke; all that has come was read.
  bool has_ended() const { return has_ended_; }
  bool can_write() const { return can_write_; }
  // Why it ended, in words.
  std::string why() const { return why(error_number_); }
  static std::string why(int error_number);
  void fail(int error_number);
  // The peer sees the end of what this side sends.
  void stop_writing();
  // Before the socket is closed: with something unread that would reset the connection, and so lose what was
  // sent.
  void end();

 private:
  static constexpr std::size_t buffer_nbytes = 20 * 1024;
  // More of one read than this is worth a copy less.
  static constexpr std::size_t direct_nbytes = 2 * 1024;
  // So that one peer does not keep the others waiting.
  static constexpr std::size_t round_nbytes = 4 << 20;

  std::size_t receive(std::byte* into, std::size_t nbytes);
  std::size_t take(std::byte* into, std::size_t nbytes);

  int fd_;
  bool is_dry_ = false;
  bool has_starved_ = false;
  bool has_ended_ = false;
  bool can_write_ = true;
  int error_number_ = 0;
  std::size_t taken_ = 0;  // from the socket in this round
  std::size_t begin_ = 0;  // of what is in the buffer
  std::size_t end_ = 0;
  std::array<std::byte, buffer_nbytes> buffer_;
};

}  // namespace distdbg
