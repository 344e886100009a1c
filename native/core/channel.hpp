// An ordered stream of bytes from one rank to one other: a ring with one writer and one reader.
//
//   ChannelHeader   written (its own line), read (its own line): byte counts that only grow
//   data            channel_nbytes, a power of two; position = count & (nbytes - 1)
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "copy.hpp"

namespace distdbg {

struct ChannelHeader {
  alignas(64) std::atomic<std::uint64_t> written;  // release by the writer, acquire by the reader
  alignas(64) std::atomic<std::uint64_t> read;     // release by the reader, acquire by the writer
};
static_assert(sizeof(ChannelHeader) == 128);

class Channel {
 public:
  Channel() = default;
  Channel(std::byte* memory, std::uint64_t nbytes)
      : header_(reinterpret_cast<ChannelHeader*>(memory)),
        data_(memory + sizeof(ChannelHeader)),
        nbytes_(nbytes) {}

  std::uint64_t capacity() const { return nbytes_; }

  // Writer: room for how many bytes now.
  std::uint64_t room() const {
    return nbytes_ - (header_->written.load(std::memory_order_relaxed) -
                      header_->read.load(std::memory_order_acquire));
  }
  // Writer: puts bytes `offset` after what is visible; the caller has checked room().
  void put(std::uint64_t offset, const void* from, std::uint64_t nbytes) {
    store(header_->written.load(std::memory_order_relaxed) + offset, from, nbytes);
  }
  // Writer: makes the next bytes visible.
  void publish(std::uint64_t nbytes) {
    header_->written.store(header_->written.load(std::memory_order_relaxed) + nbytes,
                           std::memory_order_release);
  }

  // Reader: how many bytes are there.
  std::uint64_t available() const {
    return header_->written.load(std::memory_order_acquire) -
           header_->read.load(std::memory_order_relaxed);
  }
  // Reader: looks at bytes `offset` after the read position without consuming them.
  void peek(std::uint64_t offset, void* into, std::uint64_t nbytes, bool is_large = false) const {
    get(header_->read.load(std::memory_order_relaxed) + offset, into, nbytes, is_large);
  }
  void consume(std::uint64_t nbytes) {
    header_->read.store(header_->read.load(std::memory_order_relaxed) + nbytes,
                        std::memory_order_release);
  }

 private:
  void store(std::uint64_t at, const void* from, std::uint64_t nbytes) {
    if (nbytes == 0) return;
    const std::uint64_t start = at & (nbytes_ - 1);
    const std::uint64_t first = std::min(nbytes, nbytes_ - start);
    std::memcpy(data_ + start, from, first);
    std::memcpy(data_, static_cast<const std::byte*>(from) + first, nbytes - first);
  }
  void get(std::uint64_t at, void* into, std::uint64_t nbytes, bool is_large) const {
    if (nbytes == 0) return;
    const std::uint64_t start = at & (nbytes_ - 1);
    const std::uint64_t first = std::min(nbytes, nbytes_ - start);
    auto* const dst = static_cast<std::byte*>(into);
    copy_out(dst, data_ + start, first, is_large);
    copy_out(dst + first, data_, nbytes - first, is_large);
  }

  ChannelHeader* header_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t nbytes_ = 0;
};

}  // namespace distdbg
