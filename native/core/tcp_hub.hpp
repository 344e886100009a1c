// Where ranks of other hosts connect to this process: a listener, and a thread that asks everybody who comes
// for proof of the run's token (tcp_wire.hpp) and hands the connection to the transport it is for.
//
// Strangers get little: so many at a time, so many bytes, so many seconds. What they did is kept in words.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tcp_socket.hpp"
#include "tcp_wire.hpp"

namespace distdbg {

// Gets the connections of others to one rank of one group; called with the hub's lock held.
class LinkTaker {
 public:
  virtual void take(std::uint32_t from, Descriptor socket) = 0;

 protected:
  ~LinkTaker() = default;
};

class TcpHub {
 public:
  // Listens at that address alone; Error(network).
  TcpHub(const std::string& host, std::uint16_t port, std::string token);
  ~TcpHub();
  TcpHub(const TcpHub&) = delete;
  TcpHub& operator=(const TcpHub&) = delete;

  const std::string& address() const { return address_; }
  const std::string& token() const { return token_; }
  // From now on, and those that have come already.
  void expect(std::uint64_t cookie, std::uint32_t rank, std::uint32_t purpose, LinkTaker& taker);
  void forget(std::uint64_t cookie, std::uint32_t rank, std::uint32_t purpose);
  // What strangers did since it was last asked for, one line for each kind.
  std::vector<std::string> take_complaints();
  void close();

 private:
  using Key = std::array<std::uint64_t, 3>;  // cookie, rank, purpose
  struct Guest {
    Descriptor socket;
    std::string bytes;
    LinkMeeting meeting;
    bool is_greeted = false;
    std::int64_t until_ns = 0;
    std::string from;  // its address, for words
  };
  struct Early {
    Key key;
    std::uint32_t from;
    Descriptor socket;
    std::int64_t until_ns;
  };

  void work();
  void accept_some();
  bool serve(Guest& guest);  // false: done with it
  bool hand_over(Guest& guest);
  void complain(const std::string& what, const std::string& from);
  void drop_late(std::int64_t now);

  const std::string token_;
  std::string address_;
  const std::uint32_t generation_;
  Descriptor listener_;
  Descriptor wake_;
  std::list<Guest> guests_;       // the thread's own
  std::int64_t rests_until_ = 0;  // out of descriptors: it accepts nobody until then
  std::mutex mutex_;              // protects what is below
  std::map<Key, LinkTaker*> takers_;
  std::deque<Early> early_;
  std::map<std::string, std::pair<std::uint64_t, std::string>> complaints_;
  std::atomic<bool> is_closing_{false};
  std::thread thread_;
};

}  // namespace distdbg
