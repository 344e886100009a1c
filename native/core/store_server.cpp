#include "store_server.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <new>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "error.hpp"
#include "store_address.hpp"
#include "store_table.hpp"
#include "tcp_socket.hpp"

namespace distdbg {
namespace {

constexpr std::int64_t accept_pause_ns = 100 * ns_per_ms;  // when the process has no fds left
constexpr std::size_t kept_buffer_nbytes = 64u << 10;      // more is given back after use

struct Connection {
  enum class State { challenged, proving, ready, parked, closed };

  int fd = -1;
  State state = State::challenged;
  std::uint32_t interest = 0;
  std::int64_t deadline_ns = no_deadline;  // of the proof, or of the parked request
  StoreMeeting meeting;
  std::string in;   // begins with the current request; stays untouched while that is parked
  std::string out;  // what of the reply is not sent yet, from out_sent on
  std::size_t out_sent = 0;
  std::string waits_for;
  std::string own;  // the addresses of both ends, as far as known
  std::string peer;
  std::shared_ptr<TcpRelayed> relayed;
};

void set_socket_options(int fd) {
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);  // a host that vanishes is noticed within about a minute
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

class StoreServer::Loop {
 public:
  Loop(int listen_fd, std::string token, std::vector<std::string> served_as, StoreLimits limits,
       bool shares_port, std::int64_t proof_timeout_ns, std::atomic<int>& client_count,
       StoreRefusals& refusals, std::shared_ptr<TcpRelay> relay)
      : listen_fd_(listen_fd),
        token_(std::move(token)),
        served_as_(std::move(served_as)),
        limits_(limits),
        shares_port_(shares_port),
        proof_timeout_ns_(proof_timeout_ns),
        client_count_(client_count),
        refusals_(refusals),
        relay_(std::move(relay)),
        table_(limits),
        scratch_(256u << 10, '\0') {
    epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
    stop_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll_fd_ < 0 || stop_fd_ < 0) {
      const int error_number = errno;
      close_fds();
      throw Error(Fault::system, "a store server needs an epoll set and an eventfd", error_number);
    }
    ::fcntl(listen_fd_, F_SETFL, ::fcntl(listen_fd_, F_GETFL) | O_NONBLOCK);
    watch(listen_fd_, &listen_fd_, EPOLLIN);
    watch(stop_fd_, &stop_fd_, EPOLLIN);
  }
  ~Loop() { close_fds(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void stop() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_fd_, &one, sizeof one);
  }

  // A shutdown reaches the clients even if a forked child still holds a copy of the fd.
  void shut_down_sockets() {
    for (const auto& [connection, owner] : connections_) ::shutdown(connection->fd, SHUT_RDWR);
    if (!shares_port_) ::shutdown(listen_fd_, SHUT_RDWR);
  }

