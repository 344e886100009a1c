// Point to point ops of one group: matching by (source, tag) in order, and the transfer.
//
// A send is complete when its receiver has taken the data (as in gloo), so a pair of ranks that both
// send first is a deadlock that can be seen, whatever the size. Only an isend to oneself is buffered.
//
// Frames, each the envelope of a message (transport.hpp; all integers little endian, 64 bytes):
//
//   offset 0  payload_nbytes u64 | type u32 | status u32 | id u64 | nbytes u64 | address u64 | tag i64
//          48 dtype i32 | level u32 | 0 u64, then the payload
//
//   OFFER   sender -> receiver: id, nbytes, dtype, tag, address; payload: the data when it is short;
//           status push when the sender waits in the op and could push at once, halves when it could write a half
//           to where it goes (p2p_halves.cpp); status device when the array
//           is on a GPU: address 0, and the payload is a description of it, never data; status staged when it
//           is on a GPU and can only be sent as frames: address 0, no payload
//   ANSWER  receiver -> sender: id and status: taken, push (send the data as frames), more (of it), halves (write
//           the last nbytes to this address; taken follows), or mismatch
//           (then nbytes and dtype are what the receiver wanted; payload: where it was called). To an
//           offer from a device: address 1 when the receiver cannot open the sender's memory, and with
//           taken, tag: for how many ns the device copied. With push, nbytes: the bytes of a piece, 0 for all
//           at once or in pieces of any size; then, and with more, tag: so many bytes in all may be sent
//   DATA    sender -> receiver: id, nbytes of all, address: where in them the payload begins; in order, after an
//           answer "push"
//   WRITTEN sender -> receiver: id; after an answer "halves"
//   WORDS   sender -> receiver: id; payload: where the send was called, after an answer "mismatch"
//   CAUSE, LEAVE   between hosts, see notices.hpp
//
// Example: a send of 8 bytes with tag 3 is one OFFER of 64 + 8 bytes and one ANSWER of 64.
//
// A message whose array is on a GPU has no memory of the host until somebody gives it some (p2p_device.cpp): a few
// places, through which it goes in pieces (p2p_pieces.cpp). What native code cannot do for it, it wants: whoever
// waits for the message does that, or takes it from `next_wanted`.
//
// Every thread that waits moves all messages of the group on (`progress`), under one mutex; when
// asynchronous ops are unfinished a thread of our own does it too, asleep on this rank's bell.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bell_bridge.hpp"
#include "buffer_guard.hpp"
#include "group.hpp"
#include "op.hpp"
#include "ring_transport.hpp"

namespace distdbg {

constexpr int any_source = -1;

// What a message with an array on a GPU wants from Python.
enum class Want : int {
  nothing,
  take,    // of a recv: copy from the memory that `description` says, then say so by `took`
  memory,  // of a recv: places in host memory, since what was sent is data
  data,    // of a send: the same, since its receiver does not take it from the device
  pieces,  // `move_pieces`: some have come, or have left
};

// Of a message that is sent as frames: how far it is. Where its array is on a GPU the piece that begins at byte
// k * piece_nbytes goes through place k % places. In bytes; protected by the owner's lock.
struct Pieces {
  std::uint64_t piece_nbytes = 0;  // 0: not known yet, of any size
  Region places{};                 // of an array on a GPU, in host memory
  std::uint64_t moved = 0;         // have come, or have left
  std::uint64_t served = 0;        // were copied to the array, or from it into places
  std::uint64_t posted = 0;        // of a send: are on their way, or have left
  std::uint64_t allowed = 0;       // of a send: may be posted; of a recv: the sender was told so
  std::uint64_t id = 0;            // of the send
  bool is_answered = false;        // of a send
  bool is_halved = false;          // each side copies a half
  bool is_exposed = false;         // of a recv: the sender was told where it goes
  std::list<bool> are_sent = {};   // of each piece on its way
};

struct Message : Op {
  bool is_async = false;
  bool is_on_device = false;  // its array is on a GPU, and so it may want something
  bool is_refused = false;    // the receiver cannot open the sender's memory
  std::atomic<Want> want{Want::nothing};
  std::vector<std::byte> description;  // of the sender's memory, opaque here
  Pieces pieces;
  int peer = any_source;
  std::int64_t tag = 0;
  std::int32_t dtype = -1;
  Region region{};
  std::vector<std::byte> note;  // the memory of `region` where nobody else has it
  BufferGuard guard;            // of an asynchronous send
  std::string peer_words;       // after a mismatch: where the other side was called; may stay empty
  std::string seen;             // after a timeout: what the other side offers instead
  // After a timeout, of what goes in pieces or is taken from a device: how far it was.
  bool has_pieces = false;
  bool is_device_late = false;    // this rank's own: it had something to copy
  std::uint64_t copied_then = 0;  // by the device
  std::uint64_t moved_then = 0;   // have come, or have left

