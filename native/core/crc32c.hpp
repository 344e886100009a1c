// CRC-32C (Castagnoli), as iSCSI and SCTP have it: by the instruction that the processor has for it, else by
// tables. Finds every change of up to 32 neighbouring bits; any other with all but one chance in 2^32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace distdbg {

// Of what follows bytes whose sum is `before`; 0 where nothing is before.
std::uint32_t crc32c(const void* data, std::size_t nbytes, std::uint32_t before = 0);

// The same without the instruction.
std::uint32_t crc32c_by_tables(const void* data, std::size_t nbytes, std::uint32_t before = 0);

// Whether crc32c() uses the instruction here.
bool has_crc32c_instruction();

}  // namespace distdbg