  void run() {
    std::array<epoll_event, 128> events{};
    while (true) {
      const int count =
          ::epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), wait_ms());
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.ptr == &stop_fd_) return shut_down_sockets();
        if (event.data.ptr == &listen_fd_) {
          accept_all();
        } else {
          Connection& connection = *static_cast<Connection*>(event.data.ptr);
          try {
            on_event(connection, event.events);
          } catch (const std::bad_alloc&) {  // whoever asked for so much loses its connection
            bury(connection);
          }
        }
      }
      pass_deadlines();
      bury_closed();
    }
  }

 private:
  void close_fds() {
    for (const auto& [connection, owner] : connections_) ::close(connection->fd);
    connections_.clear();
    for (int* fd : {&listen_fd_, &epoll_fd_, &stop_fd_}) {
      if (*fd >= 0) ::close(std::exchange(*fd, -1));
    }
  }

  void watch(int fd, void* pointer, std::uint32_t interest) {
    epoll_event event{};
    event.events = interest;
    event.data.ptr = pointer;
    if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
      throw Error(Fault::system, "epoll_ctl refused a socket", errno);
    }
  }

  int wait_ms() const {
    std::int64_t first = deadlines_.empty() ? no_deadline : deadlines_.begin()->first;
    first = std::min(first, accept_again_ns_);
    if (first == no_deadline) return -1;
    const std::int64_t ms = (first - now_ns() + ns_per_ms - 1) / ns_per_ms;
    return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 60'000));
  }

  void set_deadline(Connection& connection, std::int64_t deadline_ns) {
    if (connection.deadline_ns != no_deadline) {
      deadlines_.erase({connection.deadline_ns, &connection});
    }
    connection.deadline_ns = deadline_ns;
    if (deadline_ns != no_deadline) deadlines_.insert({deadline_ns, &connection});
  }

  void pass_deadlines() {
    const std::int64_t now = now_ns();
    if (accept_again_ns_ <= now) {
      accept_again_ns_ = no_deadline;
      watch(listen_fd_, &listen_fd_, EPOLLIN);
    }
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      Connection& connection = *deadlines_.begin()->second;
      if (connection.state == Connection::State::parked) {
        time_out(connection);
      } else {
        bury(connection);
      }
    }
  }

  void accept_all() {
    while (true) {
      const int fd = ::accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        open(fd);
        continue;
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE && raise_fd_limit()) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The backlog keeps the others; looking away avoids a busy loop until fds are free.
        ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, listen_fd_, nullptr);
        accept_again_ns_ = now_ns() + accept_pause_ns;
      }
      return;
    }
  }

  void open(int fd) {
    set_socket_options(fd);
    auto owned = std::make_unique<Connection>();
    Connection& connection = *owned;
    TcpLine line{Fd::from([fd] { return fd; }), nullptr};
    try {
      connection.own = own_store_address(fd);
      connection.peer = peer_store_address(fd);
      line = make_line(relay_, std::move(line.fd), true);
    } catch (const Error&) {  // it is gone already, or some resource is
      return;
    }
    connection.relayed = std::move(line.relayed);
    connection.fd = fd = line.fd.release();
    connection.interest = EPOLLIN | EPOLLRDHUP;
    try {
      connection.meeting = {make_store_nonce(), {}, {}, limits_};
      watch(fd, &connection, connection.interest);
    } catch (const Error&) {  // out of some resource: this client is turned away, the others stay
      ::close(fd);
      return;
    }
    connections_.emplace(&connection, std::move(owned));
    client_count_.fetch_add(1, std::memory_order_relaxed);
    set_deadline(connection, now_ns() + proof_timeout_ns_);
    connection.out = encode_store_hello(connection.meeting.server_nonce);
    flush(connection);
  }

  // Closed at once, freed after the current batch of events, which may still point to it.
  void bury(Connection& connection) {
    if (connection.state == Connection::State::closed) return;
    const bool is_begun = connection.state == Connection::State::challenged;
    std::string why = is_begun ? why_not_tls(connection.in, connection.relayed.get()) : "";
    if (connection.state == Connection::State::proving || !why.empty())
      refusals_.note(connection.peer, std::move(why));
    unpark(connection);
    set_deadline(connection, no_deadline);
    connection.state = Connection::State::closed;
    ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, connection.fd, nullptr);
    ::shutdown(connection.fd, SHUT_RDWR);
    closed_.push_back(&connection);
  }

  void bury_closed() {
    for (Connection* connection : closed_) {
      ::close(connection->fd);
      connections_.erase(connection);
      client_count_.fetch_sub(1, std::memory_order_relaxed);
    }
    closed_.clear();
  }

  void update_interest(Connection& connection) {
    if (connection.state == Connection::State::closed) return;
    std::uint32_t interest = EPOLLRDHUP;
    if (!connection.out.empty()) {
      interest |= EPOLLOUT;
    } else if (connection.state != Connection::State::parked) {
      interest |= EPOLLIN;
    }
    if (interest == connection.interest) return;
    connection.interest = interest;
    epoll_event event{};
    event.events = interest;
    event.data.ptr = &connection;
    ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, connection.fd, &event);
  }

  void on_event(Connection& connection, std::uint32_t events) {
    if (connection.state == Connection::State::closed) return;
    if ((events & EPOLLOUT) != 0) {
      flush(connection);
      serve(connection);
    } else if ((events & EPOLLIN) != 0) {
      receive(connection);
    } else if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
      bury(connection);
    }
    update_interest(connection);
  }

  void receive(Connection& connection) {
    const ssize_t got = ::recv(connection.fd, scratch_.data(), scratch_.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return bury(connection);
    connection.in.append(scratch_.data(), static_cast<std::size_t>(got));
    serve(connection);
  }

  void flush(Connection& connection) {
    while (connection.out_sent < connection.out.size()) {
      const ssize_t sent =
          ::send(connection.fd, connection.out.data() + connection.out_sent,
                 connection.out.size() - connection.out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return;
      if (sent < 0) return bury(connection);
      connection.out_sent += static_cast<std::size_t>(sent);
    }
    connection.out_sent = 0;
    clear(connection.out);
  }

  static void clear(std::string& buffer) {
    buffer.clear();
    if (buffer.capacity() > kept_buffer_nbytes) buffer.shrink_to_fit();
  }

  // Handles what is complete in `in`, until a reply is stuck or the request has to wait.
  void serve(Connection& connection) {
    if (connection.state == Connection::State::challenged) take_challenge(connection);
    if (connection.state == Connection::State::proving) check_proof(connection);
    while (connection.state == Connection::State::ready && connection.out.empty()) {
      const auto nbytes = store_message_nbytes(connection.in);
      if (!nbytes) return;
      if (*nbytes > limits_.message_nbytes()) return refuse(connection);
      if (connection.in.size() < *nbytes) return;
      if (!try_answer(connection)) return;
      consume(connection, *nbytes);
    }
  }

  static void consume(Connection& connection, std::size_t nbytes) {
    if (connection.in.size() == nbytes) {
      clear(connection.in);
    } else {
      connection.in.erase(0, nbytes);
    }
  }

  void take_challenge(Connection& connection) {
    const std::string_view in = connection.in;
    const std::size_t magic = std::min(in.size(), store_client_magic.size());
    if (in.substr(0, magic) != store_client_magic.substr(0, magic)) return bury(connection);
    if (in.size() < store_challenge_nbytes) return;
    StoreMeeting& meeting = connection.meeting;
    meeting.client_nonce = in.substr(16, store_nonce_nbytes);
    meeting.address = in.substr(48, store_address_nbytes);
    StoreVerdict verdict = StoreVerdict::proven;
    if (get_u32(in.data() + 8) != store_wire_version) {
      verdict = StoreVerdict::other_version;
    } else if (!is_served_at(connection.own, meeting.address)) {
      verdict = StoreVerdict::other_address;
    }
    connection.out.append(encode_store_verdict(verdict, token_, meeting));
    flush(connection);
    if (verdict != StoreVerdict::proven) return bury(connection);
    if (connection.state == Connection::State::closed) return;
    consume(connection, store_challenge_nbytes);
    connection.state = Connection::State::proving;
  }

  bool is_served_at(std::string_view own, std::string_view address) const {
    return address == own ||
           std::find(served_as_.begin(), served_as_.end(), address) != served_as_.end();
  }

  void check_proof(Connection& connection) {
    const std::string_view in = connection.in;
    if (in.size() < store_proof_nbytes) return;
    if (!is_store_proof(in.substr(0, store_proof_nbytes), StoreRole::client, token_,
                        connection.meeting)) {
      return bury(connection);
    }
    consume(connection, store_proof_nbytes);
    set_deadline(connection, no_deadline);
    connection.state = Connection::State::ready;
  }

  void refuse(Connection& connection) {
    StoreEncoder(connection.out, static_cast<std::uint8_t>(StoreStatus::bad_request), 0).finish();
    flush(connection);
    bury(connection);
  }

  // Answers the request at the head of `in`; false when it is parked, or the connection closed.
  bool try_answer(Connection& connection) {
    const std::string_view bytes(connection.in.data(), *store_message_nbytes(connection.in));
    StoreMessage request;
    if (!decode_store_message(bytes, request)) {
      refuse(connection);
      return false;
    }
    const StoreTable::Outcome outcome = table_.answer(request, connection.out);
    switch (outcome.kind) {
      case StoreTable::Outcome::Kind::waits: park(connection, request, outcome.key); return false;
      case StoreTable::Outcome::Kind::refused:
        flush(connection);
        bury(connection);
        return false;
      case StoreTable::Outcome::Kind::touched:
        flush(connection);
        if (waiters_.empty()) break;
        if (static_cast<StoreOp>(request.code) == StoreOp::set) {
          for (std::size_t i = 0; i < request.fields.size(); i += 2) wake(request.fields[i]);
        } else {
          wake(outcome.key);
        }
        break;
      case StoreTable::Outcome::Kind::replied: flush(connection); break;
    }
    return connection.state != Connection::State::closed;
  }

  void park(Connection& connection, const StoreMessage& request, std::string_view key) {
    const std::int64_t timeout_ns = request.number;
    if (timeout_ns <= 0) return time_out(connection);
    if (connection.deadline_ns == no_deadline) {  // else it was parked before, on another key
      const std::int64_t now = now_ns();
      set_deadline(connection, timeout_ns < no_deadline - now ? now + timeout_ns : no_deadline - 1);
    }
    connection.state = Connection::State::parked;
    connection.waits_for.assign(key);
    waiters_[connection.waits_for].push_back(&connection);
  }

  void unpark(Connection& connection) {
    if (connection.state != Connection::State::parked) return;
    connection.state = Connection::State::ready;
    const auto found = waiters_.find(connection.waits_for);
    if (found == waiters_.end()) return;
    auto& queue = found->second;
    queue.erase(std::remove(queue.begin(), queue.end(), &connection), queue.end());
    if (queue.empty()) waiters_.erase(found);
  }

  void time_out(Connection& connection) {
    unpark(connection);
    set_deadline(connection, no_deadline);
    const std::size_t nbytes = *store_message_nbytes(connection.in);
    StoreMessage request;
    decode_store_message(std::string_view(connection.in.data(), nbytes), request);
    table_.answer_timeout(request, connection.out);
    consume(connection, nbytes);
    flush(connection);
    update_interest(connection);
  }

  // In the order in which they came; one that still lacks something is parked again.
  void wake(std::string_view key) {
    const auto found = waiters_.find(std::string(key));
    if (found == waiters_.end()) return;
    const std::deque<Connection*> woken = std::move(found->second);
    waiters_.erase(found);
    for (Connection* connection : woken) connection->state = Connection::State::ready;
    for (Connection* connection : woken) {
      if (connection->state == Connection::State::closed) continue;
      const std::size_t nbytes = *store_message_nbytes(connection->in);
      if (!try_answer(*connection)) {
        update_interest(*connection);
        continue;
      }
      consume(*connection, nbytes);
      set_deadline(*connection, no_deadline);
      update_interest(*connection);
    }
  }

  int listen_fd_;
  int epoll_fd_ = -1;
  int stop_fd_ = -1;
  std::string token_;
  std::vector<std::string> served_as_;
  StoreLimits limits_;
  bool shares_port_;
  std::int64_t proof_timeout_ns_;
  std::atomic<int>& client_count_;
  StoreRefusals& refusals_;
  const std::shared_ptr<TcpRelay> relay_;
  StoreTable table_;
  std::string scratch_;
  std::int64_t accept_again_ns_ = no_deadline;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> closed_;
  std::set<std::pair<std::int64_t, Connection*>> deadlines_;
  std::unordered_map<std::string, std::deque<Connection*>> waiters_;
};

StoreServer::StoreServer(int listen_fd, std::string token, std::vector<std::string> served_as,
                         StoreLimits limits, bool shares_port, std::int64_t proof_timeout_ns,
                         std::shared_ptr<TcpRelay> relay)
    : pid_(::getpid()) {
  loop_ =
      std::make_unique<Loop>(listen_fd, std::move(token), std::move(served_as), limits, shares_port,
                             proof_timeout_ns, client_count_, refusals_, std::move(relay));
  thread_ = std::make_unique<std::thread>([loop = loop_.get()] { loop->run(); });
}

StoreServer::~StoreServer() { close(); }

void StoreServer::close() {
  if (!loop_) return;
  if (::getpid() == pid_) {
    loop_->stop();
    thread_->join();
  } else {
    [[maybe_unused]] std::thread* left_in_the_parent = thread_.release();  // cannot be joined here
  }
  loop_.reset();
}

}  // namespace distdbg
