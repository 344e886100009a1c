// What a rank says of its call when ranks differ: put together only then, on whatever thread runs the
// op, without Python.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "record.hpp"

namespace distdbg {

// The words of the last calls that were written, but for the number of the op before: a program comes by the
// same few lines again and again.
class WordsCache {
 public:
  struct Entry {
    const std::string* facts = nullptr;
    std::uint32_t site = 0;
    std::uint32_t comm = 0;
    std::uint32_t previous_name = 0;
    std::uint32_t previous_site = 0;
    bool has_previous = false;
    std::string known;  // `*facts`: another plan may lie at the same address now
    std::string head;   // up to the number of the op before
    std::string tail;   // and what follows
  };
  Entry& next() { return entries_[next_++ % entries_.size()]; }
  std::array<Entry, 4>& entries() { return entries_; }

 private:
  std::array<Entry, 4> entries_;
  std::size_t next_ = 0;
};

struct CallWords {
  const std::string* facts = nullptr;  // a JSON object without its closing brace
  const Recorder* recorder = nullptr;  // may be null: then no lines are known
  std::uint32_t site = 0;
  std::uint32_t comm = 0;  // string: record_comm
  PreviousOp previous;

  // The facts, completed by `call_site`, `previous` and `comm`.
  std::string make() const;
  // The same into memory, quickly where the cache has it: how many bytes; 0: there is no room.
  std::size_t write(WordsCache& cache, char* into, std::size_t room) const;
};

}  // namespace distdbg
