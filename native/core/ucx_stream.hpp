// A stream of bytes to one rank and one from it, in parts that UCX carries.
//
// A part counts as its bytes and `ucx_part_cost` more, since each takes memory at the receiver. So much of
// the window of a stream is in use as was sent and has not been read; the reader tells what it has read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "transport.hpp"
#include "ucx_engine.hpp"

namespace distdbg {

constexpr std::uint64_t ucx_part_cost = 1024;
constexpr std::uint64_t ucx_window = 1024 * 1024;
static_assert(ucx_window >= 4 * ucx_part_nbytes);

class UcxStream {
 public:
  UcxStream() = default;
  // `way` leads to the peer, whose process has that address. `is_here`: on this host.
  void open(UcxEngine& engine, const std::string& address, const TcpWay& way, bool is_here);
  bool is_open() const { return engine_ != nullptr; }

  std::size_t write(const Piece* pieces, std::size_t count);
  std::size_t read(std::byte* into, std::size_t nbytes);

  void add(const UcxPart& part) { unread_.push_back(part); }
  bool has_unread() const { return !unread_.empty(); }
  void set_room(std::uint64_t number) { room_ = std::max(room_, number); }
  void set_arrived(std::uint64_t number) { arrived_ = std::max(arrived_, number); }
  // Tells the writer when it has something to gain; what was read is appended to `read`.
  void settle(std::vector<UcxPart>& read);
  // All that was not read.
  void drop(std::vector<UcxPart>& read);
  // Asks whether the peer's process has all that was written.
  void ask();
  bool has_all_arrived() const { return arrived_ >= parts_; }
  // Why nothing more can be written; '' where it can.
  std::string why() const;

 private:
  static std::uint64_t cost(std::uint64_t nbytes) { return nbytes + ucx_part_cost; }
  void tell(UcxType type, std::uint64_t number);

  UcxEngine* engine_ = nullptr;
  UcxEnd* end_ = nullptr;
  UcxHeader header_{};
  std::uint64_t parts_ = 0;    // written
  std::uint64_t arrived_ = 0;  // of them, as far as is known
  std::uint64_t written_ = 0;  // cost
  std::uint64_t room_ = 0;     // of that, read by the peer
  std::deque<UcxPart> unread_;
  std::uint64_t at_ = 0;  // in the first of them
  std::vector<UcxPart> done_;
  std::uint64_t consumed_ = 0;  // cost of what was read
  std::uint64_t reported_ = 0;  // of that, known to the writer
};

}  // namespace distdbg
