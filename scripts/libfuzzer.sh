#!/bin/sh
# Frames and handshakes between hosts through Clang's libFuzzer, for $1 seconds: an input that crashes, leaks, is
# slow or takes much memory is kept as build/libfuzzer/crash-*, and the exit status is not 0. Without a Clang that
# has libFuzzer nothing is run, and a line says so.
set -eu
seconds=$1
build=build/libfuzzer
mkdir -p "$build"
for clang in "${CLANGXX:-clang++}" clang++-19 clang++-18 clang++-17 clang++-16 clang++-15; do
  command -v "$clang" >/dev/null && printf 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    "$clang" -x c++ -fsanitize=fuzzer,address -o "$build/probe" - 2>/dev/null && break
  clang=
done
if [ -z "$clang" ]; then
  echo "no clang++ with libFuzzer (Debian: clang-19 and libclang-rt-19-dev): frames are not tried by it"
  exit 0
fi
cd native/core
"$clang" -std=c++20 -O1 -g1 -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined \
  -fno-sanitize-recover=undefined -DDISTDBG_SANITIZED=1 -I. -I../tests -o "../../$build/frames" -pthread \
  ../tests/libfuzzer_frames.cpp crc32c.cpp sha256.cpp store_wire.cpp tcp_wire.cpp
cd "../../$build"
mkdir -p corpus
FRAMES_SEEDS=corpus ./frames
# 4,096 bytes: what comes after them is as what came before.
./frames -max_len=4096 -max_total_time="$seconds" -rss_limit_mb=512 -malloc_limit_mb=64 -timeout=5 \
  -print_final_stats=1 -verbosity=0 corpus
