#include "links.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "group.hpp"

namespace distdbg {

Links::Links(Group& group, const MakeTransport& make)
    : group_(group), notices_(group), transport_(make(*this, Purpose::collectives)) {}

Links::~Links() { transport_->close(); }

template <class Ready, class IsNeeded>
void Links::wait_until(const Wait& wait, bool in_background, const Ready& ready,
                       const IsNeeded& is_needed) {
  const auto has_moved = [&] { return ready() || transport_->poll(); };
  std::uint32_t looks = 0;
  const auto look = [&] {
    if (!is_waiting_ || ++looks % looks_at_one == 0) return has_moved();
    return ready() || transport_->poll_peer(wanted_.peer);
  };
  std::int64_t next_check = now_ns() + 20 * ns_per_ms;
  std::int64_t next_look = now_ns() + Group::slice_ns;
  while (!ready()) {
    // As long as something moves, the peer is at work: patience begins anew.
    if (in_background ? has_moved() : group_.patience().stay_awake_by_calls(look)) {
      if (now_ns() < next_look && !has_heard_timeout_) continue;
    } else {
      transport_->wait(wait.nap_ns(Group::slice_ns), has_moved);
    }
    if (ready()) return;
    if (std::exchange(has_heard_timeout_, false)) throw Error(Fault::timeout, "timed out");
    next_look = now_ns() + Group::slice_ns;
    group_.check_wait(wait, next_check, is_needed);
  }
}

// Whether the first rank of this host, which alone may have links to others, is the one that was lost, and
// this is the next.
bool Links::stands_in() const {
  const Cause& cause = group_.segment().header().cause;
  const std::vector<std::uint32_t>& here = group_.ranks_here();
  if (cause.state.load(std::memory_order_acquire) != 2) return false;
  if (cause.fault != static_cast<std::int32_t>(Fault::peer_lost)) return false;
  return here.size() > 1 && here[1] == group_.rank() &&
         cause.rank == static_cast<std::int32_t>(here.front());
}

void Links::tell_cause() {
  if (notices_.has_sent_cause()) return;
  if (stands_in()) {
    const auto& hosts = group_.hosts();
    const std::size_t count = hosts.size();
    for (std::size_t distance = 1; distance < count; distance *= 2) {
      for (const std::size_t host : {group_.host() + distance, group_.host() + count - distance}) {
        Wait wait;
        wait.deadline_ns = now_ns() + 100 * ns_per_ms;
        try {
          notices_.connect(*transport_, hosts[host % count].front(), wait);
        } catch (const Error&) {  // that host learns it from others, or in its next op
        }
      }
    }
  }
  notices_.tell_cause(*transport_);
}

void Links::post(std::uint32_t peer, const Frame& frame, const Payload& payload) {
  notices_.link(peer);
  Unsent& unsent = (frame.flags & is_early) != 0 ? unsent_early_ : unsent_;
  unsent.push_back({peer, false});
  transport_->post(peer, std::bit_cast<Envelope>(frame), payload, &unsent.back().is_sent);
  if (unsent.back().is_sent) unsent.pop_back();
}

void Links::settle(const Wait& wait, bool in_background) {
  settle(unsent_, wait, in_background);
  settle(unsent_early_, wait, in_background);
}

void Links::settle(Unsent& unsent, const Wait& wait, bool in_background) {
  if (unsent.empty()) return;
  wait_until(
      wait, in_background,
      [&] {
        return std::all_of(unsent.begin(), unsent.end(),
                           [](const Sending& each) { return each.is_sent; });
      },
      // Who is gone reads no more.
      [&](std::uint32_t r) {
        return !notices_.may_bring_more(r) &&
               std::any_of(unsent.begin(), unsent.end(),
                           [r](const Sending& each) { return each.peer == r && !each.is_sent; });
      });
  unsent.clear();
}

void Links::send(std::uint32_t peer, Region from, const Wait& wait) {
  notices_.connect(*transport_, peer, wait);
  Frame frame{};
  frame.nbytes = from.nbytes;
  frame.type = FrameType::data;
  frame.seq = group_.seq();
  post(peer, frame, one_piece(from.data, from.nbytes));
}

bool Links::has_early(std::uint32_t peer) const {
  return std::any_of(early_.begin(), early_.end(),
                     [peer](const Early& each) { return each.peer == peer; });
}

// Calls have not been compared yet: the op may end, and its memory with it, before this has left.
void Links::post_early(std::uint32_t peer, const Wait& wait) {
  if (early_.empty()) return;
  const auto is_of = [peer](const Early& each) { return each.peer == peer; };
  for (const Early& each : early_) {
    if (!is_of(each)) continue;
    notices_.connect(*transport_, peer, wait);
    Frame frame{};
    frame.nbytes = each.from.nbytes;
    frame.type = FrameType::data;
    frame.gate = crossings_;
    frame.seq = group_.seq();
    frame.flags = is_early;
    Payload payload = one_piece(each.from.data, each.from.nbytes);
    payload.is_copied = true;
    post(peer, frame, payload);
  }
  std::erase_if(early_, is_of);
}

void Links::receive(std::uint32_t peer, Region into, const Wait& wait, bool in_background) {
  notices_.connect(*transport_, peer, wait);
  notices_.link(peer);
  wanted_ = {FrameType::data, peer, into, {}, 0, false};
  want(wait, in_background);
}

void Links::want(const Wait& wait, bool in_background) {
  is_waiting_ = true;
  try {
    wait_until(
        wait, in_background, [&] { return wanted_.is_done; },
        [&](std::uint32_t r) {
          return !wanted_.is_done && r == wanted_.peer && !notices_.may_bring_more(r);
        });
  } catch (...) {
    is_waiting_ = false;
    transport_->cancel(wanted_.into.data, wanted_.into.nbytes);
    throw;
  }
  is_waiting_ = false;
  // What was waited for came before it: this wait has not failed, the group has.
  if (std::exchange(has_heard_timeout_, false))
    notices_.arrived(*transport_, timeout_from_, timeout_envelope_);
}

LinkTimes Links::measure(const std::vector<std::uint32_t>& ring, const Wait& wait) {
  constexpr int short_rounds = 16;
  constexpr int long_rounds = 4;
  // Where ranks share cores, every second or third message is there already when its turn comes, and the others
  // wait for one: a round takes what several in a row take.
  constexpr std::ptrdiff_t row = 4;
  const auto& hosts = group_.hosts();
  const std::size_t count = hosts.size();
  const auto me =
      static_cast<std::size_t>(std::find(ring.begin(), ring.end(), group_.host()) - ring.begin());
  const std::uint32_t next = hosts[ring[(me + 1) % count]].front();
  const std::uint32_t before = hosts[ring[(me + count - 1) % count]].front();
  std::vector<std::byte> out(LinkTimes::long_nbytes);
  std::vector<std::byte> in(LinkTimes::long_nbytes);
  const auto times_of = [&](int rounds, std::uint64_t nbytes) {
    std::vector<std::int64_t> times;
    for (int i = 0; i < rounds; ++i) {
      const std::int64_t began = now_ns();
      send(next, {out.data(), nbytes}, wait);
      receive(before, {in.data(), nbytes}, wait, false);
      settle(wait, false);
      times.push_back(now_ns() - began);
    }
    return times;
  };
  // The first messages wait for hosts that are late, and for the connections; the quickest count.
  const std::vector<std::int64_t> shorts = times_of(short_rounds, 1);
  const std::int64_t quickest_short = *std::ranges::min_element(shorts);
  const std::vector<std::int64_t> longs = times_of(long_rounds, LinkTimes::long_nbytes);
  const std::int64_t quickest_long = *std::ranges::min_element(longs);
  std::int64_t quickest_row = no_deadline;
  for (auto first = shorts.begin(); shorts.end() - first >= row; ++first)
    quickest_row = std::min(quickest_row, std::accumulate(first, first + row, std::int64_t{0}));
  LinkTimes times;
  times.short_ns = quickest_row / row;
  times.long_ns = times.short_ns + std::max<std::int64_t>(quickest_long - quickest_short, 0);
  return times;
}

void Links::compare_calls() {
  constexpr std::size_t most_hosts = 256;
  constexpr std::int64_t most_ns = 600 * ns_per_ms;
  constexpr std::int64_t most_connect_ns = 200 * ns_per_ms;
  const auto& hosts = group_.hosts();
  const std::int64_t until = now_ns() + most_ns;
  is_comparing_ = true;
  for (std::size_t i = 1; i < hosts.size() && i < most_hosts && now_ns() < until; ++i) {
    const std::uint32_t first = hosts[(group_.host() + i) % hosts.size()].front();
    Wait wait;
    wait.deadline_ns = std::min(until, now_ns() + most_connect_ns);
    try {
      notices_.connect(*transport_, first, wait);
      notices_.tell_calls(*transport_, first);
    } catch (const Error&) {  // nothing is known of that host
    }
  }
  const auto have_all_reported = [&] {
    transport_->poll();
    for (std::size_t host = 0; host < hosts.size(); ++host)
      if (host != group_.host() && !notices_.has_heard_calls(hosts[host].front())) return false;
    return true;
  };
  while (!have_all_reported() && now_ns() < until)
    transport_->wait(5 * ns_per_ms, [&] { return transport_->poll(); });
  is_comparing_ = false;
}

void Links::exchange(std::uint64_t gate, bool with_blocks, const Wait& wait, bool in_background) {
  const auto& hosts = group_.hosts();
  const std::size_t count = hosts.size();
  const std::size_t me = group_.host();
  ++crossings_;
  gate_ = gate;
  for (std::size_t distance = 1; distance < count; distance *= 2) {
    const std::size_t blocks = std::min(distance, count - distance);
    const std::uint32_t to = hosts[(me + distance) % count].front();
    const std::uint32_t from = hosts[(me + count - distance) % count].front();
    notices_.connect(*transport_, to, wait);
    notices_.connect(*transport_, from, wait);
    notices_.link(from);
    wanted_ = {FrameType::slot, from, {}, {}, 0, false};
    for (std::size_t i = 0; i < blocks; ++i) {
      const auto& held = hosts[(me + count - i) % count];
      for (const std::uint32_t r : held)
        post_slot(to, r, gate, with_blocks, i + 1 < blocks || r != held.back() || has_early(to));
      for (const std::uint32_t r : hosts[(me + 2 * count - distance - i) % count])
        wanted_.ranks.push_back(r);
    }
    // Whoever waits for a slot finds it before all else that comes from there.
    post_early(to, wait);
    if (distance == 1)
      for (std::size_t behind = 3; behind < count; ++behind)
        if (!std::has_single_bit(behind)) post_early(hosts[(me + behind) % count].front(), wait);
    want(wait, in_background);
  }
  settle(unsent_, wait, in_background);  // what is early is taken behind the gate
  // Whoever gave up had sent its slot before, and then the cause.
  // At the first gate the group is made, so it is: the next op finds it broken.
  if (crossings_ > 1 && group_.is_broken()) group_.throw_cause(false);
}

void Links::post_slot(std::uint32_t peer, std::uint32_t rank, std::uint64_t gate, bool with_blocks,
                      bool is_followed) {
  Segment& segment = group_.segment();
  SlotHeader& slot = segment.slot(rank, gate);
  const RankState& state = segment.rank(rank);
  Payload payload;
  payload.pieces[0] = {reinterpret_cast<std::byte*>(&slot),
                       sizeof(SlotHeader) + (with_blocks ? 2 * group_.size() * sizeof(Block) : 0)};
  payload.pieces[1] = {segment.payload(rank, gate), state.published};
  payload.is_followed = is_followed;
  Frame frame{};
  frame.nbytes = payload.nbytes();
  frame.type = FrameType::slot;
  frame.rank = rank;
  frame.gate = crossings_;
  frame.seq = state.seq.load(std::memory_order_acquire);
  frame.flags = (slot.first_gate == gate ? is_first_gate : 0) | (with_blocks ? has_blocks : 0);
  post(peer, frame, payload);
}

bool Links::place(std::uint32_t peer, const Envelope& envelope, Payload& into) {
  if (notices_.takes(envelope)) {
    notices_.place(peer, envelope, into);
    return true;
  }
  const auto frame = std::bit_cast<Frame>(envelope);
  if (is_comparing_) {  // of an op that has failed: thrown away, but for what it tells
    if (frame.type == FrameType::slot && frame.rank < group_.size())
      group_.note_call(frame.rank, frame.seq);
    into = one_piece(nullptr, frame.nbytes);
    return true;
  }
  if (is_stale(frame)) {
    into = one_piece(nullptr, frame.nbytes);
    return true;
  }
  if (!is_waiting_ || wanted_.is_done || wanted_.peer != peer) return false;
  const bool is_expected =
      frame.type == wanted_.type &&
      (frame.type == FrameType::slot ? frame.gate == crossings_ : frame.seq == group_.seq());
  if (!is_expected)
    throw Error(Fault::mismatch, "is in the middle of another op", 0, static_cast<int>(peer));
  if (frame.type == FrameType::data) {
    if (frame.nbytes != wanted_.into.nbytes)
      throw Error(Fault::mismatch, "sent another size than this rank expects", 0,
                  static_cast<int>(peer));
    into = one_piece(wanted_.into.data, wanted_.into.nbytes);
    return true;
  }
  Segment& segment = group_.segment();
  const std::uint64_t head =
      sizeof(SlotHeader) +
      ((frame.flags & has_blocks) != 0 ? 2 * group_.size() * sizeof(Block) : 0);
  if (frame.rank != wanted_.ranks[wanted_.next] || frame.nbytes < head ||
      frame.nbytes - head > segment.slot_nbytes())
    throw Error(Fault::system, "a frame does not fit");
  into.pieces[0] = {reinterpret_cast<std::byte*>(&segment.slot(frame.rank, gate_)), head};
  into.pieces[1] = {segment.payload(frame.rank, gate_), frame.nbytes - head};
  return true;
}

void Links::arrived(std::uint32_t peer, const Envelope& envelope) {
  // The group breaks when this host knows who is missing, lest others of it read half of that.
  if ((is_waiting_ || is_comparing_) && Notices::is_of_timeout(envelope)) {
    has_heard_timeout_ = true;
    timeout_from_ = peer;
    timeout_envelope_ = envelope;
    return;
  }
  if (notices_.takes(envelope)) return notices_.arrived(*transport_, peer, envelope);
  if (is_comparing_) return;
  const auto frame = std::bit_cast<Frame>(envelope);
  if (is_stale(frame)) return;
  Segment& segment = group_.segment();
  switch (frame.type) {
    case FrameType::data: wanted_.is_done = true; break;
    case FrameType::slot: {
      segment.slot(frame.rank, gate_).first_gate = (frame.flags & is_first_gate) != 0 ? gate_ : 0;
      RankState& state = segment.rank(frame.rank);
      state.published = static_cast<std::uint32_t>(
          frame.nbytes - sizeof(SlotHeader) -
          ((frame.flags & has_blocks) != 0 ? 2 * group_.size() * sizeof(Block) : 0));
      state.seq.store(frame.seq, std::memory_order_release);
      state.gate.store(gate_, std::memory_order_release);
      state.attached.store(1, std::memory_order_release);
      wanted_.is_done = ++wanted_.next == wanted_.ranks.size();
      break;
    }
  }
}

void Links::lost(std::uint32_t peer, const std::string& why) { notices_.lost(peer, why); }

void Links::corrupted(std::uint32_t peer, const std::string& link) {
  group_.break_group(Fault::network, static_cast<int>(peer), link);
  notices_.tell_cause(*transport_);
}

}  // namespace distdbg
