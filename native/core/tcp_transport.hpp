// The transport of ranks of different hosts: TCP connections that tcp_hub.hpp lets in, or tcp_dial.hpp makes.
//
// The caller's thread moves the data, in post() and poll(). A peer is reached by one connection, or by two
// when both sides dialled at once: each side then sends by the one that it had first, and reads from both.
// So the messages of one peer stay in order without numbers. Large ones may use lanes beside it (tcp_lanes.hpp).
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "messages.hpp"
#include "tcp_desk.hpp"
#include "tcp_hub.hpp"
#include "tcp_lanes.hpp"
#include "tcp_stream.hpp"
#include "transport.hpp"

namespace distdbg {

class TcpTransport final : public Transport {
 public:
  TcpTransport(TcpPlace place, std::string token, std::shared_ptr<TcpDesk> desk,
               std::shared_ptr<TcpRelay> relay, Receiver& receiver);
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  // Blocks until the peer's hub has answered; Error(network) as dial_tcp says, or when the peer is lost.
  void connect(std::uint32_t peer, const Wait& wait) override;
  // To a peer that is lost, or whose way a cancel() has cut, nothing leaves.
  void post(std::uint32_t peer, const Envelope& envelope, const Payload& payload,
            bool* is_sent) override;
  // A lost peer is told once all that it has sent is taken.
  bool poll() override;
  bool poll_peer(std::uint32_t peer) override;
  void wait(std::int64_t timeout_ns, Look has_work) override;
  bool wake() override {
    arrivals_->bell().ring();
    return true;
  }
  // The same, but for the thread whose `has_work` is being asked.
  void wake_others();
  // Before any wait(): ends it also when that descriptor becomes readable, which it does not own.
  void watch_also(int fd);
  void cancel(const std::byte* memory, std::uint64_t nbytes) override;
  // What was not handed to the kernel is lost; what was still arrives.
  void close() override;

 private:
  struct Link {
    Link(TcpLine made, bool with_sums)
        : line(std::move(made)), stream(line.fd.get()), inbox(with_sums) {}
    int fd() const { return line.fd.get(); }
    LinkProgress progress() const {
      return line.relayed ? line.relayed->progress() : link_progress(fd());
    }
    // Dialled when the peer's transport had closed.
    bool is_late() const { return inbox.has_ended() && inbox.last() == had_closed_before; }
    std::string why() const;
    // Its two ends, where what came was sent first.
    std::string ends() const;
    TcpLine line;
    TcpStream stream;
    Inbox<TcpStream> inbox;
    bool is_blocked = false;  // its next message has no place yet
    bool is_corrupt = false;  // what comes is not what was sent: it is thrown away
    short watched = 0;        // the events that wait() looks for
  };
  // One more connection, looked at only while a large message is on its way.
  struct Lane {
    Lane(TcpLine made, bool with_sums, bool outgoing)
        : link(std::move(made), with_sums), outbox(with_sums), is_outgoing(outgoing) {}
    Link link;
    Outbox<TcpStream> outbox;
    const bool is_outgoing;
    std::uint64_t done = 0;  // number of the message whose share it has brought last
  };
  struct Peer {
    std::vector<std::unique_ptr<Link>> links;  // at most two; the first is the one to send by
    const Link* spoke_by = nullptr;  // what came last came there; all that follows will too
    std::vector<std::unique_ptr<Lane>> lanes;  // in both directions
    Outbox<TcpStream> outbox;
    std::list<SplitMessage> splits;  // that leave
    JointMessage joint;              // that comes
    bool wants_lanes = false;
    bool has_tried_lanes = false;
    std::string lost;           // why; '' while it is not
    std::int64_t ended_ns = 0;  // when the first of its links ended, or something moved after that
  };

  bool is_ours() const;
  std::uint32_t options() const { return place_.has_sums ? messages_have_sums : 0; }
  bool read(std::uint32_t rank, Link& link, Receiver& into);
  bool adopt();
  void add(std::uint32_t peer, TcpLine line);
  void add_lane(std::uint32_t peer, TcpLine line, bool is_outgoing);
  void set_options(const TcpLine& line) const;
  void dial_lanes(std::uint32_t peer, const Wait& wait);
  bool post_in_shares(Peer& peer, const Envelope& envelope, const Payload& payload, bool* is_sent);
  static void note_sent(Peer& peer);
  static bool cancel_unsent(Peer& peer, const std::byte* memory);
  static bool is_active(const Peer& peer, const Lane& lane) {
    return lane.is_outgoing ? !lane.outbox.empty() : peer.joint.is_open();
  }
  // Of all its connections that may move something.
  template <class Function>
  static void for_each_active(const Peer& peer, const Function& function) {
    for (const auto& link : peer.links) function(*link);
    for (const auto& lane : peer.lanes)
      if (is_active(peer, *lane)) function(lane->link);
  }
  enum class Reads { all_links, where_it_spoke };
  bool move(std::uint32_t rank, Peer& peer, Reads reads = Reads::all_links);
  bool move_all(std::uint32_t rank, Peer& peer, Reads reads);
  std::vector<std::uint32_t> ready_ranks();
  bool has_unsent() const;
  void look_for_silence();
  static bool has_left_by(const Peer& peer, const Link& said);
  bool lose_if_ended(std::uint32_t rank, Peer& peer);
  void update_watch();
  TcpWay way_from(std::uint32_t from, std::uint32_t to) const {
    return {place_.cookie, place_.kind, from, to, options()};
  }

  const TcpPlace place_;
  const std::string token_;
  const std::shared_ptr<TcpDesk> desk_;
  const std::shared_ptr<TcpRelay> relay_;
  const std::shared_ptr<TcpArrivals> arrivals_;
  Receiver& receiver_;
  const std::uint32_t generation_;
  std::vector<Peer> peers_;            // by rank
  std::vector<std::uint32_t> linked_;  // peers with links
  bool is_closed_ = false;
  bool is_watch_stale_ = false;
  std::int64_t next_silence_check_ns_ = 0;

  std::mutex watch_mutex_;       // guards `watched_`
  std::vector<pollfd> watched_;  // the first is the bell, then what is watched also
  std::size_t always_watched_ = 1;
};

}  // namespace distdbg