  // Where it was called, as the other side shall show it.
  std::string words() const;
  // What a note says; empty: it has not come yet.
  std::string_view note_words() const;
  // Whether nothing of it has to come or to leave any more; protected by the owner's lock.
  bool has_moved() const { return region.nbytes > 0 && pieces.moved == region.nbytes; }
  // Whether its own thread has something to do: it has ended, or wants something.
  bool is_up() const {
    return done() || (!is_async && want.load(std::memory_order_acquire) != Want::nothing);
  }
};

// What the record says of a send or recv; without a form it is not recorded.
struct MessageCall {
  Form* form = nullptr;
  std::uint64_t group = 0;
  std::int64_t issued_ns = 0;
  std::uint32_t site = 0;
};

using MessagePointer = std::shared_ptr<Message>;

MessagePointer start_message(Region region, int dtype, int peer, std::int64_t tag,
                             std::int64_t deadline_ns, bool is_async);

class PointToPoint : private Receiver {
 public:
  explicit PointToPoint(Group& group);
  ~PointToPoint();

  // `call`: what the record says of it. Start an op; the memory of `region` must live until it is done. `is_async`: it must progress
  // though nobody waits.
  MessagePointer send(Region region, int dtype, int peer, std::int64_t tag,
                      std::int64_t deadline_ns, bool is_async, const MessageCall& call = {});
  // A short note beside a message of somebody else's: it moves on when this rank waits for one, or posts the
  // next, so that no thread has to wake up for each. Its memory is the message's own; both sides say how long it
  // is, and what is shorter ends in zeros.
  MessagePointer send_note(std::span<const std::byte> words, std::uint64_t nbytes, int peer,
                           std::int64_t tag);
  MessagePointer recv_note(std::uint64_t nbytes, int peer, std::int64_t tag);
  // Whether every send has been received.
  bool are_sends_received();
  MessagePointer recv(Region region, int dtype, int peer, std::int64_t tag,
                      std::int64_t deadline_ns, bool is_async, const MessageCall& call = {});
  // The same of arrays on a GPU; the memory of `region` is nullptr. A send without a description is staged. The
  // wait for a blocking one returns when it wants something, too.
  MessagePointer send_device(Region region, int dtype, int peer, std::int64_t tag,
                             std::int64_t deadline_ns, bool is_async, const MessageCall& call,
                             std::vector<std::byte> description);
  MessagePointer recv_device(Region region, int dtype, int peer, std::int64_t tag,
                             std::int64_t deadline_ns, bool is_async, const MessageCall& call);
  // An asynchronous message that wants something, or has ended; nullptr: none, for so long or since `wake_wanted`.
  MessagePointer next_wanted(std::int64_t timeout_ns);
  void wake_wanted();
  // What was wanted, for a message that has not failed meanwhile: the copy is done, `ran_ns` by the device's clock
  // (-1: not known), or places of `piece_nbytes` each, which must live until the message is done. `cannot_open`: of
  // the sender's memory.
  void took(const MessagePointer& message, std::int64_t ran_ns);
  void give(const MessagePointer& message, Region places, std::uint64_t piece_nbytes,
            bool cannot_open);
  // So many bytes were copied from the places of a recv, or into those of a send; the same place is not touched
  // again before its piece has left, or is copied. Returns how many have come, or left.
  std::uint64_t move_pieces(const MessagePointer& message, std::uint64_t served);
  // While its own thread serves it: throws what ends the message. `wait`: as for wait().
  void look(const MessagePointer& message, const Wait& wait);
  // How many messages there were to this peer, or from it; `any_source`: that any rank might send.
  std::uint64_t count(bool is_send, int peer);
  // Whether a send to this rank itself would find its recv posted, or a recv its send.
  bool meets_itself(bool is_send, std::int64_t tag);
  // Blocks until done and throws its error. A timeout of the op itself breaks the group; one of
  // `wait` alone (Work.wait(timeout)) leaves the op going, and so does Ctrl-C there.
  void wait(const MessagePointer& message, const Wait& wait, bool breaks);
  bool is_done(const MessagePointer& message);
  bool is_idle();
  // This rank has left the group: nobody touches the memory of a message any more, and next_wanted() returns at
  // once, also in threads that are in it and so keep this alive.
  void abandon();

