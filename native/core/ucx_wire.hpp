// What stands before every message of UCX that is ours. All integers are little-endian.
//
//    0 key[16]   16 u64 cookie of the group   24 u32 kind   28 u32 from   32 u32 to (group ranks)
//   36 u32 type  40 u64 number                48
//
//   DATA   the `number`-th part of the stream of bytes from one rank to another, from 0; the bytes follow
//   ROOM   how much of the stream in the other direction has been read, as ucx_stream.hpp counts
//   ASK    has all come, `number` parts? asked again until it is so
//   HAVE   it has
//
// The key is the first half of HMAC(token, "distdbg ucx 1", bytes 16 to 35). So each direction of each way
// of each group has its own, and only who has the token of the run can make it. It is sent in the clear.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tcp_wire.hpp"

namespace distdbg {

enum class UcxType : std::uint32_t { data, room, ask, have };

struct UcxHeader {
  std::array<char, 16> key;
  std::uint64_t cookie;
  std::uint32_t kind;
  std::uint32_t from;
  std::uint32_t to;
  UcxType type;
  std::uint64_t number;
};
static_assert(sizeof(UcxHeader) == 48 && offsetof(UcxHeader, cookie) == 16 &&
              offsetof(UcxHeader, type) == 36);

// With its key, of that type and number 0.
UcxHeader ucx_header(std::string_view token, const TcpWay& way, UcxType type);
// Whether its key is the right one.
bool proves_token(const UcxHeader& header, std::string_view token);

}  // namespace distdbg
