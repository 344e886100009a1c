// The transport of ranks that share a segment: a ring of bytes for each pair and direction (channel.hpp),
// and a bell for each rank that is asleep.
#pragma once

#include <vector>

#include "channel.hpp"
#include "messages.hpp"
#include "segment.hpp"
#include "transport.hpp"
#include "tuning.hpp"

namespace distdbg {

class RingTransport final : public Transport {
 public:
  // Messages with the ranks `peers`, for `receiver`; all that is referred to outlives this.
  RingTransport(Segment& segment, std::uint32_t rank, std::vector<std::uint32_t> peers,
                Receiver& receiver, const Tuning& tuning = usual_tuning);

  void connect(std::uint32_t peer, const Wait& wait) override;
  void post(std::uint32_t peer, const Envelope& envelope, const Payload& payload,
            bool* is_sent) override;
  bool poll() override;
  void wait(std::int64_t timeout_ns, Look has_work) override;
  void cancel(const std::byte* memory, std::uint64_t nbytes) override;
  void close() override;

  // Whether all that was posted to this rank is in its ring.
  bool has_sent_all(std::uint32_t peer) const { return peers_[peer].outbox.empty(); }

 private:
  class Stream {
   public:
    Stream() = default;
    Stream(Channel channel, const Tuning& tuning) : channel_(channel), tuning_(&tuning) {}
    std::size_t write(const Piece* pieces, std::size_t count);
    std::size_t read(std::byte* into, std::size_t nbytes);
    // Makes room for the writer where something was read.
    void settle();
    // Whether the counters of the ring, which both sides can write, say what cannot be: nothing is moved any more.
    bool is_corrupt() const { return is_corrupt_; }

   private:
    Channel channel_;
    const Tuning* tuning_ = &usual_tuning;
    bool is_long_ = false;
    bool is_corrupt_ = false;
    const std::byte* goes_on_at_ = nullptr;
    std::uint64_t taken_ = 0;  // of what is there, by the reader, who has not said so yet
  };
  struct Peer {
    Stream out;
    Stream in;
    Outbox<Stream> outbox;
    Inbox<Stream> inbox;
    bool is_lost = false;  // and the receiver knows
  };

  // While the receiver takes what came from a peer: the answers it posts need no bell of their own.
  struct Polled {
    Polled(RingTransport& of, std::uint32_t peer) : transport(of) {
      transport.polled_ = static_cast<int>(peer);
      transport.is_polled_to_ring_ = false;
    }
    ~Polled() { transport.polled_ = -1; }
    RingTransport& transport;
  };

  Segment& segment_;
  const std::uint32_t rank_;
  const std::vector<std::uint32_t> ranks_;
  Receiver& receiver_;
  std::vector<Peer> peers_;  // by rank
  int polled_ = -1;
  bool is_polled_to_ring_ = false;
};

}  // namespace distdbg
