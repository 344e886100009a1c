// What a rank of another host has sent is received, whatever it does afterwards: the end of one of its
// connections may be heard while another still carries what it sent before.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hosts.hpp"

using namespace distdbg;

namespace {

// A connection that brings nothing from the moment it is held, until its group has looked again and again at a
// peer that it knows to be gone.
struct Hold {
  std::atomic<bool> is_on{false};
  std::atomic<const Group*> group{nullptr};
  std::atomic<int> looks{0};
  bool lets_through(std::uint32_t peer) {
    const Group* const of = group.load();
    if (!is_on || of == nullptr) return true;
    return of->facts(peer).left && ++looks > 50;
  }
};

class Held final : public Transport {
 public:
  Held(std::unique_ptr<Transport> inner, Hold& hold) : inner_(std::move(inner)), hold_(hold) {}
  void connect(std::uint32_t peer, const Wait& wait) override { inner_->connect(peer, wait); }
  // This side's answer is what its peer waits for: from then on nothing comes.
  void post(std::uint32_t peer, const Envelope& envelope, const Payload& payload,
            bool* is_sent) override {
    inner_->post(peer, envelope, payload, is_sent);
    hold_.is_on = true;
  }
  bool poll() override { return hold_.lets_through(0) && inner_->poll(); }
  void wait(std::int64_t timeout_ns, Look has_work) override {
    // Briefly: what is held would be seen to have come.
    inner_->wait(std::min<std::int64_t>(timeout_ns, 1'000'000), has_work);
  }
  void cancel(const std::byte* memory, std::uint64_t nbytes) override {
    inner_->cancel(memory, nbytes);
  }
  void close() override { inner_->close(); }
  bool wake() override { return inner_->wake(); }

