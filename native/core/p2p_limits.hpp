// How long what travels with frames may be.
#pragma once

#include <cstddef>
#include <cstdint>

namespace distdbg {

// The end of a path says more than its beginning.
constexpr std::size_t words_nbytes = 480;
// Of what comes with an offer.
constexpr std::uint64_t most_inline_nbytes = 128 * 1024;
// Of what an offer from a device says of the sender's memory.
constexpr std::uint64_t description_nbytes = 512;
// Pieces of one message that are posted and have not left: however small its receiver wants them, and however
// many at once. More than a receiver of ours has places for.
constexpr std::size_t most_posted_pieces = 16;

}  // namespace distdbg
