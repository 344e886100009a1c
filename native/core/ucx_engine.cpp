#include "ucx_engine.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "error.hpp"
#include "fork.hpp"

namespace distdbg {
namespace {

constexpr unsigned message_id = 1;
constexpr std::uint64_t short_nbytes = 8 * 1024 + 64;
constexpr int most_rounds = 64;  // before others get the lock
// So long after somebody has waited, that thread is still expected back.
constexpr std::int64_t used_ns = 5 * ns_per_ms;
constexpr std::int64_t close_limit_ns = 500 * ns_per_ms;

}  // namespace

UcxEngine::UcxEngine(const std::string& library, std::string token)
    : token_(std::move(token)),
      generation_(fork_generation()),
      stop_(Fd::from([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {
  if (token_.empty()) throw Error(Fault::usage, "UCX needs a token");
  if (!stop_) throw Error(Fault::system, "UCX needs an eventfd", errno);
  // Its threads and ours leave signals to others.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    start(library);
    thread_ = std::make_unique<std::thread>([this] { work(); });
  } catch (...) {
    destroy();
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void UcxEngine::start(const std::string& library) {
  ucp_ = ucx::open_library(library);
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_.get_version(&major, &minor, &release);
  version_ = std::to_string(major) + '.' + std::to_string(minor) + '.' + std::to_string(release);
  const auto check = [this](ucx::Status status, const char* what) {
    if (status != ucx::ok)
      throw Error(Fault::network, "UCX " + version_ + " cannot " + what + ": " + words(status));
  };
  const ucx::ContextParams context{
      ucx::ContextParams::has_features,
      ucx::ContextParams::feature_am | ucx::ContextParams::feature_wakeup};
  check(ucp_.init_version(1, 12, &context, nullptr, &context_), "be initialised");
  ucx::WorkerParams worker{};
  worker.mask = ucx::WorkerParams::has_thread_mode | ucx::WorkerParams::has_flags;
  worker.thread_mode = ucx::WorkerParams::serialized;
  worker.flags = ucx::WorkerParams::ignore_request_leak;
  check(ucp_.worker_create(context_, &worker, &worker_), "make a worker");
  ucx::HandlerParams handler{};
  handler.mask = ucx::HandlerParams::has_all;
  handler.id = message_id;
  handler.flags = ucx::HandlerParams::whole_messages | ucx::HandlerParams::persistent_data;
  handler.on_message = &UcxEngine::on_message;
  handler.arg = this;
  check(ucp_.worker_set_am_recv_handler(worker_, &handler), "take messages");
  check(ucp_.worker_get_efd(worker_, &fd_), "tell when something comes");
  ucx::Address* address = nullptr;
  std::size_t nbytes = 0;
  check(ucp_.worker_get_address(worker_, &address, &nbytes), "tell its address");
  address_.assign(reinterpret_cast<const char*>(address), nbytes);
  ucp_.worker_release_address(worker_, address);
}

UcxEngine::~UcxEngine() { close(); }

void UcxEngine::close() {
  if (!thread_) return;
  if (fork_generation() != generation_) {
    // The threads are the parent's, and what they were at work on may be locked here for ever.
    [[maybe_unused]] std::thread* const parents_thread = thread_.release();
    return;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
  thread_->join();
  thread_.reset();
  destroy();
}

void UcxEngine::destroy() {
  const std::lock_guard lock(mutex_);
  if (worker_ != nullptr) {
    ucx::RequestParams by_force{};
    by_force.mask = ucx::RequestParams::has_flags;
    by_force.flags = ucx::RequestParams::close_by_force;
    std::vector<void*> closing;
    const auto close_end = [&](ucx::Endpoint* endpoint) {
      void* const request = ucp_.ep_close_nbx(endpoint, &by_force);
      if (request != nullptr && !ucx::is_error(request)) closing.push_back(request);
    };
    for (ucx::Endpoint* endpoint : failed_) close_end(endpoint);
    for (const auto& [address, end] : ends_)
      if (end->endpoint != nullptr && !end->is_here) close_end(end->endpoint);
    failed_.clear();
    const std::int64_t until = now_ns() + close_limit_ns;
    while (!closing.empty() && now_ns() < until) {
      ucp_.worker_progress(worker_);
      std::erase_if(closing, [this](void* request) {
        if (ucp_.request_check_status(request) == ucx::in_progress) return false;
        ucp_.request_free(request);
        return true;
      });
    }
    for (auto& [key, door] : doors_)
      for (const auto& [number, part] : door.late) give_back(part);
    for (auto& [key, door] : doors_)
      for (const UcxNews& news : door.early) give_back(news.part);
    for (auto& [place, mailbox] : open_)
      for (const UcxNews& news : mailbox->news) give_back(news.part);
    // What came while the endpoints were closed is fetched by nobody.
    for (const Fetch& what : to_fetch_) ucp_.am_data_release(worker_, what.descriptor);
    ucp_.worker_destroy(std::exchange(worker_, nullptr));
  }
  if (context_ != nullptr) ucp_.cleanup(std::exchange(context_, nullptr));
  for (auto& [place, mailbox] : open_) mailbox->news.clear();
  doors_.clear();
  to_fetch_.clear();
  for (const auto& [address, end] : ends_) end->endpoint = nullptr;
}

std::string UcxEngine::words(ucx::Status status) const {
  return ucp_.status_string != nullptr ? ucp_.status_string(status) : std::to_string(status);
}

// ----------------------------------------------------------------------------------- transports

void UcxEngine::open(const TcpWay& way, std::shared_ptr<UcxMailbox> mailbox) {
  const std::lock_guard lock(mutex_);
  const Place place{way.cookie, way.kind, way.to};
  const auto [found, is_new] = open_.emplace(place, std::move(mailbox));
  if (!is_new)
    throw Error(Fault::usage, "that rank of the group has a UCX transport of this kind already");
  shut_.erase(place);
  for (auto& [key, door] : doors_) {
    if (door.place != place) continue;
    door.mailbox = found->second;
    door.mailbox->keys.push_back(key);
    for (UcxNews& news : std::exchange(door.early, {})) put(door, news);
  }
}

void UcxEngine::shut(const TcpWay& way) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find({way.cookie, way.kind, way.to});
  if (found == open_.end()) return;
  for (const UcxNews& news : found->second->news) give_back(news.part);
  for (const Key& key : found->second->keys) {
    const auto door = doors_.find(key);
    if (door == doors_.end()) continue;
    for (const auto& [number, part] : door->second.late) give_back(part);
    doors_.erase(door);
  }
  found->second->news.clear();
  found->second->wake = nullptr;
  open_.erase(found);
  shut_.insert({way.cookie, way.kind, way.to});
}

UcxEnd* UcxEngine::end_of(const std::string& address, bool is_here) {
  const std::lock_guard lock(mutex_);
  auto& end = ends_[address];
  if (end || worker_ == nullptr) return end.get();
  end = std::make_unique<UcxEnd>();
  end->engine = this;
  end->is_here = is_here;
  ucx::EndpointParams params{};
  params.mask = ucx::EndpointParams::has_address | ucx::EndpointParams::has_error_mode |
                ucx::EndpointParams::has_error_handler;
  params.address = reinterpret_cast<const ucx::Address*>(address.data());
  params.error_mode =
      is_here ? ucx::EndpointParams::no_errors : ucx::EndpointParams::errors_of_peer;
  params.on_error = &UcxEngine::on_error;
  params.error_arg = end.get();
  const ucx::Status status = ucp_.ep_create(worker_, &params, &end->endpoint);
  if (status != ucx::ok) {
    end->endpoint = nullptr;
    fail(*end, status);
  }
  return end.get();
}

UcxOp* UcxEngine::take(std::uint64_t nbytes) {
  const std::lock_guard lock(mutex_);
  return take_locked(nbytes);
}

UcxOp* UcxEngine::take_locked(std::uint64_t nbytes) {
  const bool is_short = nbytes <= short_nbytes;
  auto& free = is_short ? free_short_ : free_long_;
  if (free.empty()) {
    UcxOp& made = *ops_.emplace_back(std::make_unique<UcxOp>());
    made.capacity = is_short ? short_nbytes : ucx_part_nbytes;
    made.bytes = std::make_unique_for_overwrite<std::byte[]>(made.capacity);
    made.engine = this;
    free.push_back(&made);
  }
  UcxOp* const op = free.back();
  free.pop_back();
  op->nbytes = nbytes;
  op->end = nullptr;
  return op;
}

void UcxEngine::give_back(UcxOp* op) {
  (op->capacity == short_nbytes ? free_short_ : free_long_).push_back(op);
}

void UcxEngine::give_back(const UcxPart& part) {
  if (part.op != nullptr) {
    give_back(part.op);
  } else if (part.data != nullptr && worker_ != nullptr) {
    ucp_.am_data_release(worker_, part.data);
  }
}

void UcxEngine::send(UcxEnd& end, UcxOp* op) {
  const std::lock_guard lock(mutex_);
  op->end = &end;
  if (worker_ == nullptr || end.endpoint == nullptr) return give_back(op);
  post(end.endpoint, op);
}

void UcxEngine::post(ucx::Endpoint* endpoint, UcxOp* op) {
  ucx::RequestParams params{};
  params.mask = ucx::RequestParams::has_callback | ucx::RequestParams::has_user_data |
                ucx::RequestParams::has_flags;
  params.flags = op->header.type == UcxType::ask ? ucx::RequestParams::send_with_reply : 0;
  params.on_sent = &UcxEngine::on_sent;
  params.user_data = op;
  void* const request =
      ucp_.am_send_nbx(endpoint, message_id, &op->header, sizeof op->header,
                       op->nbytes != 0 ? op->bytes.get() : nullptr, op->nbytes, &params);
  if (request != nullptr && !ucx::is_error(request)) return;
  if (request != nullptr && op->end != nullptr) fail(*op->end, ucx::status_of(request));
  give_back(op);
}

void UcxEngine::on_sent(void* request, ucx::Status status, void* user_data) {
  auto* const op = static_cast<UcxOp*>(user_data);
  UcxEngine& engine = *op->engine;
  if (status != ucx::ok && op->end != nullptr) engine.fail(*op->end, status);
  engine.give_back(op);
  engine.ucp_.request_free(request);
}

void UcxEngine::on_error(void* arg, ucx::Endpoint*, ucx::Status status) {
  auto* const end = static_cast<UcxEnd*>(arg);
  end->engine->fail(*end, status);
}

void UcxEngine::fail(UcxEnd& end, ucx::Status status) {
  // It is closed once the library is not at work in it. Only such as tell errors may be, by force; the
  // others end with the worker.
  ucx::Endpoint* const endpoint = std::exchange(end.endpoint, nullptr);
  if (endpoint != nullptr && !end.is_here) failed_.push_back(endpoint);
  if (end.has_failed.load(std::memory_order_relaxed)) return;
  end.why = words(status);
  end.has_failed.store(true, std::memory_order_release);
  failures_.fetch_add(1, std::memory_order_release);
  for (const auto& [place, mailbox] : open_)
    if (mailbox->wake && mailbox.get() != collecting_) mailbox->wake();
}

// -------------------------------------------------------------------------------------- progress

bool UcxEngine::progress() {
  if (worker_ == nullptr) return false;
  bool has_moved = false;
  for (int round = 0; round < most_rounds; ++round) {
    if (ucp_.worker_progress(worker_) == 0 && to_fetch_.empty()) break;
    has_moved = true;
    for (const Fetch& what : std::exchange(to_fetch_, {})) fetch(what);
  }
  for (ucx::Endpoint* endpoint : std::exchange(failed_, {})) {
    ucx::RequestParams by_force{};
    by_force.mask = ucx::RequestParams::has_flags;
    by_force.flags = ucx::RequestParams::close_by_force;
    void* const request = ucp_.ep_close_nbx(endpoint, &by_force);
    if (request != nullptr && !ucx::is_error(request)) ucp_.request_free(request);
  }
  return has_moved;
}

bool UcxEngine::collect(UcxMailbox& mailbox, std::vector<UcxNews>& into,
                        std::vector<UcxPart>& read) {
  if (fork_generation() != generation_) return false;
  last_used_ns_.store(now_ns(), std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  for (const UcxPart& part : read) give_back(part);
  read.clear();
  collecting_ = &mailbox;
  const bool has_moved = progress();
  collecting_ = nullptr;
  into.insert(into.end(), mailbox.news.begin(), mailbox.news.end());
  mailbox.news.clear();
  return has_moved;
}

bool UcxEngine::may_sleep() {
  if (fork_generation() != generation_) return true;
  const std::lock_guard lock(mutex_);
  return worker_ == nullptr || ucp_.worker_arm(worker_) == ucx::ok;
}

void UcxEngine::work() {
  ::pthread_setname_np(::pthread_self(), "distdbg-ucx");
  const auto sleep = [this](bool with_worker, std::int64_t timeout_ms) {
    pollfd entries[2] = {{stop_.get(), POLLIN, 0}, {fd_, POLLIN, 0}};
    ::poll(entries, with_worker ? 2 : 1, static_cast<int>(timeout_ms));
    return (entries[0].revents & POLLIN) != 0;
  };
  for (;;) {
    const bool is_used = sleepers_.load(std::memory_order_relaxed) != 0 ||
                         now_ns() < last_used_ns_.load(std::memory_order_relaxed) + used_ns;
    if (is_used) {
      if (sleep(false, used_ns / ns_per_ms)) return;
      continue;
    }
    bool is_armed = false;
    {
      const std::lock_guard lock(mutex_);
      is_armed = !progress() && ucp_.worker_arm(worker_) == ucx::ok;
    }
    if (is_armed && sleep(true, 1'000)) return;
    if (!is_armed && sleep(false, 0)) return;
  }
}

}  // namespace distdbg
