#include "tcp_desk.hpp"

#include <algorithm>

#include "error.hpp"

namespace distdbg {

void TcpArrivals::put(std::uint32_t from, Fd socket) {
  {
    const std::lock_guard lock(mutex_);
    sockets_.emplace_back(from, std::move(socket));
    has_any_.store(true, std::memory_order_release);
  }
  bell_.ring();
}

std::vector<std::pair<std::uint32_t, Fd>> TcpArrivals::take() {
  const std::lock_guard lock(mutex_);
  has_any_.store(false, std::memory_order_relaxed);
  return std::exchange(sockets_, {});
}

bool TcpDesk::hand_over(TcpArrivals& arrivals, const TcpWay& way, Fd socket) {
  if (way.from >= arrivals.size() || way.from == way.to) return false;
  arrivals.put(way.from, std::move(socket));
  return true;
}

void TcpDesk::open(const TcpWay& way, std::shared_ptr<TcpArrivals> arrivals) {
  const std::lock_guard lock(mutex_);
  TcpArrivals& theirs = *arrivals;
  if (!open_.emplace(key_of(way), std::move(arrivals)).second)
    throw Error(Fault::usage, "that rank of the group has a TCP transport of this kind already");
  std::vector<Early> others;
  for (Early& early : early_) {
    if (key_of(early.way) == key_of(way)) {
      hand_over(theirs, early.way, std::move(early.socket));
    } else {
      others.push_back(std::move(early));
    }
  }
  early_ = std::move(others);
}

void TcpDesk::shut(const TcpWay& way) {
  const std::lock_guard lock(mutex_);
  open_.erase(key_of(way));
}

bool TcpDesk::put(const TcpWay& way, Fd socket) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(key_of(way));
  if (found != open_.end()) return hand_over(*found->second, way, std::move(socket));
  if (early_.size() >= most_early_) return false;
  early_.push_back({way, std::move(socket), now_ns() + early_ns_});
  return true;
}

std::size_t TcpDesk::expire() {
  const std::lock_guard lock(mutex_);
  return std::erase_if(early_,
                       [now = now_ns()](const Early& early) { return early.until_ns <= now; });
}

void TcpDesk::clear() {
  const std::lock_guard lock(mutex_);
  early_.clear();
}

}  // namespace distdbg
