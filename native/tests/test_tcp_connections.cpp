// What becomes of the connections of two ranks: several for a large message, one that comes too late, one that
// breaks, none at all.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <thread>
#include <utility>

#include "error.hpp"
#include "tcp_ranks.hpp"

using namespace distdbg;

namespace {

void test_what_a_peer_sent_before_it_left_still_arrives() {
  TcpRanks ranks(2);
  for (std::uint64_t i = 0; i < 100; ++i) post(ranks.at(0), 1, pattern(1000, i), i, nullptr);
  post(ranks.at(1), 0, pattern(5000, 1), 0, nullptr);  // which rank 0 never reads
  ranks.at(0).close();
  ranks.run_until([&] { return ranks.keeper(1).kept.size() == 100; });
  // It said that it leaves: that is no loss, also when what it did not read is sent back as a reset.
  for (int i = 0; i < 100; ++i) {
    post(ranks.at(1), 0, pattern(10, 1), 0, nullptr);
    ranks.at(1).poll();
  }
  CHECK(ranks.keeper(1).kept.size() == 100 && ranks.keeper(1).losses.empty());
}

// Of two connections one may break without a word, when it had come too late or the process is gone: all that
// counts is whether what the peer had sent is here.
void test_who_has_left_by_one_connection_is_not_lost_by_the_other() {
  for (const std::uint64_t sent : {2U, 3U}) {
    TcpRanks ranks(2, false);
    const RawPeer first(ranks);
    RawPeer second(ranks);
    for (const RawPeer* peer : {&first, &std::as_const(second)}) {
      const Envelope envelope = envelope_of(0, 7);
      peer->send(&envelope, sizeof envelope);
    }
    ranks.run_until([&] { return ranks.keeper(0).kept.size() == 2; });
    const Envelope last = last_envelope(sent);
    first.send(&last, sizeof last);
    const linger at_once{1, 0};
    ::setsockopt(second.socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    second.socket.close();
    if (sent == 2) {
      for (int i = 0; i < 100; ++i) ranks.at(0).poll();
      CHECK(ranks.keeper(0).losses.empty());
    } else {
      ranks.run_until([&] { return !ranks.keeper(0).losses.empty(); });
      CHECK(says(ranks.keeper(0).losses[0].second, "reset by peer"));
    }
  }
}

void test_who_comes_too_late_is_told_so() {
  for (const bool has_sums : {false, true}) {
    TcpRanks ranks(2, false, 5, has_sums);
    ranks.at(0).close();
    ranks.at(1).connect(0, until_s(10));
    const std::int64_t begin = now_ns();
    ranks.run_until([&] { return !ranks.keeper(1).losses.empty(); });
    // A connection that rank 0 had made before might have been on its way.
    CHECK(now_ns() - begin >= 900 * ns_per_ms);
    CHECK(says(ranks.keeper(1).losses[0].second, "left before this rank had reached it"));
  }
}

// All of a large message but the end of one share, and then what ends it.
void test_a_large_message_needs_all_its_connections() {
  constexpr std::uint64_t nbytes = split_nbytes + 5;
  constexpr std::uint64_t half = share_begin(nbytes, 2, 1);
  const auto payload = pattern(nbytes, 3);
  enum class Trouble { none, reset, closed, beyond, other_size, many };
  for (const auto trouble : {Trouble::none, Trouble::reset, Trouble::closed, Trouble::beyond,
                             Trouble::other_size, Trouble::many}) {
    TcpRanks ranks(2, false);
    const RawPeer peer(ranks);
    RawPeer lane(ranks, is_lane);
    Envelope whole = envelope_of(nbytes, 9);
    whole.nbytes |= (trouble == Trouble::many ? std::uint64_t{most_streams} : 1U) << lanes_shift;
    const Envelope share{nbytes - half,
                         {half + (trouble == Trouble::beyond ? 1 : 0),
                          nbytes + (trouble == Trouble::other_size ? 1 : 0)}};
    const Envelope behind = envelope_of(0, 10);
    std::thread sender([&] {
      const auto send = [](const Fd& socket, const void* bytes, std::size_t n) {
        ::send(socket.get(), bytes, n, MSG_NOSIGNAL);  // whose other end may have gone
      };
      send(lane.socket, &share, sizeof share);
      send(lane.socket, payload.data() + half, nbytes - half - 1);
      send(peer.socket, &whole, sizeof whole);
      send(peer.socket, payload.data(), half);
      send(peer.socket, &behind, sizeof behind);
    });
    for (const std::int64_t end = now_ns() + 50 * ns_per_ms; now_ns() < end;) ranks.at(0).poll();
    if (trouble == Trouble::reset || trouble == Trouble::closed) {
      const linger at_once{trouble == Trouble::reset ? 1 : 0, 0};
      ranks.run_until([&] {
        const auto& coming = ranks.keeper(0).coming(1);
        return coming.size() == nbytes && coming[nbytes - 2] == payload[nbytes - 2];
      });
      sender.join();
      ::setsockopt(lane.socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      lane.socket.close();
    }
    // What is behind it waits for it.
    CHECK(ranks.keeper(0).kept.empty());
    if (trouble == Trouble::none) {
      sender.join();
      CHECK(::send(lane.socket.get(), &payload.back(), 1, 0) == 1);
      ranks.run_until([&] { return ranks.keeper(0).kept.size() == 2; });
      check_kept(ranks.keeper(0).kept[0], 1, 9, payload);
      CHECK(ranks.keeper(0).losses.empty());
      continue;
    }
    ranks.run_until([&] { return !ranks.keeper(0).losses.empty(); });
    if (sender.joinable()) sender.join();
    const std::string& why = ranks.keeper(0).losses[0].second;
    CHECK(says(why, trouble == Trouble::reset    ? "reset by peer"
                    : trouble == Trouble::closed ? "its connection was closed"
                                                 : "no message of distdbg"));
    CHECK(says(why, "in the middle of a message") && ranks.keeper(0).kept.empty());
  }
}

// Its sender is killed once the kernel has all of it; the end of one connection comes first.
void test_a_large_message_outlives_its_sender() {
  constexpr std::uint64_t nbytes = split_nbytes + 5;
  constexpr std::uint64_t half = share_begin(nbytes, 2, 1);
  const auto payload = pattern(nbytes, 3);
  TcpRanks ranks(2, false);
  RawPeer peer(ranks);
  const RawPeer lane(ranks, is_lane);
  Envelope whole = envelope_of(nbytes, 9);
  whole.nbytes |= std::uint64_t{1} << lanes_shift;
  const Envelope share{nbytes - half, {half, nbytes}};
  std::thread sender([&] {
    peer.send(&whole, sizeof whole);
    peer.send(payload.data(), half);
    peer.socket.close();
    lane.send(&share, sizeof share);
  });
  const auto has_first_half = [&] {
    const auto& coming = ranks.keeper(0).coming(1);
    return coming.size() == nbytes && coming[half - 1] == payload[half - 1];
  };
  ranks.run_until(has_first_half);
  sender.join();
  for (int i = 0; i < 100; ++i) ranks.at(0).poll();  // the end has been seen
  CHECK(ranks.keeper(0).losses.empty());
  std::thread rest([&] { lane.send(payload.data() + half, nbytes - half); });
  ranks.run_until([&] { return !ranks.keeper(0).kept.empty(); });
  rest.join();
  check_kept(ranks.keeper(0).kept[0], 1, 9, payload);
  ranks.run_until([&] { return !ranks.keeper(0).losses.empty(); });
  CHECK(!says(ranks.keeper(0).losses[0].second, "in the middle"));
}

void test_who_cannot_be_reached_is_told_with_both_ends() {
  TcpRanks ranks(2, false);
  const std::string gone = ranks.hubs[0]->address();
  ranks.hubs[0]->close();
  try {
    ranks.at(1).connect(0, until_s(0.1));
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.fault() == Fault::network && error.peer() == 0);
    CHECK(error.what() == "no way to rank 0; tried " + gone +
                              " (Connection refused); this rank is at " + ranks.hubs[1]->address());
  }
}

void test_nothing_is_paced_within_a_machine() {
  TcpHub hub("127.0.0.1", "0", "token");
  const Fd socket =
      dial_tcp({hub.address()}, {cookie, 1, 1, 0}, "token", until_s(10), [] { return false; });
  char name[16] = {};
  socklen_t nbytes = sizeof name - 1;
  CHECK(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &nbytes) == 0);
  CHECK(!says(name, "bbr"));  // whatever the system's default is
}

// A look at one peer takes what it has sent, and all else is there for the next look at all.
void test_a_look_at_one_peer_leaves_the_others_for_later() {
  TcpRanks ranks(3);
  auto& kept = ranks.keeper(2).kept;
  bool are_sent[3] = {false, false, false};
  const auto short_one = pattern(10, 1);
  const auto send_both = [&] {
    for (const std::uint32_t r : {0U, 1U}) post(ranks.at(r), 2, short_one, 0, &are_sent[r]);
  };
  send_both();  // so that both connections are known
  ranks.run_until([&] { return kept.size() == 2; });
  kept.clear();
  send_both();
  const std::int64_t end = now_ns() + 5'000 * ns_per_ms;
  while (kept.empty() && now_ns() < end) ranks.at(2).poll_peer(1);
  CHECK(kept.size() == 1 && kept[0].peer == 1);
  for (int i = 0; i < 100; ++i) ranks.at(2).poll_peer(1);
  CHECK(kept.size() == 1);
  ranks.run_until([&] { return kept.size() == 2; });
  CHECK(kept[1].peer == 0);
  // What cannot leave at once goes on meanwhile, to whomever it goes.
  const auto large = pattern(8 << 20, 1);
  post(ranks.at(2), 0, large, 0, &are_sent[2]);
  while (!are_sent[2] && now_ns() < end) {
    ranks.at(0).poll();
    ranks.at(2).poll_peer(1);
  }
  CHECK(are_sent[2]);
}

// Who has spoken by one of two connections goes on there, so a look at it is one system call; all of them are
// looked at by poll().
void test_a_look_at_one_peer_is_where_it_spoke_last() {
  TcpRanks ranks(2, false);
  const RawPeer one(ranks);
  const RawPeer other(ranks);
  auto& kept = ranks.keeper(0).kept;
  const auto send = [](const RawPeer& peer, std::uint64_t tag) {
    const Envelope envelope = envelope_of(0, tag);
    peer.send(&envelope, sizeof envelope);
  };
  send(one, 1);
  send(other, 2);  // so that both connections are known
  ranks.run_until([&] { return kept.size() == 2; });
  send(one, 3);
  ranks.run_until([&] { return kept.size() == 3; });
  send(other, 4);
  send(one, 5);
  const std::int64_t end = now_ns() + 5'000 * ns_per_ms;
  while (kept.size() == 3 && now_ns() < end) ranks.at(0).poll_peer(1);
  for (int i = 0; i < 100; ++i) ranks.at(0).poll_peer(1);
  CHECK(kept.size() == 4);
  check_kept(kept[3], 1, 5, {});
  ranks.run_until([&] { return kept.size() == 5; });
  check_kept(kept[4], 1, 4, {});
}

// Nothing of a followed message stays behind when what follows it has left.
void test_a_followed_message_leaves_with_the_next() {
  TcpRanks ranks(2);
  for (const std::size_t nbytes : {std::size_t{0}, std::size_t{10}, std::size_t{300'000}}) {
    const auto first = pattern(nbytes, 1);
    const auto second = pattern(10, 2);
    Payload followed = one_piece(first.data(), first.size());
    followed.is_followed = true;
    bool are_sent[2] = {false, false};
    ranks.at(0).post(1, {first.size(), {}}, followed, &are_sent[0]);
    ranks.at(0).post(1, {second.size(), {}}, one_piece(second.data(), second.size()), &are_sent[1]);
    auto& kept = ranks.keeper(1).kept;
    ranks.run_until([&] { return kept.size() == 2 && are_sent[0] && are_sent[1]; });
    CHECK(kept[0].bytes == first);
    CHECK(kept[1].bytes == second);
    kept.clear();
  }
}

}  // namespace

int main() {
  for (const bool has_sums : {false, true}) {
    suite::run_all([has_sums](std::uint32_t size) {
      return std::make_unique<TcpRanks>(size, true, 5, has_sums, 3);
    });
  }
  test_what_a_peer_sent_before_it_left_still_arrives();
  test_who_has_left_by_one_connection_is_not_lost_by_the_other();
  test_who_comes_too_late_is_told_so();
  test_a_large_message_needs_all_its_connections();
  test_a_large_message_outlives_its_sender();
  test_who_cannot_be_reached_is_told_with_both_ends();
  test_nothing_is_paced_within_a_machine();
  test_a_look_at_one_peer_leaves_the_others_for_later();
  test_a_look_at_one_peer_is_where_it_spoke_last();
  test_a_followed_message_leaves_with_the_next();
  return 0;
}
