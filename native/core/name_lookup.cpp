#include "name_lookup.hpp"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "error.hpp"
#include "fork.hpp"
#include "tcp_socket.hpp"

namespace distdbg {
namespace {

constexpr std::int64_t slice_ns = 40 * ns_per_ms;  // as Group::slice_ns

addrinfo hints_of(int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  return hints;
}

struct Answer {
  int fault = EAI_AGAIN;
  int error_number = 0;
  Addresses found;

  static Answer ask(const std::string& host, const std::string& port, int flags, LookUp look_up) {
    const addrinfo hints = hints_of(flags);
    addrinfo* found = nullptr;
    Answer answer;
    answer.fault = look_up(host.c_str(), port.c_str(), &hints, &found);
    answer.error_number = errno;
    if (answer.fault == 0) answer.found = Addresses(found, &::freeaddrinfo);
    return answer;
  }
};

struct Question {
  std::mutex mutex;
  std::condition_variable is_answered;
  bool is_over = false;
  Answer answer;
};

// What is being looked up. A child made by fork() has none of the threads: it begins with an empty one.
struct Desk {
  using Key = std::tuple<std::string, std::string, LookUp>;
  std::uint32_t generation = fork_generation();
  std::mutex mutex;
  std::map<Key, std::shared_ptr<Question>> open;
};

Desk& desk() {
  static std::atomic<Desk*> current{new Desk};  // never deleted: threads may outlive all else
  Desk* found = current.load(std::memory_order_acquire);
  while (found->generation != fork_generation()) {
    auto* const fresh = new Desk;
    if (current.compare_exchange_strong(found, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
  }
  return *found;
}

std::shared_ptr<Question> ask(const std::string& host, const std::string& port, LookUp look_up) {
  Desk& all = desk();
  Desk::Key key{host, port, look_up};
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.open.find(key); found != all.open.end()) return found->second;
  auto question = std::make_shared<Question>();
  all.open.emplace(key, question);
  sigset_t every;
  sigset_t before;
  sigfillset(&every);
  ::pthread_sigmask(SIG_SETMASK, &every, &before);
  try {
    std::thread([&all, key, question] {
      Answer answer = Answer::ask(std::get<0>(key), std::get<1>(key), 0, std::get<2>(key));
      {
        const std::lock_guard forget(all.mutex);
        all.open.erase(key);
      }
      const std::lock_guard hand_over(question->mutex);
      question->answer = std::move(answer);
      question->is_over = true;
      question->is_answered.notify_all();
    }).detach();
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    all.open.erase(key);
    throw Error(Fault::system, "no thread is left to look up '" + host + "'", EAGAIN);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return question;
}

Addresses take(const Answer& answer) {
  if (answer.fault == 0) return answer.found;
  const bool is_errno = answer.fault == EAI_SYSTEM;
  throw Error(Fault::network,
              is_errno ? errno_words(answer.error_number) : ::gai_strerror(answer.fault),
              is_errno ? answer.error_number : EHOSTUNREACH);
}

}  // namespace

Addresses look_up(const std::string& host, const std::string& port,
                  const std::function<bool()>& goes_on, LookUp look_up) {
  if (Answer at_once = Answer::ask(host, port, AI_NUMERICHOST | AI_NUMERICSERV, &::getaddrinfo);
      at_once.fault == 0)
    return take(at_once);
  const std::shared_ptr<Question> question = ask(host, port, look_up);
  std::unique_lock lock(question->mutex);
  while (!question->is_over) {
    question->is_answered.wait_for(lock, std::chrono::nanoseconds(slice_ns));
    if (question->is_over) break;
    lock.unlock();
    if (!goes_on())
      throw Error(Fault::network, "no name server answers for '" + host + "'", ETIMEDOUT);
    lock.lock();
  }
  return take(question->answer);
}

}  // namespace distdbg
