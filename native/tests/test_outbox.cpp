// What an Outbox hands to its stream: messages that are followed leave with the next, and all leave whole and
// in order however little the stream takes.
#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "check.hpp"
#include "messages.hpp"
#include "transports.hpp"

using namespace distdbg;

namespace {

// Takes so many bytes of a write at most, of all writes together.
struct Narrow {
  std::size_t most_of_write = ~std::size_t{0};
  std::size_t room = ~std::size_t{0};
  std::size_t writes = 0;
  std::string bytes;
  std::size_t write(const Piece* pieces, std::size_t count) {
    CHECK(count <= most_pieces);
    ++writes;
    std::size_t left = std::min(most_of_write, room);
    const std::size_t before = bytes.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t n = std::min<std::size_t>(left, pieces[i].nbytes);
      bytes.append(reinterpret_cast<const char*>(pieces[i].data), n);
      left -= n;
    }
    room -= bytes.size() - before;
    return bytes.size() - before;
  }
};

struct Arrived {
  std::string_view left;
  std::size_t read(std::byte* into, std::size_t nbytes) {
    const std::size_t n = std::min(nbytes, left.size());
    if (into != nullptr && n > 0) std::memcpy(into, left.data(), n);
    left.remove_prefix(n);
    return n;
  }
};

Payload followed(const std::vector<std::byte>& bytes) {
  Payload payload = one_piece(bytes.data(), bytes.size());
  payload.is_followed = true;
  return payload;
}

std::vector<Keeper::Kept> taken_from(const Narrow& stream, bool with_sums) {
  Keeper keeper;
  Arrived arrived{stream.bytes};
  Inbox<Arrived> inbox(with_sums);
  inbox.read(arrived, 1, keeper);
  return keeper.kept;
}

void test_followed_messages_leave_in_one_write() {
  for (const bool with_sums : {false, true}) {
    Narrow stream;
    Outbox<Narrow> outbox(with_sums);
    const auto first = pattern(100, 1);
    const auto last = pattern(5'000, 2);
    bool are_sent[3] = {false, false, false};
    CHECK(!outbox.post(stream, envelope_of(100, 0), followed(first), &are_sent[0]));
    CHECK(!outbox.post(stream, envelope_of(0, 1), followed({}), &are_sent[1]));
    CHECK(stream.writes == 0 && !are_sent[0] && !are_sent[1]);
    CHECK(outbox.post(stream, envelope_of(5'000, 2), one_piece(last.data(), last.size()),
                      &are_sent[2]));
    CHECK(stream.writes == 1 && outbox.empty() && outbox.sent() == 3);
    CHECK(are_sent[0] && are_sent[1] && are_sent[2]);
    const auto kept = taken_from(stream, with_sums);
    CHECK(kept.size() == 3 && kept[0].bytes == first && kept[1].bytes.empty());
    CHECK(kept[2].bytes == last);
  }
}

void test_a_narrow_stream_gets_all_in_order() {
  for (const bool with_sums : {false, true}) {
    for (const std::size_t most : {std::size_t{1}, std::size_t{63}, std::size_t{64},
                                   std::size_t{65}, std::size_t{1'000}, std::size_t{700'000}}) {
      Narrow stream;
      stream.most_of_write = most;
      stream.room = 0;
      Outbox<Narrow> outbox(with_sums);
      std::vector<std::vector<std::byte>> payloads;
      std::deque<bool> are_sent;
      // More than are written at a time, and some that are summed in several parts.
      for (std::size_t i = 0; i < 21; ++i)
        payloads.push_back(pattern(i == 7 && most > 100 ? 600'000 : i * 13, i));
      for (std::size_t i = 0; i < payloads.size(); ++i) {
        const bool is_last = i + 1 == payloads.size();
        Payload payload = followed(payloads[i]);
        payload.is_followed = i % 5 != 4 && !is_last;
        outbox.post(stream, envelope_of(payloads[i].size(), i), payload,
                    &are_sent.emplace_back(false));
      }
      for (std::size_t round = 0; !outbox.empty(); ++round) {
        stream.room = most;
        CHECK(outbox.flush(stream));
        CHECK(stream.room == 0 || outbox.empty());
        CHECK(std::is_sorted(are_sent.begin(), are_sent.end(), std::greater<bool>()));
      }
      const auto kept = taken_from(stream, with_sums);
      CHECK(kept.size() == payloads.size() && outbox.sent() == payloads.size());
      for (std::size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].bytes == payloads[i]);
    }
  }
}

// Also where what goes before it in the same write leaves only in part.
void test_what_is_copied_may_be_written_again() {
  for (const std::size_t room : {std::size_t{0}, std::size_t{50}, std::size_t{300}}) {
    Narrow stream;
    stream.room = room;
    Outbox<Narrow> outbox;
    const auto before = pattern(100, 1);
    auto copied = pattern(1'000, 2);
    const auto was = copied;
    bool are_sent[2] = {false, false};
    Payload payload = one_piece(copied.data(), copied.size());
    payload.is_copied = true;
    outbox.post(stream, envelope_of(100, 0), followed(before), &are_sent[0]);
    outbox.post(stream, envelope_of(1'000, 1), payload, &are_sent[1]);
    std::fill(copied.begin(), copied.end(), std::byte{0});
    stream.room = ~std::size_t{0};
    CHECK(outbox.flush(stream) && are_sent[0] && are_sent[1]);
    const auto kept = taken_from(stream, false);
    CHECK(kept.size() == 2 && kept[0].bytes == before && kept[1].bytes == was);
  }
}

}  // namespace

int main() {
  test_followed_messages_leave_in_one_write();
  test_a_narrow_stream_gets_all_in_order();
  test_what_is_copied_may_be_written_again();
  return 0;
}
