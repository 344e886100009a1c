// What every transport has to pass. A test gets ranks that are connected; where it needs no threads, one
// thread polls for all of them in turn.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "clock.hpp"
#include "transport.hpp"
#include "wait.hpp"

namespace distdbg {

inline Wait until_s(double seconds) {
  return {now_ns() + static_cast<std::int64_t>(seconds * 1e9), nullptr};
}

// A receiver that keeps what comes.
class Keeper : public Receiver {
 public:
  struct Kept {
    std::uint32_t peer;
    Envelope envelope;
    std::vector<std::byte> bytes;
  };
  std::vector<Kept> kept;
  std::vector<std::pair<std::uint32_t, std::string>> losses;
  std::vector<std::pair<std::uint32_t, std::string>> corruptions;
  std::function<bool(const Envelope&)> may_come;
  std::function<void(std::uint32_t, const Envelope&)> on_arrival;
  bool throws_away = false;
  bool has_two_pieces = false;
  std::size_t refused = 0;

  bool place(std::uint32_t peer, const Envelope& envelope, Payload& into) override {
    if (may_come && !may_come(envelope)) {
      ++refused;
      return false;
    }
    std::vector<std::byte>& bytes = coming(peer);
    bytes.assign(throws_away ? 0 : envelope.nbytes, std::byte{0});
    const std::uint64_t first = has_two_pieces ? envelope.nbytes / 3 : envelope.nbytes;
    std::byte* const at = throws_away ? nullptr : bytes.data();
    into.pieces[0] = {at, first};
    into.pieces[1] = {throws_away ? nullptr : at + first, envelope.nbytes - first};
    return true;
  }
  void arrived(std::uint32_t peer, const Envelope& envelope) override {
    kept.push_back({peer, envelope, std::move(coming(peer))});
    if (on_arrival) on_arrival(peer, envelope);
  }
  void lost(std::uint32_t peer, const std::string& why) override { losses.emplace_back(peer, why); }
  void corrupted(std::uint32_t peer, const std::string& link) override {
    corruptions.emplace_back(peer, link);
  }

  std::vector<std::byte>& coming(std::uint32_t peer) {
    if (coming_.size() <= peer) coming_.resize(peer + 1);
    return coming_[peer];
  }

 private:
  std::vector<std::vector<std::byte>> coming_;
};

// Ranks with a transport each.
struct Ranks {
  virtual ~Ranks() = default;
  virtual Transport& at(std::uint32_t rank) = 0;
  std::vector<std::unique_ptr<Keeper>> keepers;