 private:
  std::unique_ptr<Transport> inner_;
  Hold& hold_;
};

enum class End { leaves, is_lost };

// Rank 0 sends and is gone; rank 1 hears of its end by the connection for collectives, and the message later.
void receive_what_was_sent(std::uint64_t nbytes, End end, int from) {
  Hold hold;
  const Wrap wrap = [&](std::uint32_t rank, Purpose purpose, std::unique_ptr<Transport> made) {
    if (rank == 0 || purpose != Purpose::messages) return made;
    return std::unique_ptr<Transport>(std::make_unique<Held>(std::move(made), hold));
  };
  const auto body = [&](Group& group) {
    std::vector<std::byte> x(nbytes, group.rank() == 0 ? std::byte{7} : std::byte{0});
    const Region region{x.data(), x.size()};
    PointToPoint messages(group);
    const std::int64_t until = in_seconds(20).deadline_ns;
    if (group.rank() == 0) {
      messages.wait(messages.send(region, 0, 1, 3, until, false), in_seconds(20), true);
      return;
    }
    const MessagePointer message = messages.recv(region, 0, from, 3, until, false);
    while (!hold.is_on) messages.is_done(message);  // moves it on
    hold.group = &group;
    if (end == End::is_lost) group.note_lost(0, "died");
    messages.wait(message, in_seconds(20), true);
    CHECK(std::count(x.begin(), x.end(), std::byte{7}) == static_cast<std::ptrdiff_t>(nbytes));
    hold.group = nullptr;
  };
  run_hosts({0, 1}, Net::tcp, body, wrap);
  CHECK(hold.looks > 50);
}

// The other way round: what an op sends comes later than the end of the connection for messages.
void end_an_op_that_was_sent(std::uint64_t nbytes, End end) {
  Hold hold;
  const Wrap wrap = [&](std::uint32_t rank, Purpose purpose, std::unique_ptr<Transport> made) {
    if (rank == 0 || purpose != Purpose::collectives) return made;
    return std::unique_ptr<Transport>(std::make_unique<Held>(std::move(made), hold));
  };
  const auto body = [&](Group& group) {
    std::vector<float> x(nbytes / sizeof(float), group.rank() == 0 ? 7.0F : 0.0F);
    const Region region = region_of(x);
    Plan plan;
    plan.in_cuts = plan.out_cuts = {{0, 0, nbytes}};
    plan.steps = {gate()};
    const Step step{StepKind::send, Space::input, Space::output, 1, 0, 0, 0, 0, nbytes};
    plan.steps.push_back(step);
    if (group.rank() == 1) {
      plan.steps.back().kind = StepKind::recv;
      plan.steps.back().peer = 0;
      hold.is_on = false;
      hold.group = &group;
      if (end == End::is_lost) {
        group.note_lost(0, "died");
      } else {
        group.note_leave(0, "");
      }
    }
    plan.finish(group.size(), slot_nbytes);
    group.run(plan, nothing, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
    CHECK(std::count(x.begin(), x.end(), 7.0F) == static_cast<std::ptrdiff_t>(x.size()));
    if (group.rank() == 1) hold.group = nullptr;
  };
  run_hosts({0, 1}, Net::tcp, body, wrap);
  CHECK(hold.looks > 50);
}

// A connection that takes nothing more at once from when its rank says that it leaves.
class Full final : public Transport {
 public:
  explicit Full(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  void connect(std::uint32_t peer, const Wait& wait) override { inner_->connect(peer, wait); }
  void post(std::uint32_t peer, const Envelope& envelope, const Payload& payload,
            bool* is_sent) override {
    if (Notices::type_of(envelope) != Notices::leave_type)
      return inner_->post(peer, envelope, payload, is_sent);
    late_.push_back({peer, envelope, payload, is_sent});
  }
  bool poll() override {
    if (!late_.empty() && ++polls_ > 5) {
      for (const Late& each : late_)
        inner_->post(each.peer, each.envelope, each.payload, each.is_sent);
      late_.clear();
    }
    return inner_->poll();
  }
  void wait(std::int64_t, Look has_work) override { has_work(); }
  void cancel(const std::byte* memory, std::uint64_t nbytes) override {
    inner_->cancel(memory, nbytes);
  }
  void close() override { inner_->close(); }

 private:
  struct Late {
    std::uint32_t peer;
    Envelope envelope;
    Payload payload;
    bool* is_sent;
  };
  std::unique_ptr<Transport> inner_;
  std::vector<Late> late_;
  int polls_ = 0;
};

// Who leaves while the others have yet to read what it sent has left, and not died.
void say_that_it_leaves() {
  const Wrap wrap = [](std::uint32_t rank, Purpose, std::unique_ptr<Transport> made) {
    if (rank != 0) return made;
    return std::unique_ptr<Transport>(std::make_unique<Full>(std::move(made)));
  };
  run_hosts(
      {0, 1}, Net::tcp,
      [](Group& group) {
        if (group.rank() == 0) return group.set_why("returned");
        const std::int64_t until = in_seconds(20).deadline_ns;
        while (!group.facts(0).left && now_ns() < until) group.look();
        CHECK(group.how_left(0) == "left (returned)");
      },
      wrap);
}

// Who leaves before it has read all that an op sends it ends that op.
void end_an_op_whose_receiver_leaves() {
  constexpr std::uint64_t nbytes = 64 << 20;  // more than connections hold
  run_hosts({0, 1}, Net::tcp, [](Group& group) {
    std::vector<float> x(nbytes / sizeof(float));
    const Region region = region_of(x);
    Plan plan;
    plan.in_cuts = plan.out_cuts = {{0, 0, nbytes}};
    plan.steps = {gate()};
    if (group.rank() == 0)
      plan.steps.push_back({StepKind::send, Space::input, Space::output, 1, 0, 0, 0, 0, nbytes});
    plan.finish(group.size(), slot_nbytes);
    Fault fault = Fault::timeout;
    try {
      group.run(plan, nothing, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
    } catch (const Error& error) {
      fault = error.fault();
    }
    if (group.rank() == 0) CHECK(fault == Fault::peer_lost);
  });
}

}  // namespace

int main() {
  end_an_op_whose_receiver_leaves();
  say_that_it_leaves();
  for (const std::uint64_t nbytes : {std::uint64_t{8}, std::uint64_t{64 * 1024},
                                     std::uint64_t{256 * 1024}, std::uint64_t{8 << 20}}) {
    for (const End end : {End::leaves, End::is_lost}) {
      // Shorter ones come with their offer, and the sender waits for the answer to that; of the longest it waits
      // until the kernel has taken it, which is when the receiver reads.
      if (nbytes == 256 * 1024 || (nbytes > 256 * 1024 && end == End::is_lost))
        for (const int from : {0, any_source}) receive_what_was_sent(nbytes, end, from);
      end_an_op_that_was_sent(nbytes, end);
    }
  }
  std::puts("test_leaving: passed");
}
