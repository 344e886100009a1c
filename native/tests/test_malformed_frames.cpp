// Frames that no rank of ours sends, from a rank of the same host that writes them into its ring itself.
#include <unistd.h>

#include <cstring>
#include <string>

#include "check.hpp"
#include "p2p.hpp"
#include "p2p_limits.hpp"
#include "ranks.hpp"

namespace {

using namespace distdbg;

// As p2p.hpp draws it.
struct Raw {
  std::uint64_t payload_nbytes = 0;
  std::uint32_t type = 0;
  std::uint32_t status = 0;
  std::uint64_t id = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t address = 0;
  std::int64_t tag = 0;
  std::int32_t dtype = -1;
  std::uint32_t level = 0;
  std::uint64_t padding = 0;
};
static_assert(sizeof(Raw) == sizeof(Envelope));

constexpr std::uint32_t offer = 0, answer = 1, data = 2, words = 3, written = 4;
constexpr std::uint32_t taken = 0, push = 1, mismatch = 2, device = 3, staged = 4, more = 5,
                        halves = 6;

// Takes what comes, and says what that was.
struct Listener final : Receiver {
  Raw last;
  std::vector<std::byte> payload;
  std::vector<std::byte> all;
  int count = 0;
  bool place(std::uint32_t, const Envelope& envelope, Payload& into) override {
    payload.resize(envelope.nbytes);
    into = one_piece(payload.data(), payload.size());
    return true;
  }
  void arrived(std::uint32_t, const Envelope& envelope) override {
    std::memcpy(&last, &envelope, sizeof last);
    if (last.type == data) all.insert(all.end(), payload.begin(), payload.end());
    ++count;
  }
  void lost(std::uint32_t, const std::string&) override {}
};

struct Liar {
  explicit Liar(Group& group) : ring(group.segment(), 0, {1}, listener) {}
  Listener listener;
  RingTransport ring;

