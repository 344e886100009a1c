// How the ranks of a group exchange messages: six verbs that every transport has, and what it asks of its
// owner. native/tests/transports.hpp is what each of them has to pass.
//
//   connect   make the way to a peer, before anything is posted to it
//   post      begin to send a message: an envelope of 64 bytes, then a payload
//   poll      move what can be moved now; never blocks
//   wait      sleep until poll() may move something
//   cancel    let go of the memory of a message in flight
//   close     end all ways; what is in flight is lost
//
// Messages of one peer arrive whole and in the order they were posted. Its owner calls all but `wait` under
// one lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "wait.hpp"

namespace distdbg {

// The first field of every owner's frame is what the transport itself needs; the rest it only carries.
struct Envelope {
  std::uint64_t nbytes;  // of the payload
  std::array<std::uint64_t, 7> words;
};
static_assert(sizeof(Envelope) == 64);

struct Piece {
  std::byte* data;  // nullptr where something is to be received: it is thrown away
  std::uint64_t nbytes;
};

// A payload, in one part or two.
struct Payload {
  std::array<Piece, 2> pieces{};
  // Another message to the same peer is posted at once: this one may wait for it, so that both leave together.
  bool is_followed = false;
  // What cannot leave at once is copied: its memory may be written again when post() has returned.
  bool is_copied = false;
  std::uint64_t nbytes() const { return pieces[0].nbytes + pieces[1].nbytes; }
};

inline Payload one_piece(const std::byte* data, std::uint64_t nbytes) {
  return {{{{const_cast<std::byte*>(data), nbytes}, {nullptr, 0}}}};
}

// What the owner of a transport does with what arrives; called by poll() only.
class Receiver {
 public:
  // A message has come: says where its payload goes, `envelope.nbytes` in all. False: not now; nothing
  // more is read from this peer, and the next poll() asks again.
  virtual bool place(std::uint32_t peer, const Envelope& envelope, Payload& into) = 0;
  // All of its payload is there.
  virtual void arrived(std::uint32_t peer, const Envelope& envelope) = 0;
  // The way to a peer has ended, without close().
  virtual void lost(std::uint32_t peer, const std::string& why) = 0;
  // What came from a peer is not what it sent; `link` says between which addresses. Nothing more is taken
  // from there, and what was taken is as it was sent.
  virtual void corrupted(std::uint32_t peer, const std::string& link) { lost(peer, link); }

 protected:
  ~Receiver() = default;
};

// Refers to a function that outlives the call it is given to.
class Look {
 public:
  template <class Function>
  Look(const Function& function)  // NOLINT: converts on purpose
      : context_(&function), call_([](const void* context) -> bool {
          return (*static_cast<const Function*>(context))();
        }) {}
  bool operator()() const { return call_(context_); }

 private:
  const void* context_;
  bool (*call_)(const void*);
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual void connect(std::uint32_t peer, const Wait& wait) = 0;
  // The payload's memory must last until `*is_sent` is set; without `is_sent` what cannot leave at once is
  // copied.
  virtual void post(std::uint32_t peer, const Envelope& envelope, const Payload& payload,
                    bool* is_sent) = 0;
  // True when anything has moved.
  virtual bool poll() = 0;
  // Part of `poll`, where only what one peer sends is waited for: the others are looked at now and then.
  virtual bool poll_peer(std::uint32_t) { return poll(); }
  // `has_work` is asked once this rank is known to sleep: what comes later wakes it.
  virtual void wait(std::int64_t timeout_ns, Look has_work) = 0;
  // From here on nobody reads or writes that memory. A way that was in the middle of it is of no more use.
  virtual void cancel(const std::byte* memory, std::uint64_t nbytes) = 0;
  virtual void close() = 0;
  // Part of `wait`, and may be called by any thread: ends it for all. False where nothing but the transport
  // itself can end it.
  virtual bool wake() { return false; }
};

}  // namespace distdbg
