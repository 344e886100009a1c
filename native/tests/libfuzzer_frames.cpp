// The same as test_fuzz_frames.cpp, by Clang's libFuzzer: it compares more than branches, and so finds more.
// Built and run by scripts/libfuzzer.sh.
//
// With FRAMES_SEEDS=folder it only writes there what is right, one file each, to begin with.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "fuzz_frames.hpp"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const folder = std::getenv("FRAMES_SEEDS");
  if (folder == nullptr) return 0;
  int count = 0;
  for (const distdbg::Bytes& seed : distdbg::seeds())
    std::ofstream(std::string(folder) + "/seed" + std::to_string(count++), std::ios::binary)
        << seed;
  std::_Exit(count > 0 ? 0 : 1);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t nbytes) {
  distdbg::try_one(distdbg::Bytes(reinterpret_cast<const char*>(data), nbytes));
  return 0;
}
