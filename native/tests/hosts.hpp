// Groups over several hosts: threads as ranks, a segment for each host, and as a network rings of a further
// segment, or TCP over the loopback interface.
#pragma once

#include <barrier>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "check.hpp"
#include "p2p.hpp"
#include "ranks.hpp"
#include "ring_transport.hpp"
#include "tcp_hub.hpp"

namespace distdbg {

// By rank, its host.
using Layout = std::vector<std::uint32_t>;

// Rings stand for a network that is never full nor late; TCP is one.
enum class Net { rings, tcp };

// What a rank has in place of a transport of its own.
using Wrap = std::function<std::unique_ptr<Transport>(std::uint32_t rank, Purpose purpose,
                                                      std::unique_ptr<Transport> made)>;

inline void run_hosts(const Layout& layout, Net net, const std::function<void(Group&)>& body,
                      const Wrap& wrap = {}) {
  static std::uint64_t group = 0;
  const auto size = static_cast<std::uint32_t>(layout.size());
  std::vector<Segment> segments;
  for (std::uint32_t host = 0; host < size; ++host)
    segments.push_back(Segment::create(size, slot_nbytes, 4096, cookie));
  // Rings are small, so that messages do not fit and senders wait.
  const Segment collectives = Segment::create(size, 4096, 16 * 1024, cookie);
  const Segment messages = Segment::create(size, 4096, 16 * 1024, cookie);
  std::vector<std::vector<Segment>> networks(size);
  for (auto& each : networks) {
    each.push_back(collectives.alias());
    each.push_back(messages.alias());
  }
  TcpHub hub("127.0.0.1", "0", "token");
  TcpPlace place;
  place.cookie = ++group;
  place.size = size;
  place.addresses.assign(size, {hub.address()});
  std::vector<std::thread> threads;
  // Who is slow to leave join() must not find there what a quicker one has broken since.
  std::barrier joined(static_cast<std::ptrdiff_t>(size));
  for (std::uint32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      const auto make = [&](Receiver& receiver, Purpose purpose) -> std::unique_ptr<Transport> {
        const auto number = static_cast<std::uint32_t>(purpose);
        if (net == Net::tcp) {
          TcpPlace mine = place;
          mine.rank = r;
          mine.kind = number;
          auto made = hub.transport(mine, receiver);
          return wrap ? wrap(r, purpose, std::move(made)) : std::move(made);
        }
        std::vector<std::uint32_t> peers(size);
        std::iota(peers.begin(), peers.end(), 0U);
        std::erase(peers, r);
        return std::make_unique<RingTransport>(networks[r][number], r, peers, receiver);
      };
      Group group_here(segments[layout[r]].alias(), r, Patience{20, 20'000}, true, layout, make);
      group_here.join(in_seconds(20), {});
      joined.arrive_and_wait();
      body(group_here);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& said : hub.complaints())
    std::fprintf(stderr, "complaint: %s\n", said.c_str());
  CHECK(hub.refused() == 0);
}

inline Plan flat_all_reduce(std::uint32_t size, std::uint64_t nbytes) {
  Plan plan;
  plan.dtype = Dtype::float32;
  plan.fingerprint = nbytes;
  plan.in_cuts = plan.out_cuts = {{0, 0, nbytes}};
  Step meet = gate();
  meet.nbytes = nbytes;
  plan.steps = {{StepKind::copy, Space::input, Space::slot, -1, 0, 0, 0, 0, nbytes},
                meet,
                {StepKind::fold_all, Space::slot, Space::output, -1, 0, 0, 0, 0, nbytes}};
  plan.finish(size, slot_nbytes);
  return plan;
}

}  // namespace distdbg
