#include "store_client.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "error.hpp"
#include "store_address.hpp"
#include "store_socket.hpp"

namespace distdbg {
namespace {

constexpr std::size_t idle_kept = 4;
constexpr std::int64_t handshake_ns = 10'000 * ns_per_ms;
constexpr std::int64_t first_pause_ns = 5 * ns_per_ms;
constexpr std::int64_t longest_pause_ns = 250 * ns_per_ms;

void sleep_for(std::int64_t pause_ns, const Wait& wait) {
  const std::int64_t until = now_ns() + pause_ns;
  while (true) {
    if (wait.is_interrupted()) throw Error(Fault::interrupted, "interrupted");
    wait.check_job();
    const std::int64_t left = until - now_ns();
    if (left <= 0 || wait.is_over()) return;
    const timespec slice{0, static_cast<long>(wait.nap_ns(std::min(left, 50 * ns_per_ms)))};
    ::nanosleep(&slice, nullptr);
  }
}

StoreLimits shake_hands(StoreSocket& socket, const std::string& token, const Wait& wait) {
  const std::string hello = socket.receive(store_hello_nbytes, wait);
  if (hello.starts_with(tls_magic)) throw Error(Fault::network, needs_tls_words, EPROTO);
  if (!hello.starts_with(store_server_magic)) {
    throw Error(Fault::network, "what answers there is not a distdbg store", EPROTO);
  }
  const std::uint32_t version = get_u32(hello.data() + 8);
  if (version != store_wire_version) {
    throw Error(Fault::network,
                "the server speaks version " + std::to_string(version) +
                    " of the store protocol, this process version " +
                    std::to_string(store_wire_version),
                EPROTO);
  }
  StoreMeeting meeting{hello.substr(16), make_store_nonce(), socket.peer_address(), {}};
  socket.send(encode_store_challenge(meeting), wait);
  const std::string verdict = socket.receive(store_verdict_nbytes, wait);
  const auto code = static_cast<StoreVerdict>(get_u32(verdict.data()));
  if (code == StoreVerdict::other_version) {
    throw Error(Fault::network, "the server refuses this version of the store protocol", EPROTO);
  }
  if (code == StoreVerdict::other_address) {
    throw Error(Fault::network, "the server is not at the address that was dialled", EACCES);
  }
  meeting.limits = {get_u32(verdict.data() + 8), get_u32(verdict.data() + 12)};
  if (code != StoreVerdict::proven ||
      !is_store_proof(std::string_view(verdict).substr(16), StoreRole::server, token, meeting)) {
    throw Error(Fault::network, "the server does not know the token", EACCES);
  }
  socket.send(prove_store_role(StoreRole::client, token, meeting), wait);
  return meeting.limits;
}

// Whether a server that is about to come up may look like this.
bool may_pass(const Error& error) {
  return error.fault() == Fault::network && error.error_number() != EACCES &&
         error.error_number() != EPROTO;
}

}  // namespace

class StoreClient::Connection {
 public:
  explicit Connection(StoreSocket socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.fd(); }
  StoreSocket& socket() { return socket_; }
  StoreLimits limits;

  StoreReply call(StoreOp op, std::int64_t number, const std::vector<std::string_view>& fields,
                  const Wait& wait) {
    request_.clear();
    StoreEncoder encoder(request_, static_cast<std::uint8_t>(op), number);
    for (std::string_view field : fields) encoder.field(field);
    encoder.finish();
    if (request_.size() > limits.message_nbytes()) {
      throw Error(Fault::store, "a request of " + std::to_string(request_.size()) +
                                    " bytes; it takes at most " +
                                    std::to_string(limits.message_nbytes()));
    }
    socket_.send(request_, wait);
    if (request_.capacity() > (64u << 10)) request_ = {};

    StoreReply reply;
    reply.bytes.reserve(256);  // on the heap from the start, so that a move leaves the fields valid
    while (true) {
      const auto nbytes = store_message_nbytes(reply.bytes);
      if (nbytes && reply.bytes.size() >= *nbytes) break;
      socket_.receive_some(reply.bytes, wait);
    }
    StoreMessage message;
    if (!decode_store_message(reply.bytes, message)) {
      throw Error(Fault::network, "the server's reply makes no sense", EPROTO);
    }
    reply.status = static_cast<StoreStatus>(message.code);
    reply.number = message.number;
    reply.fields = std::move(message.fields);
    return reply;
  }

