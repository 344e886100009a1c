#include "tcp_desk.hpp"

#include <algorithm>

#include "error.hpp"
#include "messages.hpp"
#include "tcp_stream.hpp"

namespace distdbg {

void TcpArrivals::put(Arrival arrival) {
  {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(arrival));
    has_any_.store(true, std::memory_order_release);
  }
  bell_.ring();
}

std::vector<TcpArrivals::Arrival> TcpArrivals::take() {
  const std::lock_guard lock(mutex_);
  has_any_.store(false, std::memory_order_relaxed);
  return std::exchange(lines_, {});
}

TcpDesk::Verdict TcpDesk::hand_over(TcpArrivals& arrivals, const TcpWay& way, TcpLine line) {
  if (way.from >= arrivals.size() || way.from == way.to) return Verdict::unexpected;
  if ((way.options & ~is_lane) != arrivals.options()) return Verdict::other;
  arrivals.put({way.from, (way.options & is_lane) != 0, std::move(line)});
  return Verdict::taken;
}

// Without a word it would look like the end of a process.
void TcpDesk::say_late(const TcpWay& way, const TcpLine& line) {
  TcpStream stream(line.fd.get());
  Outbox<TcpStream>((way.options & messages_have_sums) != 0)
      .post(stream, last_envelope(had_closed_before), {}, nullptr);
  stream.end();
}

void TcpDesk::open(const TcpWay& way, std::shared_ptr<TcpArrivals> arrivals) {
  const std::lock_guard lock(mutex_);
  TcpArrivals& theirs = *arrivals;
  if (!open_.emplace(key_of(way), std::move(arrivals)).second)
    throw Error(Fault::usage, "that rank of the group has a TCP transport of this kind already");
  shut_.erase(key_of(way));
  std::vector<Early> others;
  for (Early& early : early_) {
    if (key_of(early.way) == key_of(way)) {
      hand_over(theirs, early.way, std::move(early.line));
    } else {
      others.push_back(std::move(early));
    }
  }
  early_ = std::move(others);
}

void TcpDesk::shut(const TcpWay& way) {
  const std::lock_guard lock(mutex_);
  open_.erase(key_of(way));
  if (shut_.size() < most_early_) shut_[key_of(way)] = now_ns() + early_ns_;
}

TcpDesk::Verdict TcpDesk::put(const TcpWay& way, TcpLine line) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(key_of(way));
  if (found != open_.end()) return hand_over(*found->second, way, std::move(line));
  if (shut_.contains(key_of(way))) {
    say_late(way, line);
    return Verdict::late;
  }
  if (early_.size() >= most_early_) return Verdict::unexpected;
  early_.push_back({way, std::move(line), now_ns() + early_ns_});
  return Verdict::taken;
}

std::size_t TcpDesk::expire() {
  const std::lock_guard lock(mutex_);
  const std::int64_t now = now_ns();
  std::erase_if(shut_, [now](const auto& each) { return each.second <= now; });
  return std::erase_if(early_, [now](const Early& early) { return early.until_ns <= now; });
}

void TcpDesk::clear() {
  const std::lock_guard lock(mutex_);
  early_.clear();
}

}  // namespace distdbg
