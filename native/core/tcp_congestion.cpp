#include "tcp_congestion.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "tcp_socket.hpp"

namespace distdbg {

namespace {

constexpr std::uint32_t near_us = 1000;
constexpr std::string_view unpaced = "reno";  // every kernel has it, and everybody may use it

// '' unless it sends at a rate of its own.
const std::string& paced_choice_of_system() {
  static const std::string name = []() -> std::string {
    const Fd fd = Fd::from([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
    std::array<char, 16> found{};
    socklen_t nbytes = found.size() - 1;
    const bool is_known =
        fd && ::getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, found.data(), &nbytes) == 0;
    return is_known && std::string_view(found.data()).starts_with("bbr") ? found.data() : "";
  }();
  return name;
}

void use(int fd, std::string_view algorithm) {
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm.data(),
               static_cast<socklen_t>(algorithm.size()));
}

// Whether a packet of this connection was answered so soon.
bool has_quick_answer(int fd) {
  // Where the kernel's tcp_info has tcpi_min_rtt; that of the C library may end before it.
  constexpr std::size_t at = 148;
  std::array<std::byte, 256> info{};
  socklen_t nbytes = info.size();
  std::uint32_t answer_us = near_us;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, info.data(), &nbytes) == 0 &&
      nbytes >= at + sizeof answer_us)
    std::memcpy(&answer_us, info.data() + at, sizeof answer_us);
  return answer_us < near_us;
}

// A link that begins while others fill the queues on its way has no quick answer, and its host may have given one.
bool is_near(int fd) {
  static std::mutex mutex;
  static std::set<std::string> near_hosts;
  const std::string words = peer_address_words(fd);
  const std::string host = words.substr(0, words.rfind(':'));
  const bool is_quick = has_quick_answer(fd);
  const std::lock_guard lock(mutex);
  if (is_quick) near_hosts.insert(host);
  return is_quick || near_hosts.contains(host);
}

}  // namespace

void begin_unpaced(int fd) {
  if (!paced_choice_of_system().empty()) use(fd, unpaced);
}

void pace_if_far(int fd) {
  if (!paced_choice_of_system().empty() && !is_near(fd)) use(fd, paced_choice_of_system());
}

}  // namespace distdbg
