// Calls that look like one of before, carried out without a line of Python: what they were turned into is
// remembered, and nothing is decided here.
//
//   the Python way    calls.py checks the arguments, cpu.py makes views, the group finds or makes a plan.
//                     When the op has gone well, or was begun, `learn` keeps the plan under what the call
//                     looked like.
//   a known call      the same look again: the same function, kinds of arrays, sizes, reduce op and rank
//                     lead to the same plan. It runs, recorded and compared like any other; an asynchronous
//                     one is begun (begun_op.hpp).
//
// What a call looks like is all that the Python way decides by, so whatever is not in a Likeness has to make a
// call unknown: the state of the group (`ProcessGroup.known_calls` is None from any change of the group on,
// until it is looked at again), a running profiler, other breakpoints, and for a blocking call ops that nobody
// has waited for.
// An unknown call, and every error, goes the Python way. All with the GIL held.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "group_py.hpp"
#include "plans_py.hpp"
#include "region.hpp"

namespace distdbg {

// The words of one look.
class Likeness {
 public:
  // False: there is no room, so nobody can know it.
  bool add(std::uint64_t word) {
    if (count_ == words_.size()) return false;
    words_[count_++] = word;
    return true;
  }
  bool add(const void* object) { return add(reinterpret_cast<std::uintptr_t>(object)); }
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(words_.data()), count_ * sizeof(std::uint64_t)};
  }

 private:
  std::array<std::uint64_t, 48> words_;
  std::size_t count_ = 0;
};

// What is read of an array without asking it.
struct Memory {
  std::byte* data = nullptr;
  std::uint64_t nbytes = 0;
  nb::object kept;  // the array, where the caller has another object
};

// Reads arrays: NumPy's own as they lie in memory (their layout is part of NumPy's C API, and checked against
// what the first array says of itself), torch's by asking for a NumPy array over the same memory.
class ArrayReader {
 public:
  // False: it is nothing that could be known.
  bool read(nb::handle array, Likeness& look, Memory& memory);
  // What tensors are, once somebody has imported torch.
  void set_tensor(nb::object type) { tensor_ = std::move(type); }
  bool has_tensor() const { return tensor_.is_valid(); }
  // A dtype of tensors that Tensor.numpy() takes: to ask it for others costs more than is won.
  void add_torch_dtype(nb::handle dtype);

 private:
  struct Item {
    nb::object dtype;
    std::uint64_t nbytes;
  };
  bool read_numpy(PyObject* array, Likeness& look, Memory& memory);
  bool has_known_layout(PyObject* array);
  std::uint64_t item_nbytes(PyObject* dtype);

  nb::object tensor_;
  std::vector<nb::object> torch_dtypes_;
  std::vector<Item> items_;
  enum class Layout : std::uint8_t { unseen, known, other } layout_ = Layout::unseen;
};

// Of one group: looks, and what calls that looked so became.
class KnownCalls {
 public:
  explicit KnownCalls(nb::object group) : group_(std::move(group)) {}

  // How the Python way has an array of the call.
  struct Access {
    int dtype = View::unknown_dtype;
    bool is_written = false;
  };

  struct Known {
    CompiledPlan compiled;         // of a collective
    std::shared_ptr<Form> form;    // of a message
    std::vector<nb::object> kept;  // whose addresses are in the look
    nb::object result;             // of recv: the global rank
    nb::object like;               // of a collective: a Call like it, without arrays
    Access out;
    Access in;
    std::uint64_t code = 0;
    int dtype = -1;
    int peer = -1;
    std::int64_t tag = 0;
    bool is_possible = false;  // False: it was looked at, and has to go the Python way each time
  };

  using Place = std::pair<const std::string, Known>;

  const Known* find(std::string_view look) {
    // Programs come by the same few calls, over and over.
    for (const Place* place : recent_)
      if (place != nullptr && place->first == look) return &place->second;
    const auto found = known_.find(look);
    if (found == known_.end()) return nullptr;
    recent_[next_recent_++ % recent_.size()] = &*found;
    return &found->second;
  }
  void keep(const nb::bytes& look, Known&& known) {
    recent_.fill(nullptr);
    if (known_.size() >= most) known_.clear();  // a program that never repeats a size
    known_.insert_or_assign(std::string(look.c_str(), look.size()), std::move(known));
  }
  void forget() {
    recent_.fill(nullptr);
    known_.clear();
  }
  std::size_t count() const { return known_.size(); }
  void unfold_begun();

  const nb::object& group_object() const { return group_; }
  GroupHandle& group() const { return *nb::inst_ptr<GroupHandle>(group_); }

  std::int64_t limit_ns = 0;  // of ops that bring none of their own
  nb::object unwaited;        // the list of ops that nobody has waited for yet
  bool is_watched = true;     // whether Python looks for what is wrong with those
  std::uint64_t hits = 0;     // for tests

 private:
  static constexpr std::size_t most = 1024;
  nb::object group_;
  std::unordered_map<std::string, Known, StringHash, std::equal_to<>> known_;
  std::array<const Place*, 4> recent_{};
  std::size_t next_recent_ = 0;
};

}  // namespace distdbg
