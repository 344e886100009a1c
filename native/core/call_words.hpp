// What a rank says of its call when ranks differ: put together only then, on whatever thread runs the
// op, without Python.
#pragma once

#include <cstdint>
#include <string>

#include "record.hpp"

namespace distdbg {

struct CallWords {
  const std::string* facts = nullptr;  // a JSON object without its closing brace
  const Recorder* recorder = nullptr;  // may be null: then no lines are known
  std::uint32_t site = 0;
  std::uint32_t comm = 0;  // string: record_comm
  PreviousOp previous;

  // The facts, completed by `call_site`, `previous` and `comm`.
  std::string make() const;
};

}  // namespace distdbg
