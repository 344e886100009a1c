// SHA-256 (FIPS 180-4) and HMAC over it (RFC 2104), for the challenge that opens every connection.
//
// Small and dependency-free on purpose: it runs once per connection, so speed does not matter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace distdbg {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view data);

// The message is the concatenation of `parts`.
Digest hmac_sha256(std::string_view key, std::initializer_list<std::string_view> parts);

// Takes the same time wherever the first difference is.
bool equal_in_constant_time(std::string_view left, std::string_view right);

inline std::string_view as_view(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace distdbg
