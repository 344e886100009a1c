// Ranks that exchange messages by TCP, each with a hub of its own, and a peer whose end is the test's.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tcp_dial.hpp"
#include "tcp_hub.hpp"
#include "tcp_lanes.hpp"
#include "transports.hpp"

namespace distdbg {

constexpr std::uint64_t cookie = 0x1234'5678'9abc'def0;

struct TcpRanks final : Ranks {
  explicit TcpRanks(std::uint32_t size, bool connects = true, int keepalive_s = 5,
                    bool has_sums = false, std::uint32_t streams = 1) {
    for (std::uint32_t r = 0; r < size; ++r)
      hubs.push_back(std::make_unique<TcpHub>("127.0.0.1", "0", "token"));
    TcpPlace place{cookie, 0, size, 3, {}, keepalive_s, has_sums, streams};
    for (const auto& hub : hubs) place.addresses.push_back({hub->address()});
    for (std::uint32_t r = 0; r < size; ++r) {
      place.rank = r;
      keepers.push_back(std::make_unique<Keeper>());
      all.push_back(hubs[r]->transport(place, *keepers.back()));
    }
    if (connects) connect_all();
    if (streams > 1) make_lanes();
  }
  // Their first large message asks for lanes, the next connect() makes them.
  void make_lanes() {
    const auto large = pattern(split_nbytes, 1);
    std::vector<char> are_sent(all.size() * all.size());
    for (std::uint32_t r = 0; r < all.size(); ++r)
      for (std::uint32_t p = 0; p < all.size(); ++p)
        if (p != r)
          post(at(r), p, large, 0, reinterpret_cast<bool*>(&are_sent[r * all.size() + p]));
    run_until([&] {
      return std::all_of(keepers.begin(), keepers.end(),
                         [&](const auto& each) { return each->kept.size() == all.size() - 1; });
    });
    for (const auto& each : keepers) each->kept.clear();
    connect_all();
  }
  Transport& at(std::uint32_t rank) override { return *all[rank]; }
  std::vector<std::unique_ptr<TcpHub>> hubs;
  std::vector<std::unique_ptr<Transport>> all;
};

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A peer whose end of the connection is the test's.
struct RawPeer {
  explicit RawPeer(TcpRanks& ranks, std::uint32_t options = 0)
      : socket(dial_tcp({ranks.hubs[0]->address()}, {cookie, 3, 1, 0, options}, "token",
                        until_s(10), [] { return false; })) {}
  void send(const void* bytes, std::size_t nbytes) const {
    CHECK(::send(socket.get(), bytes, nbytes, MSG_NOSIGNAL) == static_cast<ssize_t>(nbytes));
  }
  Fd socket;
};

}  // namespace distdbg