  void say(const Raw& frame) {
    const std::vector<std::byte> payload(frame.payload_nbytes);
    Envelope envelope;
    std::memcpy(&envelope, &frame, sizeof envelope);
    ring.post(1, envelope, one_piece(payload.data(), payload.size()), nullptr);
  }
  void hear(int count) {
    while (listener.count < count) ring.poll();
  }
};

enum class Op { recv, send, pieces };

// Rank 1 waits in an op, itself or by the thread in the background, and rank 0 sends `frames`, the last of which
// makes no sense.
void told(Op op, const std::string& what, const std::vector<Raw>& frames, bool is_answered) {
  for (const bool is_async : {false, true})
    run_ranks(2, false, [&](Group& group) {
      if (group.rank() == 0) {
        Liar liar(group);
        if (op != Op::recv) liar.hear(1);  // the offer
        for (std::size_t i = 0; i < frames.size(); ++i) {
          if (i + 1 == frames.size() && is_answered) liar.hear(1);
          liar.say(frames[i]);
        }
        while (!group.is_broken()) liar.ring.poll();
        return;
      }
      PointToPoint messages(group);
      std::vector<float> values(10'000);
      const Region region = region_of(values);
      const std::int64_t until = now_ns() + 20'000'000'000;
      const MessagePointer message =
          op == Op::recv ? messages.recv(region, 0, 0, 3, until, is_async)
          : op == Op::send
              ? messages.send(region, 0, 0, 3, until, is_async)
              : messages.send_device({nullptr, region.nbytes}, 0, 0, 3, until, is_async, {}, {});
      std::string said;
      try {
        messages.wait(message, in_seconds(20), !is_async);
      } catch (const Error& error) {
        CHECK(error.fault() == Fault::broken);
        CHECK(error.peer() == 0);
        said = error.what();
      }
      CHECK(said == "sent a malformed frame (" + what + ") in a send or recv");
      CHECK(message->done());
      CHECK(group.is_broken());
      CHECK(messages.is_idle());
    });
}

void recv_is_reported(const std::string& what, const std::vector<Raw>& frames,
                      bool is_answered = false) {
  told(Op::recv, what, frames, is_answered);
}
void send_is_reported(const std::string& what, const std::vector<Raw>& frames) {
  told(Op::send, what, frames, false);
}

// The counters of a ring are in memory that both ranks can write: one that says more than the ring holds would have
// this rank read, or write, beside it. `is_mine`: of the ring that rank 0 writes.
void counters_are_reported(bool is_send, bool is_mine, std::uint64_t written, std::uint64_t read) {
  for (const bool is_async : {false, true})
    run_ranks(2, false, [&](Group& group) {
      Segment& segment = group.segment();
      auto& header = *reinterpret_cast<ChannelHeader*>(is_mine ? segment.channel(0, 1)
                                                               : segment.channel(1, 0));
      if (group.rank() == 0) {
        header.read = read;
        header.written = written;
        while (!group.is_broken()) ring(segment.rank(1));
        return;
      }
      while (header.read != read || header.written != written) ::usleep(100);
      PointToPoint messages(group);
      std::vector<float> values(200'000);
      const Region region = region_of(values);
      const std::int64_t until = now_ns() + 20'000'000'000;
      const MessagePointer message = is_send ? messages.send(region, 0, 0, 3, until, is_async)
                                             : messages.recv(region, 0, 0, 3, until, is_async);
      std::string said;
      try {
        messages.wait(message, in_seconds(20), !is_async);
      } catch (const Error& error) {
        CHECK(error.peer() == 0);
        said = error.what();
      }
      CHECK(said == "wrote into the counters of the ring between both ranks");
      CHECK(message->done());
      CHECK(messages.is_idle());
    });
}

void test_counters_that_cannot_be() {
  constexpr std::uint64_t much = std::uint64_t{1} << 40;
  for (const bool is_send : {false, true}) {
    counters_are_reported(is_send, true, much, 0);  // more to read than there is room for
    counters_are_reported(is_send, true, 0, 64);    // less than was read
  }
  counters_are_reported(true, false, much, 0);  // less than no room
  counters_are_reported(true, false, 0, much);  // more room than there is
}

void test_frames_of_no_kind() {
  recv_is_reported("it is of no known kind", {{.type = 7}});
  recv_is_reported("it is of no known kind",
                   {{.type = 0x101}});  // a notice, which hosts send each other
  recv_is_reported("words that are too long", {{.payload_nbytes = 500, .type = words}});
}

void test_offers() {
  constexpr std::uint64_t all = 40'000;
  const std::string wrong_device = "an offer from a device that cannot be one";
  recv_is_reported("an offer that brings 100 of 40000 bytes",
                   {{.payload_nbytes = 100, .type = offer, .nbytes = all, .tag = 3}});
  // More than comes with an offer: a receiver would take memory for it.
  recv_is_reported("an offer that brings 200000 of 200000 bytes",
                   {{.payload_nbytes = 200'000, .type = offer, .nbytes = 200'000, .tag = 3}});
  recv_is_reported("an offer of no known kind", {{.type = offer, .status = more, .nbytes = all}});
  recv_is_reported("an offer of no known dtype", {{.type = offer, .nbytes = all, .dtype = 1000}});
  recv_is_reported("an offer with the number of an earlier one",
                   {{.type = offer, .id = 4, .nbytes = all, .tag = 8},
                    {.type = offer, .id = 4, .nbytes = all, .tag = 9}});
  recv_is_reported(wrong_device,
                   {{.payload_nbytes = 600, .type = offer, .status = device, .nbytes = all}});
  recv_is_reported(wrong_device, {{.type = offer, .status = device}});
  recv_is_reported(wrong_device,
                   {{.payload_nbytes = 8, .type = offer, .status = staged, .nbytes = all}});
}

void test_pieces() {
  // From a device, so that it has to be asked for.
  const Raw sound{.type = offer, .status = staged, .nbytes = 40'000, .tag = 3};
  const std::string what = "a piece of a message that was not asked for";
  recv_is_reported(
      what, {sound, {.payload_nbytes = 8, .type = data, .nbytes = 40'000, .address = 8}}, true);
  recv_is_reported(what, {sound, {.payload_nbytes = 8, .type = data, .nbytes = 40'008}}, true);
  recv_is_reported(what, {sound, {.type = data, .nbytes = 40'000}}, true);
  recv_is_reported("a half of a message that was not asked for", {sound, {.type = written}}, true);
  recv_is_reported("a word with a payload", {{.payload_nbytes = 8, .type = written}});
}

void test_answers() {
  const std::string turn = "an answer that comes out of turn";
  send_is_reported(turn, {{.type = answer, .status = more, .tag = 8}});
  send_is_reported(turn, {{.type = answer, .status = push, .nbytes = 8, .tag = 8},
                          {.type = answer, .status = taken}});
  // It would write less than it has, and more than it has.
  send_is_reported(turn, {{.type = answer, .status = halves, .nbytes = 8}});
  send_is_reported(turn, {{.type = answer, .status = halves, .nbytes = 50'000}});
  send_is_reported("an answer with a payload",
                   {{.payload_nbytes = 8, .type = answer, .status = taken}});
  send_is_reported("an answer of no known kind", {{.type = answer, .status = 9}});
  send_is_reported("an answer of no known kind", {{.type = answer, .status = staged}});
  send_is_reported("an answer of no known dtype",
                   {{.type = answer, .status = mismatch, .nbytes = 8, .dtype = 1000}});
  send_is_reported("an answer with room for 7 of 40000 bytes",
                   {{.type = answer, .status = push, .nbytes = 8, .tag = 7}});
  send_is_reported("an answer with room for 8 of 40000 bytes",
                   {{.type = answer, .status = push, .nbytes = 8, .tag = 8},
                    {.type = answer, .status = more, .tag = 8}});
  told(Op::pieces, turn, {{.type = answer, .status = taken}}, false);
}

// The smallest pieces, all at once: few of them are posted at a time, and all arrive if somebody reads.
void test_a_receiver_that_wants_all_at_once() {
  for (const bool reads : {true, false})
    run_ranks(2, false, [&](Group& group) {
      constexpr std::size_t count = 1000;
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
      if (group.rank() == 0) {
        Liar liar(group);
        liar.hear(1);
        liar.say({.type = answer,
                  .status = push,
                  .id = liar.listener.last.id,
                  .nbytes = 1,
                  .tag = 1L << 62});
        if (reads) {
          liar.hear(1 + static_cast<int>(4 * count));
          CHECK(std::memcmp(liar.listener.all.data(), values.data(), 4 * count) == 0);
        }
        while (!reads && !group.is_broken()) ::usleep(1000);
        return;
      }
      PointToPoint messages(group);
      std::vector<float> many(reads ? count : 100'000);
      std::copy(values.begin(), values.end(), many.begin());
      const MessagePointer message = messages.send(region_of(many), 0, 0, 3, no_deadline, false);
      try {
        messages.wait(message, in_seconds(reads ? 20 : 0.3), true);
        CHECK(reads);
      } catch (const Error& error) {
        CHECK(!reads && error.fault() == Fault::timeout);
      }
      CHECK(message->pieces.are_sent.size() <= most_posted_pieces);
      CHECK(message->pieces.posted > most_posted_pieces);  // as much as the ring holds has left
    });
}

}  // namespace

int main() {
  test_frames_of_no_kind();
  test_counters_that_cannot_be();
  test_offers();
  test_pieces();
  test_answers();
  test_a_receiver_that_wants_all_at_once();
  return 0;
}
