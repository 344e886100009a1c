// The instruction takes three cycles and can be begun in each, so three lanes are summed at once. The sum of
// a lane is then moved over the bytes of the next one, which is a product with a matrix over GF(2): a look-up
// for each byte of the sum.
#include "crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace distdbg {
namespace {

constexpr std::uint32_t polynomial = 0x82f6'3b78;  // bits reversed, as the instruction has it

using Table = std::array<std::uint32_t, 256>;

// [0][b]: the sum of a byte; [k][b]: with k bytes of zero after it.
constexpr std::array<Table, 8> make_byte_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t sum = b;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? polynomial : 0);
    tables[0][b] = sum;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t b = 0; b < 256; ++b)
      tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}
constexpr std::array<Table, 8> byte_tables = make_byte_tables();

std::uint64_t load(const unsigned char* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

std::uint32_t sum_by_tables(const unsigned char* at, std::size_t nbytes, std::uint32_t sum) {
  const auto& t = byte_tables;
  for (; nbytes >= 8; nbytes -= 8, at += 8) {
    const std::uint64_t word = load(at) ^ sum;
    const auto byte = [word](int i) { return static_cast<std::size_t>(word >> (8 * i) & 0xff); };
    sum = t[7][byte(0)] ^ t[6][byte(1)] ^ t[5][byte(2)] ^ t[4][byte(3)] ^ t[3][byte(4)] ^
          t[2][byte(5)] ^ t[1][byte(6)] ^ t[0][byte(7)];
  }
  for (; nbytes > 0; --nbytes, ++at) sum = (sum >> 8) ^ t[0][(sum ^ *at) & 0xff];
  return sum;
}

#if defined(__x86_64__) || defined(__aarch64__)

// Written as assembly, since compilers allow the intrinsics only where the whole file may use them.
#if defined(__x86_64__)
bool find_instruction() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.2");
}
std::uint64_t step8(std::uint64_t sum, std::uint64_t word) {
  asm("crc32q %1, %0" : "+r"(sum) : "rm"(word));
  return sum;
}
std::uint64_t step1(std::uint64_t sum, unsigned char byte) {
  asm("crc32b %1, %0" : "+r"(sum) : "rm"(byte));
  return sum;
}
#else
bool find_instruction() { return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
std::uint64_t step8(std::uint64_t sum, std::uint64_t word) {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(sum) : "r"(word));
  return sum;
}
std::uint64_t step1(std::uint64_t sum, unsigned char byte) {
  asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(sum) : "r"(std::uint32_t{byte}));
  return sum;
}
#endif

// What follows a sum when so many bytes of zero come after it.
class Shift {
 public:
  constexpr explicit Shift(std::size_t nbytes_power_of_two) {
    std::array<std::uint32_t, 32> columns{};  // of one byte; then squared
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t sum = std::uint32_t{1} << i;
      columns[i] = (sum >> 8) ^ byte_tables[0][sum & 0xff];
    }
    for (std::size_t n = 1; n < nbytes_power_of_two; n *= 2) {
      std::array<std::uint32_t, 32> twice{};
      for (std::size_t i = 0; i < 32; ++i) twice[i] = times(columns, columns[i]);
      columns = twice;
    }
    for (std::size_t k = 0; k < 4; ++k)
      for (std::uint32_t b = 0; b < 256; ++b) tables_[k][b] = times(columns, b << (8 * k));
  }
  std::uint32_t operator()(std::uint64_t sum) const {
    return tables_[0][sum & 0xff] ^ tables_[1][sum >> 8 & 0xff] ^ tables_[2][sum >> 16 & 0xff] ^
           tables_[3][sum >> 24 & 0xff];
  }

 private:
  static constexpr std::uint32_t times(const std::array<std::uint32_t, 32>& columns,
                                       std::uint32_t sum) {
    std::uint32_t product = 0;
    for (std::size_t i = 0; sum != 0; ++i, sum >>= 1)
      if ((sum & 1) != 0) product ^= columns[i];
    return product;
  }
  std::array<Table, 4> tables_{};
};

constexpr std::size_t long_lane = 4096;
constexpr std::size_t short_lane = 256;
constexpr Shift over_long_lane(long_lane);
constexpr Shift over_short_lane(short_lane);

template <std::size_t lane>
std::uint64_t sum_lanes(const unsigned char*& at, std::size_t& nbytes, std::uint64_t sum,
                        const Shift& over_lane) {
  while (nbytes >= 3 * lane) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < lane; i += 8) {
      sum = step8(sum, load(at + i));
      second = step8(second, load(at + lane + i));
      third = step8(third, load(at + 2 * lane + i));
    }
    sum = over_lane(over_lane(sum) ^ second) ^ third;
    at += 3 * lane;
    nbytes -= 3 * lane;
  }
  return sum;
}

std::uint32_t sum_by_instruction(const unsigned char* at, std::size_t nbytes, std::uint64_t sum) {
  sum = sum_lanes<long_lane>(at, nbytes, sum, over_long_lane);
  sum = sum_lanes<short_lane>(at, nbytes, sum, over_short_lane);
  for (; nbytes >= 8; nbytes -= 8, at += 8) sum = step8(sum, load(at));
  for (; nbytes > 0; --nbytes, ++at) sum = step1(sum, *at);
  return static_cast<std::uint32_t>(sum);
}

#else

bool find_instruction() { return false; }
std::uint32_t sum_by_instruction(const unsigned char* at, std::size_t nbytes, std::uint64_t sum) {
  return sum_by_tables(at, nbytes, static_cast<std::uint32_t>(sum));
}

#endif

}  // namespace

bool has_crc32c_instruction() {
  static const bool has = find_instruction();
  return has;
}

std::uint32_t crc32c(const void* data, std::size_t nbytes, std::uint32_t before) {
  if (!has_crc32c_instruction()) return crc32c_by_tables(data, nbytes, before);
  return ~sum_by_instruction(static_cast<const unsigned char*>(data), nbytes, ~before);
}

std::uint32_t crc32c_by_tables(const void* data, std::size_t nbytes, std::uint32_t before) {
  return ~sum_by_tables(static_cast<const unsigned char*>(data), nbytes, ~before);
}

}  // namespace distdbg
