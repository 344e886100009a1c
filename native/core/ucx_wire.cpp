#include "ucx_wire.hpp"

#include <algorithm>

#include "sha256.hpp"

namespace distdbg {
namespace {

constexpr std::string_view purpose = "distdbg ucx 1";

}  // namespace

UcxHeader ucx_header(std::string_view token, const TcpWay& way, UcxType type) {
  UcxHeader header{{}, way.cookie, way.kind, way.from, way.to, type, 0};
  const std::string_view proven(reinterpret_cast<const char*>(&header.cookie),
                                offsetof(UcxHeader, type) - offsetof(UcxHeader, cookie));
  const Digest digest = hmac_sha256(token, {purpose, proven});
  std::copy_n(digest.begin(), header.key.size(), header.key.begin());
  return header;
}

bool proves_token(const UcxHeader& header, std::string_view token) {
  const TcpWay way{header.cookie, header.kind, header.from, header.to};
  const UcxHeader right = ucx_header(token, way, header.type);
  return equal_in_constant_time({header.key.data(), header.key.size()},
                                {right.key.data(), right.key.size()});
}

}  // namespace distdbg
