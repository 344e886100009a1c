// Hands the connections that a hub has let in to the transports that expect them.
//
//   the hub's thread --(put)--> TcpDesk --(put, wakes)--> TcpArrivals --(take)--> the transport's thread
//
// What comes before its transport does stays here for a while.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tcp_bell.hpp"
#include "tcp_relay.hpp"
#include "tcp_wire.hpp"

namespace distdbg {

// Of one transport.
class TcpArrivals {
 public:
  explicit TcpArrivals(std::uint32_t size, std::uint32_t options = 0)
      : size_(size), options_(options) {}

  struct Arrival {
    std::uint32_t from;
    bool is_lane;
    TcpLine line;
  };
  void put(Arrival arrival);
  bool has_any() const { return has_any_.load(std::memory_order_acquire); }
  std::vector<Arrival> take();
  // Ranks of the group.
  std::uint32_t size() const { return size_; }
  std::uint32_t options() const { return options_; }
  TcpBell& bell() { return bell_; }

 private:
  const std::uint32_t size_;
  const std::uint32_t options_;
  TcpBell bell_;
  std::mutex mutex_;  // guards `lines_`
  std::vector<Arrival> lines_;
  std::atomic<bool> has_any_{false};
};

class TcpDesk {
 public:
  TcpDesk(std::size_t most_early, std::int64_t early_ns)
      : most_early_(most_early), early_ns_(early_ns) {}

  // From here on connections of that kind to that rank go to `arrivals`. Error(usage) if another does so.
  void open(const TcpWay& way, std::shared_ptr<TcpArrivals> arrivals);
  void shut(const TcpWay& way);
  enum class Verdict {
    taken,
    late,        // its transport has been shut: it is told so
    unexpected,  // no such rank, or too many that nobody expects yet
    other,       // with other options
  };
  // What is not taken is thrown away.
  Verdict put(const TcpWay& way, TcpLine line);
  // Throws away who has waited too long; how many.
  std::size_t expire();
  void clear();

 private:
  using Key = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>;  // cookie, kind, to
  struct Early {
    TcpWay way;
    TcpLine line;
    std::int64_t until_ns;
  };
  static Key key_of(const TcpWay& way) { return {way.cookie, way.kind, way.to}; }
  static void say_late(const TcpWay& way, const TcpLine& line);
  static Verdict hand_over(TcpArrivals& arrivals, const TcpWay& way, TcpLine line);

  const std::size_t most_early_;
  const std::int64_t early_ns_;
  std::mutex mutex_;  // guards what follows
  std::map<Key, std::shared_ptr<TcpArrivals>> open_;
  std::vector<Early> early_;
  std::map<Key, std::int64_t> shut_;  // until when their peers may still come
};

}  // namespace distdbg
