// The keys and queues of a TCPStore server, and what each request does to them. No sockets, no clock.
//
// answer() either appends a reply to `out` or says for which key the request has to wait. Whoever parks it
// calls answer() again when that key is reported in `touched`.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store_wire.hpp"

namespace distdbg {

// What requests that wait for members to join are parked on. A client that sets this key wakes them for
// nothing, since they look again before they answer.
constexpr std::string_view store_join_key{"\0joined", 7};

class StoreTable {
 public:
  explicit StoreTable(StoreLimits limits) : limits_(limits) {}

  struct Outcome {
    enum class Kind { replied, touched, waits, refused } kind = Kind::replied;
    // waits: for this key. touched: replied, and this key may now satisfy others (`set`: every even
    // field). Points into the request.
    std::string_view key{};
  };

  Outcome answer(const StoreMessage& request, std::string& out);

  // The reply for a request that has waited long enough.
  void answer_timeout(const StoreMessage& request, std::string& out) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  template <typename T>
  using Map = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

  bool is_present(std::string_view key) const;
  bool has_valid_sizes(const StoreMessage& request) const;
  std::string& value_of(std::string_view key);
  void answer_get(const StoreMessage& request, std::string& out) const;
  void answer_add(const StoreMessage& request, std::string& out);
  void answer_compare_set(const StoreMessage& request, std::string& out);
  void answer_list_keys(std::string_view prefix, std::string& out) const;

  StoreLimits limits_;
  Map<std::string> values_;
  Map<std::deque<std::string>> queues_;
  std::vector<std::string> joined_;
};

}  // namespace distdbg
