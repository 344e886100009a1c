// Messages whose arrays are on a GPU: what native code holds for them until Python has served it. See
// docs/decisions/0042-a-message-that-is-taken-from-the-device.md.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "p2p.hpp"
#include "p2p_limits.hpp"

namespace distdbg {

MessagePointer PointToPoint::send_device(Region region, int dtype, int peer, std::int64_t tag,
                                         std::int64_t deadline_ns, bool is_async,
                                         const MessageCall& call,
                                         std::vector<std::byte> description) {
  const auto to = static_cast<std::uint32_t>(peer);
  const bool is_staged = description.empty();
  if (to >= group_.size() || to == group_.rank() || (!is_staged && !group_.is_here(to)))
    throw Error(Fault::usage, "no rank that could take it from the device");
  if (description.size() > description_nbytes || region.nbytes == 0)
    throw Error(Fault::usage, "a description of memory has another size");
  auto message = start_message(region, dtype, peer, tag, deadline_ns, is_async);
  message->is_on_device = true;
  message->description = std::move(description);
  connect(to, group_.wait_until(deadline_ns));
  const std::lock_guard lock(mutex_);
  group_.check_usable();
  record(*message, peers_[to].sent, call);
  Frame frame{};
  frame.type = FrameType::offer;
  frame.status = is_staged ? Status::staged : Status::device;
  frame.id = next_id_++;
  frame.nbytes = region.nbytes;
  frame.tag = tag;
  frame.dtype = dtype;
  frame.level = group_.level();
  frame.payload_nbytes = message->description.size();
  peers_[to].sends.emplace(frame.id, message);
  post(to, frame, message->description.data());
  if (is_async) {
    unfinished_async_.push_back(message);
    start_thread();
  }
  return message;
}

MessagePointer PointToPoint::recv_device(Region region, int dtype, int peer, std::int64_t tag,
                                         std::int64_t deadline_ns, bool is_async,
                                         const MessageCall& call) {
  auto message = start_message(region, dtype, peer, tag, deadline_ns, is_async);
  message->is_on_device = true;
  return post_recv(message, false, call);
}

// A recv has met what fits it; its own memory is not there yet.
void PointToPoint::hold(const MessagePointer& recv, std::uint32_t peer, const Frame& offer,
                        const std::byte* payload) {
  // What a rank sends to itself is there whole, whatever the frame says.
  const std::uint64_t nbytes = peer == group_.rank() ? offer.nbytes : offer.payload_nbytes;
  Offer held{offer, {}, 0};
  if (nbytes > 0) held.payload.assign(payload, payload + nbytes);
  const bool is_taken = offer.status == Status::device;
  if (is_taken) recv->description = held.payload;
  peers_[peer].held.emplace(recv, std::move(held));
  set_want(recv, is_taken ? Want::take : Want::memory);
}

void PointToPoint::set_want(const MessagePointer& message, Want want) {
  message->want.store(want, std::memory_order_release);
  if (message->is_async) {
    wanted_.push_back(message);
    has_wanted_.notify_one();
  }
  ring_locked(group_.segment().rank(group_.rank()));  // its thread may sleep
}

// Asynchronous ones come to next_wanted once more, so that whoever serves them lets go of them.
void PointToPoint::end(const MessagePointer& message, std::exception_ptr error) {
  message->finish(std::move(error));
  if (!message->is_async || !message->is_on_device) return;
  wanted_.push_back(message);
  has_wanted_.notify_one();
}

MessagePointer PointToPoint::next_wanted(std::int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  if (wanted_.empty() && timeout_ns > 0 && !is_stopping_ && !is_abandoned_)
    has_wanted_.wait_for(lock, std::chrono::nanoseconds(timeout_ns));
  if (wanted_.empty()) return nullptr;
  MessagePointer first = wanted_.front();
  wanted_.pop_front();
  return first;
}

void PointToPoint::wake_wanted() {
  const std::lock_guard lock(mutex_);
  has_wanted_.notify_all();
}

void PointToPoint::took(const MessagePointer& message, std::int64_t ran_ns) {
  const std::lock_guard lock(mutex_);
  if (message->done()) return;  // it has failed meanwhile
  const auto peer = static_cast<std::uint32_t>(message->source);
  if (message->want != Want::take || peer >= group_.size())
    throw Error(Fault::usage, "the message was not to be taken");
  // A sender that gave up breaks the group before its array is its own again: what was copied may not be
  // what it meant to send.
  if (group_.is_broken()) group_.throw_cause(true);
  auto held = peers_[peer].held.extract(message);
  message->want = Want::nothing;
  message->ran_ns = ran_ns;
  Frame answer{};
  answer.type = FrameType::answer;
  answer.id = held.mapped().frame.id;
  answer.status = Status::taken;
  answer.tag = ran_ns;
  post(peer, answer, nullptr);
  complete(message);
}

void PointToPoint::look(const MessagePointer& message, const Wait& wait) {
  if (message->done()) return message->rethrow();
  std::int64_t now = 0;  // whether the peer is alive is asked at once
  try {
    watch(*message, wait, now);
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    if (message->done() && error.fault() == Fault::timeout) return message->rethrow();
    give_up(message, error, true);
    throw;
  }
}

}  // namespace distdbg
