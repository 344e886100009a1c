// The transport of ranks that UCX connects: InfiniBand, RoCE, shared memory, whatever it finds.
//
// Messages go by streams of UCX (ucx_stream.hpp). Beside them each two ranks that exchange some have a
// connection of TCP: it proves who the peer is, and says when it leaves, dies or falls silent. On it goes:
//
//   END   how it ended: all that was written has arrived (0), or it was cut (1)
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "messages.hpp"
#include "tcp_transport.hpp"
#include "ucx_engine.hpp"
#include "ucx_stream.hpp"

namespace distdbg {

class UcxTransport final : public Transport, private Receiver {
 public:
  // By rank, its worker, if this transport is to reach it.
  struct Worker {
    std::string address;
    bool is_here = false;  // on this host
  };
  UcxTransport(TcpHub& hub, const TcpPlace& place, std::vector<Worker> workers,
               std::shared_ptr<UcxEngine> engine, Receiver& receiver);
  ~UcxTransport() override;
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  // Blocks as a transport of TCP does.
  void connect(std::uint32_t peer, const Wait& wait) override;
  void post(std::uint32_t peer, const Envelope& envelope, const Payload& payload,
            bool* is_sent) override;
  bool poll() override;
  void wait(std::int64_t timeout_ns, Look has_work) override;
  bool wake() override { return tcp_->wake(); }
  void cancel(const std::byte* memory, std::uint64_t nbytes) override;
  // Blocks until what has left is at the peers, `close_limit_ns` at most.
  void close() override;

 private:
  struct Peer {
    UcxStream stream;
    Outbox<UcxStream> outbox;
    Inbox<UcxStream> inbox;
    bool is_known = false;    // in `known_`
    bool is_cut = false;      // nothing more is written
    bool is_corrupt = false;  // what it sends cannot be trusted
    bool has_left = false;    // and has said all
    std::string lost;         // why; '' while it is not
    std::string ended;        // why it will be lost, at `lost_ns`
    std::int64_t lost_ns = 0;
  };

  bool is_ours() const;
  Peer& know(std::uint32_t rank);
  bool open(std::uint32_t rank, Peer& peer);
  bool take_news();
  bool move(std::uint32_t rank, Peer& peer);
  void end(Peer& peer, std::string why, std::int64_t grace_ns);
  void cut(std::uint32_t rank, Peer& peer);
  void look_for_failures();
  bool lose_if_ended(std::uint32_t rank, Peer& peer);
  void flush();
  // Of the connections.
  bool place(std::uint32_t peer, const Envelope& envelope, Payload& into) override;
  void arrived(std::uint32_t peer, const Envelope& envelope) override;
  void lost(std::uint32_t peer, const std::string& why) override;

  const TcpWay own_;  // to this rank
  const std::vector<Worker> workers_;
  const std::shared_ptr<UcxEngine> engine_;
  const std::shared_ptr<UcxMailbox> mailbox_;
  Receiver& receiver_;
  const std::uint32_t generation_;
  std::vector<Peer> peers_;           // by rank
  std::vector<std::uint32_t> known_;  // peers that something was exchanged with, and are not lost
  std::vector<UcxNews> news_;
  std::vector<UcxPart> read_;
  bool is_closed_ = false;
  std::uint64_t failures_ = 0;
  std::int64_t next_tcp_ns_ = 0;
  std::unique_ptr<TcpTransport> tcp_;  // the last member: it tells this
};

}  // namespace distdbg
