// An ordered stream of frames from one rank to one other: a ring with one writer and one reader.
//
//   ChannelHeader   written (its own line), read (its own line): byte counts that only grow
//   data            channel_nbytes, a power of two; position = count & (nbytes - 1)
//
// A frame is never split by the writer's `written`: the reader sees whole frames only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

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
  // Writer: two parts become visible at once; the caller has checked room().
  void write(const void* a, std::uint64_t a_nbytes, const void* b, std::uint64_t b_nbytes) {
    const std::uint64_t at = header_->written.load(std::memory_order_relaxed);
    put(at, a, a_nbytes);
    put(at + a_nbytes, b, b_nbytes);
    header_->written.store(at + a_nbytes + b_nbytes, std::memory_order_release);
  }

  // Reader: how many bytes are there.
  std::uint64_t available() const {
    return header_->written.load(std::memory_order_acquire) -
           header_->read.load(std::memory_order_relaxed);
  }
  // Reader: looks at bytes `offset` after the read position without consuming them.
  void peek(std::uint64_t offset, void* into, std::uint64_t nbytes) const {
    get(header_->read.load(std::memory_order_relaxed) + offset, into, nbytes);
  }
  void consume(std::uint64_t nbytes) {
    header_->read.store(header_->read.load(std::memory_order_relaxed) + nbytes,
                        std::memory_order_release);
  }

 private:
  void put(std::uint64_t at, const void* from, std::uint64_t nbytes) {
    if (nbytes == 0) return;
    const std::uint64_t start = at & (nbytes_ - 1);
    const std::uint64_t first = std::min(nbytes, nbytes_ - start);
    std::memcpy(data_ + start, from, first);
    std::memcpy(data_, static_cast<const std::byte*>(from) + first, nbytes - first);
  }
  void get(std::uint64_t at, void* into, std::uint64_t nbytes) const {
    if (nbytes == 0) return;
    const std::uint64_t start = at & (nbytes_ - 1);
    const std::uint64_t first = std::min(nbytes, nbytes_ - start);
    std::memcpy(into, data_ + start, first);
    std::memcpy(static_cast<std::byte*>(into) + first, data_, nbytes - first);
  }

  ChannelHeader* header_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t nbytes_ = 0;
};

}  // namespace distdbg
