// The shared arrays of another process of this host, mapped here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fork.hpp"

namespace distdbg {

class PeerHeap {
 public:
  // Through that process's descriptor. All groups of this process have one mapping, which ends with the last
  // of them. Throws Error(Fault::system).
  static std::shared_ptr<const PeerHeap> open(std::int32_t pid, std::uint64_t start_time, int fd);

  PeerHeap(std::byte* base, std::uint64_t nbytes, std::uint64_t their_base)
      : base_(base), nbytes_(nbytes), their_base_(their_base) {}
  ~PeerHeap();
  PeerHeap(const PeerHeap&) = delete;
  PeerHeap& operator=(const PeerHeap&) = delete;

  // Where what lies at `address` there is here; null: not in its shared arrays.
  std::byte* place(std::uint64_t address, std::uint64_t nbytes) const {
    if (address < their_base_) return nullptr;
    const std::uint64_t offset = address - their_base_;
    return offset <= nbytes_ && nbytes <= nbytes_ - offset ? base_ + offset : nullptr;
  }

 private:
  std::byte* const base_;
  const std::uint64_t nbytes_;
  const std::uint64_t their_base_;
  const std::uint32_t generation_ = fork_generation();
};

}  // namespace distdbg
