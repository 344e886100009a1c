// Words are UTF-8, and readers decode them: what has no room is cut between characters.
#pragma once

#include <cstddef>
#include <string_view>

namespace distdbg {

// As much of the text as fits.
inline std::string_view whole_characters(std::string_view text, std::size_t most_nbytes) {
  if (text.size() <= most_nbytes) return text;
  while (most_nbytes > 0 && (static_cast<unsigned char>(text[most_nbytes]) & 0xC0) == 0x80)
    --most_nbytes;
  return text.substr(0, most_nbytes);
}

}  // namespace distdbg
