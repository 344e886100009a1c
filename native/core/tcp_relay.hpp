// Connections whose bytes another thread carries, encrypted: it has the socket, and native code reads and
// writes one end of a pair of sockets.
//
//   native code <--> [pair] <--> the thread of distdbg/secure, with TLS <--> network <--> peer
//
// Who owns what: the thread closes the socket and its end of the pair, native code closes the other end.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tcp_socket.hpp"

namespace distdbg {

// One connection. Thread-safe.
class TcpRelayed {
 public:
  TcpRelayed(Fd network, Fd end, bool is_server)
      : is_server_(is_server), network_(std::move(network)), end_(std::move(end)) {}

  // -1 when closed, and in a child.
  int network() const;
  int end() const;
  // Whether the peer has dialled.
  bool is_server() const { return is_server_; }

  void set_options(int keepalive_s);
  LinkProgress progress() const;
  // No more is sent to the peer, or to native code.
  void shut_network();
  void shut_end();
  // Why it ends, an errno and words; what was told first counts.
  void fail(int error_number, std::string words);
  std::pair<int, std::string> failure() const;
  void close();

 private:
  const bool is_server_;
  mutable std::mutex mutex_;  // guards what follows
  Fd network_;
  Fd end_;
  int error_number_ = 0;
  std::string words_;
};

// What native code has of a connection.
struct TcpLine {
  Fd fd;
  std::shared_ptr<TcpRelayed> relayed;  // nullptr: `fd` is the connection itself

  // Error(network) with the words of the relay when it has ended the connection.
  void check() const;
};

// Where the thread gets its connections from.
class TcpRelay {
 public:
  TcpRelay();

  TcpLine carry(Fd network, bool is_server);
  // The next one; nullptr when there is none.
  std::shared_ptr<TcpRelayed> take();
  // Readable while there are some.
  int fd() const;
  bool is_empty() const;
  // All that is still to come ends at once; what waits may be taken.
  void close();
  // The thread looks no more.
  void release();

 private:
  Fd bell_;
  mutable std::mutex mutex_;  // guards all
  std::deque<std::shared_ptr<TcpRelayed>> waiting_;
  bool is_closed_ = false;
};

// As it is where there is no relay.
TcpLine make_line(const std::shared_ptr<TcpRelay>& relay, Fd network, bool is_server);

}  // namespace distdbg