 private:
  enum class FrameType : std::uint32_t { offer, answer, data, words, written };
  enum class Status : std::uint32_t { taken, push, mismatch, device, staged, more, halves };
  struct Frame {
    std::uint64_t payload_nbytes;
    FrameType type;
    Status status;
    std::uint64_t id;
    std::uint64_t nbytes;
    std::uint64_t address;
    std::int64_t tag;
    std::int32_t dtype;
    std::uint32_t level;  // of the sender of an offer; see checks.hpp
    std::uint64_t padding;
  };
  static_assert(sizeof(Frame) == sizeof(Envelope));

  struct Offer {  // came before its recv
    Frame frame;
    std::vector<std::byte> payload;
    std::uint64_t arrival;
    std::string words = {};        // where a send of this rank to itself was called
    bool is_whole = true;          // its payload has come
    MessagePointer taken_by = {};  // the recv that waits for the rest of it
  };
  struct Peer {
    std::uint64_t sent = 0;  // how many sends to it, and recvs from it, were started
    std::uint64_t received = 0;
    std::list<Offer> unexpected;
    std::list<Offer>::iterator arriving;  // the last of `unexpected`, while it is not whole
    MessagePointer matched;               // of the offer that arrives
    MessagePointer landing;               // of the piece that arrives
    std::uint64_t next_offer = 0;         // offers are numbered in order
    bool is_malformed = false;            // what it sends makes no sense: nothing more is read
    bool is_direct = false;               // its payload goes to where the recv wants it
    std::vector<std::byte> payload;       // of what arrives, where it is for nothing else
    std::map<std::uint64_t, MessagePointer> sends;      // by id, offered and not yet ended
    std::map<std::uint64_t, MessagePointer> receiving;  // by the sender's id, sent as frames
    std::map<MessagePointer, Offer> held;               // of recvs that Python serves
    // Recvs that got something else, by the sender's id, until it has said where it was called, or until
    // that time.
    std::map<std::uint64_t, std::pair<MessagePointer, std::int64_t>> disputed;
  };

  // Of a frame that no rank of ours sends; caught by place() and arrived().
  struct Malformed {
    std::string what;
  };

