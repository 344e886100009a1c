// The call sites of Python code, as a record has them.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "bindings.hpp"
#include "frame_walk.hpp"
#include "record.hpp"

namespace distdbg {

// Where Python code is, as sites of one record. A stack that was seen before costs one look-up: it is
// known by its code objects and the instructions they are at, which are all that is read of the frames.
// Every call needs the GIL.
class CallSites {
 public:
  explicit CallSites(Recorder& recorder);
  ~CallSites();
  CallSites(const CallSites&) = delete;
  CallSites& operator=(const CallSites&) = delete;

  // The innermost frame outside this package, and its callers. `skip`: how many frames of this package
  // are on top at least; one too few costs some time, one too many would lose the frame that is meant.
  std::uint32_t here(int skip);

  // Whether frames are read where they lie, and no object is made of each.
  static bool reads_frames();

  // Frames of files below `folder` are none of the user's while they are on top: those of a library that
  // calls this package for him.
  void skip_folder(std::string folder);

 private:
  std::uint32_t intern(PyObject* top, std::uint64_t key);
  void hold_codes(FrameWalk walk, int most);
  bool is_ours(PyObject* code, bool is_below_user);
  void forget();

  Recorder& recorder_;
  std::unordered_map<std::uint64_t, std::uint32_t> stacks_;
  std::vector<PyObject*> codes_;  // held, so that their addresses mean what they meant
  std::string package_;
  static inline std::vector<std::string> skipped_;  // of all records of the process; with the GIL
};

}  // namespace distdbg