  Keeper& keeper(std::uint32_t rank) { return *keepers[rank]; }
  void connect_all() {
    const auto size = static_cast<std::uint32_t>(keepers.size());
    for (std::uint32_t r = 0; r < size; ++r)
      for (std::uint32_t p = 0; p < size; ++p)
        if (p != r) at(r).connect(p, until_s(20));
  }
  // Polls all of them until it is so.
  template <class Ready>
  void run_until(const Ready& ready) {
    const std::int64_t end = now_ns() + 60'000 * ns_per_ms;
    while (!ready()) {
      CHECK(now_ns() < end);
      for (std::uint32_t r = 0; r < keepers.size(); ++r) at(r).poll();
    }
  }
};
using MakeRanks = std::function<std::unique_ptr<Ranks>(std::uint32_t)>;

inline std::vector<std::byte> pattern(std::uint64_t nbytes, std::uint64_t seed) {
  std::vector<std::byte> bytes(nbytes);
  std::uint64_t state = seed * 2 + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

inline Envelope envelope_of(std::uint64_t nbytes, std::uint64_t number) {
  return {nbytes, {number, ~number, 0, 0, 0, 0, number}};
}

inline void post(Transport& transport, std::uint32_t peer, const std::vector<std::byte>& bytes,
                 std::uint64_t number, bool* is_sent) {
  transport.post(peer, envelope_of(bytes.size(), number), one_piece(bytes.data(), bytes.size()),
                 is_sent);
}

inline void check_kept(const Keeper::Kept& kept, std::uint32_t peer, std::uint64_t number,
                       const std::vector<std::byte>& bytes) {
  CHECK(kept.peer == peer);
  CHECK(kept.envelope.words[0] == number && kept.envelope.words[6] == number);
  CHECK(kept.bytes == bytes);
}

namespace suite {

constexpr std::uint64_t large_nbytes = 5 << 20;
constexpr std::uint64_t huge_nbytes = 24 << 20;  // more than any way between two ranks holds

inline void all_sizes_arrive_in_order(const MakeRanks& make) {
  for (const bool has_two_pieces : {false, true}) {
    const auto ranks = make(2);
    ranks->keeper(1).has_two_pieces = has_two_pieces;
    std::vector<std::vector<std::byte>> sent;
    for (const std::uint64_t nbytes :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{63}, std::uint64_t{64},
          std::uint64_t{65}, std::uint64_t{2047}, std::uint64_t{2048}, std::uint64_t{16384},
          std::uint64_t{64 << 10}, std::uint64_t{(64 << 10) + 1}, large_nbytes, std::uint64_t{7}})
      sent.push_back(pattern(nbytes, nbytes));
    const auto are_sent = std::make_unique<bool[]>(sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const std::uint64_t half = has_two_pieces ? sent[i].size() / 2 : 0;
      Payload payload;
      payload.pieces = {{{sent[i].data(), half}, {sent[i].data() + half, sent[i].size() - half}}};
      ranks->at(0).post(1, envelope_of(sent[i].size(), i), payload, &are_sent[i]);
    }
    ranks->run_until([&] { return ranks->keeper(1).kept.size() == sent.size(); });
    for (std::size_t i = 0; i < sent.size(); ++i) {
      check_kept(ranks->keeper(1).kept[i], 0, i, sent[i]);
      CHECK(are_sent[i]);
    }
  }
}

inline void many_small_ones_wait_until_somebody_polls(const MakeRanks& make) {
  const auto ranks = make(2);
  for (std::uint64_t i = 0; i < 5'000; ++i) {
    const auto bytes = pattern(i % 200, i);
    post(ranks->at(0), 1, bytes, i, nullptr);  // its memory is gone at once
  }
  ranks->run_until([&] { return ranks->keeper(1).kept.size() == 5'000; });
  for (std::uint64_t i = 0; i < 5'000; ++i)
    check_kept(ranks->keeper(1).kept[i], 0, i, pattern(i % 200, i));
}

inline void large_ones_cross(const MakeRanks& make) {
  const auto ranks = make(2);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const auto mine = pattern(large_nbytes, r);
      bool are_sent[4] = {};
      for (std::uint64_t i = 0; i < 4; ++i) post(ranks->at(r), 1 - r, mine, i, &are_sent[i]);
      Keeper& keeper = ranks->keeper(r);
      const auto is_done = [&] {
        ranks->at(r).poll();
        return keeper.kept.size() == 4 &&
               std::all_of(are_sent, are_sent + 4, [](bool b) { return b; });
      };
      const std::int64_t end = now_ns() + 60'000 * ns_per_ms;
      while (!is_done()) {
        CHECK(now_ns() < end);
        ranks->at(r).wait(40 * ns_per_ms, is_done);
      }
      const auto theirs = pattern(large_nbytes, 1 - r);
      for (std::uint64_t i = 0; i < 4; ++i) check_kept(keeper.kept[i], 1 - r, i, theirs);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void a_message_waits_for_its_place(const MakeRanks& make) {
  const auto ranks = make(3);
  Keeper& keeper = ranks->keeper(1);
  bool is_open = false;
  keeper.may_come = [&](const Envelope& envelope) { return is_open || envelope.words[0] >= 100; };
  const auto first = pattern(10, 1);
  const auto second = pattern(huge_nbytes, 2);
  bool is_sent = false;
  post(ranks->at(0), 1, first, 0, nullptr);
  post(ranks->at(0), 1, second, 101, &is_sent);
  post(ranks->at(2), 1, first, 102, nullptr);
  // Others get through; what is behind it does not.
  ranks->run_until([&] { return keeper.kept.size() == 1 && keeper.refused > 1; });
  for (int i = 0; i < 20; ++i)
    ranks->run_until([last = keeper.refused, &keeper] { return keeper.refused > last; });
  CHECK(keeper.kept.size() == 1 && !is_sent);
  check_kept(keeper.kept[0], 2, 102, first);
  is_open = true;
  ranks->run_until([&] { return keeper.kept.size() == 3; });
  check_kept(keeper.kept[1], 0, 0, first);
  check_kept(keeper.kept[2], 0, 101, second);
}

inline void a_message_without_payload_waits_for_its_place(const MakeRanks& make) {
  const auto ranks = make(2);
  Keeper& keeper = ranks->keeper(1);
  keeper.may_come = [](const Envelope&) { return false; };
  post(ranks->at(0), 1, {}, 7, nullptr);
  ranks->run_until([&] { return keeper.refused > 20; });
  keeper.may_come = nullptr;
  ranks->run_until([&] { return keeper.kept.size() == 1; });
  check_kept(keeper.kept[0], 0, 7, {});
}

inline void what_has_no_place_is_thrown_away(const MakeRanks& make) {
  const auto ranks = make(2);
  Keeper& keeper = ranks->keeper(1);
  keeper.throws_away = true;
  const auto large = pattern(large_nbytes, 3);
  bool is_sent = false;
  post(ranks->at(0), 1, large, 0, &is_sent);
  ranks->run_until([&] { return keeper.kept.size() == 1; });
  CHECK(keeper.kept[0].bytes.empty());
  keeper.throws_away = false;
  post(ranks->at(0), 1, large, 1, &is_sent);
  ranks->run_until([&] { return keeper.kept.size() == 2; });
  check_kept(keeper.kept[1], 0, 1, large);
}

inline void an_unsent_message_is_cancelled(const MakeRanks& make) {
  const auto ranks = make(2);
  const auto first = pattern(huge_nbytes, 4);
  const auto last = pattern(100, 6);
  bool are_sent[3] = {};
  post(ranks->at(0), 1, first, 0, &are_sent[0]);
  CHECK(!are_sent[0]);
  {
    const auto second = pattern(large_nbytes, 5);
    post(ranks->at(0), 1, second, 1, &are_sent[1]);
    ranks->at(0).cancel(second.data(), second.size());
  }
  post(ranks->at(0), 1, last, 2, &are_sent[2]);
  ranks->run_until([&] { return ranks->keeper(1).kept.size() == 2; });
  CHECK(are_sent[0] && !are_sent[1] && are_sent[2]);
  check_kept(ranks->keeper(1).kept[0], 0, 0, first);
  check_kept(ranks->keeper(1).kept[1], 0, 2, last);
}

inline void a_half_received_message_is_cancelled(const MakeRanks& make) {
  const auto ranks = make(2);
  Keeper& keeper = ranks->keeper(1);
  const auto first = pattern(huge_nbytes, 7);
  bool is_sent = false;
  post(ranks->at(0), 1, first, 0, &is_sent);
  ranks->run_until([&] {
    const auto& coming = keeper.coming(0);
    return !coming.empty() && std::equal(first.begin(), first.begin() + 1000, coming.begin());
  });
  CHECK(keeper.kept.empty());
  ranks->at(1).cancel(keeper.coming(0).data(), keeper.coming(0).size());
  std::vector<std::byte>().swap(keeper.coming(0));
  ranks->run_until([&] { return keeper.kept.size() == 1 && is_sent; });
  const auto last = pattern(100, 8);
  post(ranks->at(0), 1, last, 1, nullptr);
  ranks->run_until([&] { return keeper.kept.size() == 2; });
  check_kept(keeper.kept[1], 0, 1, last);
}

// Its memory is let go of; what becomes of the way is the transport's affair.
inline void a_half_sent_message_is_cancelled(const MakeRanks& make) {
  const auto ranks = make(2);
  bool is_sent = false;
  {
    const auto first = pattern(huge_nbytes, 9);
    post(ranks->at(0), 1, first, 0, &is_sent);
    for (int i = 0; i < 3; ++i) ranks->at(1).poll();
    CHECK(!is_sent);
    ranks->at(0).cancel(first.data(), first.size());
  }
  for (int i = 0; i < 100; ++i) {
    ranks->at(0).poll();
    ranks->at(1).poll();
  }
  CHECK(ranks->keeper(1).kept.empty() && !is_sent);
}

inline void wait_ends_in_time_and_by_a_message(const MakeRanks& make) {
  const auto ranks = make(2);
  const auto nothing_yet = [&] { return ranks->at(1).poll(); };
  std::int64_t begin = now_ns();
  // It may wake for other reasons.
  while (now_ns() - begin < 30 * ns_per_ms) ranks->at(1).wait(30 * ns_per_ms, nothing_yet);
  CHECK(now_ns() - begin < 10'000 * ns_per_ms);
  CHECK(ranks->keeper(1).kept.empty());
  std::thread sender;
  begin = now_ns();
  while (ranks->keeper(1).kept.empty()) {
    CHECK(now_ns() - begin < 30'000 * ns_per_ms);
    ranks->at(1).wait(60'000 * ns_per_ms, [&] {
      if (ranks->at(1).poll()) return true;
      if (!sender.joinable())
        sender = std::thread([&] { post(ranks->at(0), 1, pattern(8, 11), 0, nullptr); });
      return false;
    });
    ranks->at(1).poll();
  }
  sender.join();
}

// As a thread in the background and one in the foreground do: whoever polls may move the other's message.
inline void two_threads_wait_at_one_rank(const MakeRanks& make) {
  const auto ranks = make(2);
  constexpr std::uint64_t count = 300;
  std::mutex mutex;
  std::atomic<std::uint64_t> turn{0};
  std::vector<std::thread> threads;
  for (std::uint64_t each = 0; each < 2; ++each) {
    threads.emplace_back([&, each] {
      for (std::uint64_t i = each; i < count; i += 2) {
        const auto is_there = [&] {
          const std::lock_guard lock(mutex);
          ranks->at(1).poll();
          return ranks->keeper(1).kept.size() > i;
        };
        const std::int64_t begin = now_ns();
        while (!is_there()) ranks->at(1).wait(20'000 * ns_per_ms, is_there);
        CHECK(now_ns() - begin < 10'000 * ns_per_ms);
        turn.fetch_add(1);
      }
    });
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto bytes = pattern(64, i);
    post(ranks->at(0), 1, bytes, i, nullptr);
    while (turn.load() <= i) std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
}

inline void a_receiver_answers_from_within(const MakeRanks& make) {
  const auto ranks = make(2);
  for (std::uint32_t r = 0; r < 2; ++r) {
    ranks->keeper(r).on_arrival = [&, r](std::uint32_t peer, const Envelope& envelope) {
      if (envelope.words[0] < 200)
        post(ranks->at(r), peer, pattern(envelope.words[0], 0), envelope.words[0] + 1, nullptr);
    };
  }
  post(ranks->at(0), 1, {}, 0, nullptr);
  ranks->run_until([&] { return ranks->keeper(0).kept.size() == 100; });
  CHECK(ranks->keeper(0).kept.back().envelope.words[0] == 199);
}

inline void many_ranks_talk_at_once(const MakeRanks& make) {
  constexpr std::uint32_t size = 7;
  constexpr std::uint64_t count = 40;
  const auto ranks = make(size);
  std::atomic<std::uint32_t> left{size};
  const auto nbytes_of = [](std::uint64_t i) { return i % 10 == 9 ? 200'000 + i : i * 31; };
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      Transport& mine = ranks->at(r);
      Keeper& keeper = ranks->keeper(r);
      for (std::uint64_t i = 0; i < count; ++i)
        for (std::uint32_t p = 0; p < size; ++p)
          if (p != r) post(mine, p, pattern(nbytes_of(i), r), i, nullptr);
      // What has not left yet leaves while its rank polls: nobody goes before all have everything.
      bool has_all = false;
      const auto is_done = [&] {
        mine.poll();
        if (!has_all && keeper.kept.size() == count * (size - 1)) {
          has_all = true;
          left.fetch_sub(1);
        }
        return left.load() == 0;
      };
      const std::int64_t end = now_ns() + 60'000 * ns_per_ms;
      while (!is_done()) {
        CHECK(now_ns() < end);
        mine.wait(40 * ns_per_ms, is_done);
      }
      std::vector<std::uint64_t> next(size);
      for (const Keeper::Kept& kept : keeper.kept) {
        const std::uint64_t i = next[kept.peer]++;
        check_kept(kept, kept.peer, i, pattern(nbytes_of(i), kept.peer));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void run_all(const MakeRanks& make) {
  all_sizes_arrive_in_order(make);
  many_small_ones_wait_until_somebody_polls(make);
  large_ones_cross(make);
  a_message_waits_for_its_place(make);
  a_message_without_payload_waits_for_its_place(make);
  what_has_no_place_is_thrown_away(make);
  an_unsent_message_is_cancelled(make);
  a_half_received_message_is_cancelled(make);
  a_half_sent_message_is_cancelled(make);
  wait_ends_in_time_and_by_a_message(make);
  two_threads_wait_at_one_rank(make);
  a_receiver_answers_from_within(make);
  many_ranks_talk_at_once(make);
}

}  // namespace suite
}  // namespace distdbg