  MessagePointer post_send(const MessagePointer& message, bool is_note, const MessageCall& call);
  MessagePointer post_recv(const MessagePointer& message, bool is_note, const MessageCall& call);
  // Of an offer: whether its payload is the array.
  static bool carries_data(const Frame& offer) {
    return !is_of_device(offer) && offer.payload_nbytes == offer.nbytes;
  }
  static bool is_of_device(const Frame& offer) {
    return offer.status == Status::device || offer.status == Status::staged;
  }
  bool can_read(const Message& recv, std::uint32_t peer, const Frame& offer) const;
  void read(std::uint32_t peer, const Frame& offer, std::byte* into, std::uint64_t begin,
            std::uint64_t nbytes);
  bool can_halve(const Message& send, std::uint32_t to) const;
  bool is_worth_halving(std::uint32_t peer, const Frame& offer) const;
  void take_half(const MessagePointer& recv, std::uint32_t peer, const Frame& offer);
  void write_half(const MessagePointer& send, std::uint32_t peer, const Frame& answer);
  void take_back(Message& message);
  void on_written(std::uint32_t peer, const Frame& frame);
  void hold(const MessagePointer& recv, std::uint32_t peer, const Frame& offer,
            const std::byte* payload);
  void on_push(const MessagePointer& message, const Frame& answer);
  void push(const MessagePointer& message);
  bool has_left(const MessagePointer& message);
  void ask_for_push(const MessagePointer& recv, std::uint32_t peer, const Frame& offer);
  void ask_for_more(const MessagePointer& recv);
  void fill(const MessagePointer& recv);
  static std::byte* place_of(const Message& message, std::uint64_t begin);
  std::byte* place_data(std::uint32_t peer, const Frame& frame);
  void let_go(const Message& message);
  void set_want(const MessagePointer& message, Want want);
  void take_in(const MessagePointer& recv, std::uint32_t peer, const Frame& offer,
               const std::byte* payload);
  void give_up(const MessagePointer& message, const std::exception& error, bool breaks);
  void note_timeout(Message& message) const;
  void break_by_timeout(const Message& message);
  Payload place_frame(std::uint32_t peer, const Envelope& envelope);
  void refuse(std::uint32_t peer, const Malformed& found);
  void check_offer(std::uint32_t peer, const Frame& offer);
  static void check_answer(const Message& send, const Frame& answer);
  void record(Message& message, std::uint64_t& count, const MessageCall& call);
  bool progress();  // with mutex_ held; true when anything moved
  bool place(std::uint32_t peer, const Envelope& envelope, Payload& into) override;
  void arrived(std::uint32_t peer, const Envelope& envelope) override;
  void lost(std::uint32_t peer, const std::string& why) override;
  void corrupted(std::uint32_t peer, const std::string& link) override;
  void post(std::uint32_t peer, const Frame& frame, const void* payload, bool* is_sent = nullptr);
  bool fits(const Message& recv, const Frame& offer) const;
  std::byte* place_offer(std::uint32_t peer, const Frame& frame);
  void on_offer(std::uint32_t peer, const Frame& frame);
  void on_answer(std::uint32_t peer, const Frame& frame);
  void on_data(std::uint32_t peer, const Frame& frame);
  void on_words(std::uint32_t peer, const Frame& frame);
  void dispute(const MessagePointer& recv, std::uint32_t peer, const Frame& offer,
               const std::string& own_words);
  void end_disputes();
  std::string offers_of(const Message& recv) const;
  void deliver(const MessagePointer& recv, std::uint32_t peer, const Frame& offer,
               const std::byte* payload, const std::string& own_words);
  void complete(const MessagePointer& message, std::exception_ptr error = nullptr);
  void refuse_nonfinite(Region region, int dtype) const;
  void end(const MessagePointer& message, std::exception_ptr error);
  void forget(const MessagePointer& message);
  void fail_all(std::exception_ptr error);
  Transport& way_to(std::uint32_t peer) {
    return group_.is_here(peer) ? static_cast<Transport&>(ring_) : *net_;
  }
  void connect(std::uint32_t peer, const Wait& wait);
  void watch(const Message& message, const Wait& wait, std::int64_t& next_death_check_ns);
  std::uint64_t most_inline(std::uint32_t to) const;
  void sleep(const Message* message, std::int64_t timeout_ns);
  void look_after(const std::vector<MessagePointer>& unfinished, std::int64_t next_check);
  bool has_bridge();
  void start_thread();
  void work();

  Group& group_;
  std::recursive_mutex mutex_;  // protects everything below
  std::condition_variable_any async_started_;
  std::vector<Peer> peers_;
  RingTransport ring_;                   // with ranks of this host
  Notices notices_;                      // with all others, as is
  std::unique_ptr<Transport> net_;       // this; nullptr: there are none
  std::unique_ptr<BellBridge> bridge_;   // from the bell of this host to `net_`, once it is needed
  std::vector<MessagePointer> pushing_;  // sends that go as frames
  std::list<MessagePointer> posted_;     // recvs without a message, in order
  std::uint64_t received_from_any_ = 0;
  std::size_t disputes_ = 0;  // of all peers
  std::uint64_t next_id_ = 0;
  std::uint64_t arrivals_ = 0;
  std::uint64_t inline_nbytes_;
  std::uint64_t blocking_inline_nbytes_;  // of sends that wait
  std::vector<MessagePointer> unfinished_async_;
  std::list<MessagePointer> wanted_;  // asynchronous messages that want something
  std::condition_variable_any has_wanted_;
  bool is_stopping_ = false;
  bool is_abandoned_ = false;
  std::thread thread_;
};

}  // namespace distdbg
