// CRC-32C by instruction and by tables: what others compute, and the same whatever the bytes are cut into.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "crc32c.hpp"

using namespace distdbg;

namespace {

std::uint32_t sum_of(std::string_view text) { return crc32c(text.data(), text.size()); }

// Bit by bit, as the definition has it.
std::uint32_t sum_by_bits(const unsigned char* at, std::size_t nbytes) {
  std::uint32_t sum = ~0U;
  for (std::size_t i = 0; i < nbytes; ++i) {
    sum ^= at[i];
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82f6'3b78U : 0);
  }
  return ~sum;
}

void test_sums_that_others_have_published() {
  CHECK(sum_of("") == 0);
  CHECK(sum_of("123456789") == 0xe306'9283U);
  const std::vector<unsigned char> zeros(32, 0);
  const std::vector<unsigned char> ones(32, 0xff);
  CHECK(crc32c(zeros.data(), 32) == 0x8a91'36aaU);  // RFC 3720, B.4
  CHECK(crc32c(ones.data(), 32) == 0x62a8'ab43U);
}

void test_all_lengths_and_places() {
  std::vector<unsigned char> bytes(40'000);
  std::uint32_t state = 1;
  for (unsigned char& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<unsigned char>(state >> 24);
  }
  const auto check = [&](std::size_t from, std::size_t nbytes) {
    const std::uint32_t expected = sum_by_bits(bytes.data() + from, nbytes);
    CHECK(crc32c(bytes.data() + from, nbytes) == expected);
    CHECK(crc32c_by_tables(bytes.data() + from, nbytes) == expected);
    const std::size_t first = nbytes / 3;
    const std::uint32_t before = crc32c(bytes.data() + from, first);
    CHECK(crc32c(bytes.data() + from + first, nbytes - first, before) == expected);
  };
  for (std::size_t nbytes = 0; nbytes < 300; ++nbytes) check(nbytes % 8, nbytes);
  for (const std::size_t near : {768U, 1536U, 12'288U, 24'576U, 36'864U})
    for (std::size_t nbytes = near - 3; nbytes < near + 4; ++nbytes) check(nbytes % 5, nbytes);
  check(1, bytes.size() - 1);
}

void test_every_changed_bit_is_found() {
  std::vector<unsigned char> bytes(200, 'x');
  const std::uint32_t sum = crc32c(bytes.data(), bytes.size());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1U << (bit % 8)));
    CHECK(crc32c(bytes.data(), bytes.size()) != sum);
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1U << (bit % 8)));
  }
}

}  // namespace

int main() {
  test_sums_that_others_have_published();
  test_all_lengths_and_places();
  test_every_changed_bit_is_found();
  return 0;
}