 private:
  StoreSocket socket_;
  std::string request_;
};

StoreClient::StoreClient(std::string host, std::uint16_t port, std::string token,
                         std::shared_ptr<TcpRelay> relay)
    : host_(std::move(host)),
      port_(port),
      token_(std::move(token)),
      relay_(std::move(relay)),
      pid_(::getpid()) {}

StoreClient::~StoreClient() { close(); }

void StoreClient::check_process() const {
  if (::getpid() != pid_) {
    throw Error(Fault::usage, "a store connection cannot be used in a forked child");
  }
}

void StoreClient::throw_closed() const { throw Error(Fault::broken, "the store is closed"); }

bool StoreClient::connect(const Wait& wait, std::int64_t tries_until_ns) {
  check_process();
  auto connection = open(wait, true, tries_until_ns);
  if (connection == nullptr) return false;
  limits_ = connection->limits;  // before other threads know of this client
  give_back(std::move(connection));
  return true;
}

std::unique_ptr<StoreClient::Connection> StoreClient::open(const Wait& wait, bool is_patient,
                                                           std::int64_t tries_until_ns) {
  std::int64_t pause_ns = first_pause_ns;
  while (true) {
    int fd = -1;
    try {
      auto connection =
          std::make_unique<Connection>(connect_store_socket(host_, port_, relay_, wait));
      {
        const std::lock_guard lock(mutex_);
        if (is_closed_) throw_closed();
        fd = connection->fd();
        open_fds_.insert(fd);
      }
      Wait shake = wait;
      shake.deadline_ns = std::min(wait.deadline_ns, wait.control->moment().job_ns + handshake_ns);
      try {
        connection->limits = shake_hands(connection->socket(), token_, shake);
        return connection;
      } catch (...) {
        release(fd);
        throw;
      }
    } catch (const Error& error) {
      if (error.fault() == Fault::timeout && fd >= 0) {
        throw Error(Fault::network, "it accepts connections but does not say that it is a store",
                    ETIMEDOUT);
      }
      if (!is_patient || !may_pass(error) || wait.is_over()) throw;
      sleep_for(pause_ns, wait);
      if (wait.is_over()) throw;
      if (now_ns() >= tries_until_ns) return nullptr;
    }
    pause_ns = std::min(2 * pause_ns, longest_pause_ns);
  }
}

std::unique_ptr<StoreClient::Connection> StoreClient::borrow(const Wait& wait) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) throw_closed();
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  return open(wait, false, no_deadline);
}

void StoreClient::give_back(std::unique_ptr<Connection> connection) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_closed_ && idle_.size() < idle_kept) {
      idle_.push_back(std::move(connection));
      return;
    }
  }
  release(connection->fd());
}

// Before the fd is closed, so that close() never shuts down a stranger with the same number.
void StoreClient::release(int fd) {
  const std::lock_guard lock(mutex_);
  open_fds_.erase(fd);
}

StoreReply StoreClient::call(StoreOp op, std::int64_t number,
                             const std::vector<std::string_view>& fields, const Wait& wait) {
  check_process();
  auto connection = borrow(wait);
  try {
    StoreReply reply = connection->call(op, number, fields, wait);
    if (reply.status == StoreStatus::bad_request) {
      release(connection->fd());
    } else {
      give_back(std::move(connection));
    }
    return reply;
  } catch (const Error& error) {
    // The reply may still come: this connection is of no use, and closing it cancels the request.
    release(connection->fd());
    const std::lock_guard lock(mutex_);
    if (is_closed_ && error.fault() == Fault::network) throw_closed();
    throw;
  } catch (...) {
    release(connection->fd());
    throw;
  }
}

void StoreClient::close() {
  const bool is_owner = ::getpid() == pid_;
  std::vector<std::unique_ptr<Connection>> idle;
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  idle.swap(idle_);
  for (const auto& connection : idle) open_fds_.erase(connection->fd());
  if (!is_owner) return;  // only closes its copies
  for (const int fd : open_fds_) ::shutdown(fd, SHUT_RDWR);
  open_fds_.clear();
}

}  // namespace distdbg
