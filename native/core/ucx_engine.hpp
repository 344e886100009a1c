// UCX in this process: one worker, one endpoint to each process, and the parts of streams that come.
//
//   UcxTransport --(send)--> endpoint ~~~> worker of the peer --(news)--> UcxMailbox --> its UcxTransport
//
// Whoever waits moves all that the worker has, for whatever group or purpose. A thread of its own does so
// while nobody of this process waits, or has done a moment ago: UCX needs both ends to connect, and to hand
// over what is long, and a rank that computes must not hold up the last words it has said.
//
// What comes with the key of a way (ucx_wire.hpp) is put in order and kept for that way's transport, also
// before there is one. All else is thrown away. Memory of users is never given to UCX: parts are copied
// out of it and into it, so that it can be let go of at any moment.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tcp_socket.hpp"
#include "ucx_api.hpp"
#include "ucx_wire.hpp"

namespace distdbg {

class UcxEngine;

// The most that one part holds.
constexpr std::uint64_t ucx_part_nbytes = 256 * 1024;

// The endpoint to one process; all groups share it. All but `has_failed` is the engine's.
struct UcxEnd {
  ucx::Endpoint* endpoint = nullptr;
  UcxEngine* engine = nullptr;
  bool is_here = false;
  std::string why;  // written before `has_failed`
  std::atomic<bool> has_failed{false};
};

// A message that leaves, or a part that is fetched, and the memory it needs.
struct UcxOp {
  UcxHeader header{};
  std::unique_ptr<std::byte[]> bytes;
  std::uint64_t capacity = 0;
  std::uint64_t nbytes = 0;
  UcxEngine* engine = nullptr;
  UcxEnd* end = nullptr;
};

// Bytes that have come, to be given back when they are read.
struct UcxPart {
  std::byte* data = nullptr;
  std::uint64_t nbytes = 0;
  UcxOp* op = nullptr;  // nullptr: the library holds them
};

struct UcxNews {
  std::uint32_t from;
  UcxType type;
  std::uint64_t number;
  UcxPart part;  // data
};

// Of one transport; protected by the engine's lock.
struct UcxMailbox {
  std::vector<UcxNews> news;
  std::function<void()> wake;  // whoever sleeps in it
  std::vector<std::array<char, 16>> keys;
};

class UcxEngine {
 public:
  // Error(network) where the library cannot be opened, or finds nothing to send by.
  UcxEngine(const std::string& library, std::string token);
  ~UcxEngine();
  UcxEngine(const UcxEngine&) = delete;
  UcxEngine& operator=(const UcxEngine&) = delete;

  // What others need to reach this process; bytes.
  const std::string& address() const { return address_; }
  const std::string& token() const { return token_; }
  const std::string& version() const { return version_; }

  // From here on all that comes to that rank (`way.from` is not looked at) is put into `mailbox`.
  void open(const TcpWay& way, std::shared_ptr<UcxMailbox> mailbox);
  void shut(const TcpWay& way);
  // The endpoint to the process with that address; nothing is waited for. `is_here`: on this host. Then the
  // library need not tell that the process has died, which it cannot do of shared memory.
  UcxEnd* end_of(const std::string& address, bool is_here);

  // Room for so many bytes; then it is to be sent.
  UcxOp* take(std::uint64_t nbytes);
  void send(UcxEnd& end, UcxOp* op);
  // Moves what can be moved, and appends what came to the mailbox to `into`; `read` is given back. True when
  // anything has moved.
  bool collect(UcxMailbox& mailbox, std::vector<UcxNews>& into, std::vector<UcxPart>& read);
  // Whoever is about to sleep: false when something has come; true: fd() becomes readable when it does.
  bool may_sleep();
  int fd() const { return fd_; }
  // Between them a thread sleeps that would move what comes.
  void enter() { sleepers_.fetch_add(1, std::memory_order_relaxed); }
  void leave() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }
  // How many endpoints have failed so far.
  std::uint64_t failures() const { return failures_.load(std::memory_order_acquire); }
  // Messages without a key of this run.
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

  // Idempotent; nothing leaves or comes any more. In a forked child there is nothing to close.
  void close();

 private:
  using Key = std::array<char, 16>;
  using Place = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>;  // cookie, kind, to
  struct KeyHash {                                                        // it is as good as random
    std::size_t operator()(const Key& key) const {
      std::size_t value = 0;
      std::memcpy(&value, key.data(), sizeof value);
      return value;
    }
  };
  // Of one direction of one way.
  struct Door {
    Place place;
    std::uint32_t from = 0;
    std::uint64_t next = 0;                 // part
    std::map<std::uint64_t, UcxPart> late;  // parts whose predecessors have not come
    std::vector<UcxNews> early;             // before there is a mailbox
    std::shared_ptr<UcxMailbox> mailbox;
  };
  struct Fetch {
    void* descriptor;
    UcxHeader header;
    std::uint64_t nbytes;
  };

  static ucx::Status on_message(void* arg, const void* header, std::size_t header_nbytes,
                                void* data, std::size_t nbytes, const ucx::MessageFacts* facts);
  static void on_sent(void* request, ucx::Status status, void* op);
  static void on_fetched(void* request, ucx::Status status, std::size_t nbytes, void* op);
  static void on_error(void* end, ucx::Endpoint* endpoint, ucx::Status status);

  void start(const std::string& library);
  // All of these with the lock held.
  bool progress();
  Door* door_of(const UcxHeader& header);
  ucx::Status take_in(const UcxHeader& header, void* data, std::uint64_t nbytes,
                      const ucx::MessageFacts& facts);
  void arrive(Door& door, std::uint64_t number, UcxPart part);
  void put(Door& door, UcxNews news);
  void fetch(const Fetch& what);
  void fetched(UcxOp* op, ucx::Status status);
  void answer(const UcxHeader& ask, ucx::Endpoint* to);
  void give_back(const UcxPart& part);
  void give_back(UcxOp* op);
  UcxOp* take_locked(std::uint64_t nbytes);
  void post(ucx::Endpoint* endpoint, UcxOp* op);
  void fail(UcxEnd& end, ucx::Status status);
  std::string words(ucx::Status status) const;
  void work();
  void destroy();

  const std::string token_;
  const std::uint32_t generation_;
  ucx::Functions ucp_{};
  std::string version_;
  std::string address_;
  int fd_ = -1;
  Fd stop_;
  std::unique_ptr<std::thread> thread_;
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::int64_t> last_used_ns_{0};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::uint64_t> refused_{0};

  std::mutex mutex_;  // guards what follows, and the worker
  ucx::Context* context_ = nullptr;
  ucx::Worker* worker_ = nullptr;
  UcxMailbox* collecting_ = nullptr;
  std::map<std::string, std::unique_ptr<UcxEnd>> ends_;  // by address
  std::vector<ucx::Endpoint*> failed_;                   // to be closed
  std::unordered_map<Key, Door, KeyHash> doors_;
  std::map<Place, std::shared_ptr<UcxMailbox>> open_;
  std::set<Place> shut_;
  std::vector<Fetch> to_fetch_;
  std::vector<std::unique_ptr<UcxOp>> ops_;  // all there are
  std::vector<UcxOp*> free_short_;
  std::vector<UcxOp*> free_long_;
};

}  // namespace distdbg
