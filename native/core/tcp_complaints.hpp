// What strangers did wrong at a hub: counted, and the first of each kind kept in words.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tcp_wire.hpp"

namespace distdbg {

class TcpComplaints {
 public:
  void note(TcpDoor::Misbehaviour kind, const std::string& peer) {
    count_.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    bool& is_known = is_known_[static_cast<std::size_t>(kind)];
    if (std::exchange(is_known, true)) return;
    words_.push_back((peer.empty() ? "somebody" : peer) + " " + misbehaviour_words(kind));
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(words_, {});
  }
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> count_{0};
  std::mutex mutex_;  // guards what follows
  std::array<bool, static_cast<std::size_t>(TcpDoor::Misbehaviour::count)> is_known_{};
  std::vector<std::string> words_;
};

}  // namespace distdbg
