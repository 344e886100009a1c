// The arrays of ops in flight, held for native code that reads and writes them: an exception of Python (a
// signal's handler that raises, no memory) may come before the program has a handle of the op. With the GIL held.
#pragma once

#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "group.hpp"
#include "op.hpp"

namespace distdbg {

// After an op that this thread waited for has failed: where a peer may still write to its arrays, their memory is given to
// nobody else any more.
inline void keep_if_written(nb::handle arrays) {
  if (Group::take_left_written()) arrays.inc_ref();
}

class HeldArrays {
 public:
  void hold(OpPointer op, nb::object arrays) {
    if (held_.size() >= sweep_at_) sweep();
    const Op* const key = op.get();
    held_.emplace(key, Held(std::move(op), std::move(arrays)));
  }
  // What goes may run Python, which may come back here: it goes last.
  void release(const Op& op) { const auto gone = held_.extract(&op); }
  void clear() { const auto gone = std::exchange(held_, {}); }

  // Releases what an op has held at the end of a block, if it has ended.
  class WhenDone {
   public:
    WhenDone(HeldArrays& held, const Op& op) : held_(held), op_(op) {}
    ~WhenDone() {
      if (op_.done()) held_.release(op_);
    }
    WhenDone(const WhenDone&) = delete;
    WhenDone& operator=(const WhenDone&) = delete;

   private:
    HeldArrays& held_;
    const Op& op_;
  };

 private:
  struct Held {
    Held(OpPointer of, nb::object held) : op(std::move(of)), arrays(std::move(held)) {}
    Held(Held&&) = default;
    Held& operator=(Held&&) = default;
    ~Held() {
      if (op && op->is_left_written) arrays.release();
    }
    OpPointer op;
    nb::object arrays;
  };
  // Of ops that ended and that nobody has waited for.
  void sweep() {
    std::vector<Held> gone;
    for (auto each = held_.begin(); each != held_.end();) {
      const bool is_over = each->second.op->done();
      if (is_over) gone.push_back(std::move(each->second));
      each = is_over ? held_.erase(each) : std::next(each);
    }
    sweep_at_ = 2 * held_.size() + 1;
  }

  std::unordered_map<const Op*, Held> held_;
  std::size_t sweep_at_ = 1;
};

}  // namespace distdbg
