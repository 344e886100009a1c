// The transport between hosts: a TCP connection with each rank that messages are exchanged with, made when the
// first of the two needs it. Whoever calls poll() moves the bytes; no thread is between.
//
// If two ranks connect to each other at once both connections stay: each sends on the one it had first, and
// reads both.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "messages.hpp"
#include "tcp_hub.hpp"
#include "tcp_socket.hpp"
#include "transport.hpp"

namespace distdbg {

// Where the ranks of a group are, for its transports.
struct NetPlace {
  TcpHub* hub;
  std::uint64_t cookie;                // of the group
  std::uint32_t rank;                  // this one
  std::vector<std::string> addresses;  // of the hubs, by rank
  double keepalive_s;
};

class TcpTransport final : public Transport, private LinkTaker {
 public:
  TcpTransport(const NetPlace& place, std::uint32_t purpose, Receiver& receiver);
  ~TcpTransport() override;

  void connect(std::uint32_t peer, const Wait& wait) override;
  void post(std::uint32_t peer, const Envelope& envelope, const Payload& payload,
            bool* is_sent) override;
  bool poll() override;
  void wait(std::int64_t timeout_ns, Look has_work) override;
  void cancel(const std::byte* memory, std::uint64_t nbytes) override;
  void close() override;

 private:
  // One connection.
  class Stream {
   public:
    explicit Stream(Descriptor socket);
    std::size_t write(const Piece* pieces, std::size_t count);
    std::size_t read(std::byte* into, std::size_t nbytes);
    // Before the next reads: the socket may have more again.
    void look_again() { is_drained_ = false; }
    bool has_bytes() const { return begin_ != end_; }
    int fd() const { return socket_.get(); }
    bool is_over() const { return !why_.empty(); }
    const std::string& why() const { return why_; }
    void end(const std::string& why);
    void close();

   private:
    void fail(int error_number);
    Descriptor socket_;
    std::unique_ptr<std::byte[]> buffer_;
    std::size_t begin_ = 0, end_ = 0;  // of what is in the buffer
    bool is_drained_ = false;
    std::string why_;  // it is over
  };
  struct Way {
    explicit Way(Descriptor socket) : stream(std::move(socket)) {}
    Stream stream;
    Inbox<Stream> inbox;
    bool is_held = false;  // the receiver takes no more for now
  };
  struct Peer {
    std::vector<std::unique_ptr<Way>> ways;
    Way* out = nullptr;
    Outbox<Stream> outbox;
    bool is_lost = false;
  };

  void take(std::uint32_t from, Descriptor socket) override;
  void add_taken();
  void add_way(std::uint32_t peer, Descriptor socket);
  void lose(std::uint32_t peer, const std::string& why);

  const NetPlace place_;
  const std::uint32_t purpose_;
  Receiver& receiver_;
  std::vector<Peer> peers_;            // by rank
  std::vector<std::uint32_t> linked_;  // those with a way
  Descriptor wake_;
  std::atomic<bool> has_taken_{false};
  std::mutex taken_mutex_;
  std::vector<std::pair<std::uint32_t, Descriptor>> taken_;  // by the hub, not yet looked at
  bool is_closed_ = false;
};

}  // namespace distdbg
