// Words are UTF-8, and readers decode them: what has no room is cut between characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace distdbg {

// As much of the text as fits.
inline std::string_view whole_characters(std::string_view text, std::size_t most_nbytes) {
  if (text.size() <= most_nbytes) return text;
  while (most_nbytes > 0 && (static_cast<unsigned char>(text[most_nbytes]) & 0xC0) == 0x80)
    --most_nbytes;
  return text.substr(0, most_nbytes);
}

// The same from its end.
inline std::string_view last_characters(std::string_view text, std::size_t most_nbytes) {
  if (text.size() <= most_nbytes) return text;
  text.remove_prefix(text.size() - most_nbytes);
  while (!text.empty() && (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80)
    text.remove_prefix(1);
  return text;
}

// How many bytes the character at the beginning of a text has; 0: it is none.
inline std::size_t character_nbytes(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const std::size_t nbytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || nbytes > text.size()) return 0;
  for (std::size_t i = 1; i < nbytes; ++i)
    if ((at(i) & 0xC0) != 0x80) return 0;
  // Longer than need be, half of a surrogate pair, or beyond the last character.
  const bool is_none = (first == 0xE0 && at(1) < 0xA0) || (first == 0xED && at(1) > 0x9F) ||
                       (first == 0xF0 && at(1) < 0x90) || (first == 0xF4 && at(1) > 0x8F);
  return is_none ? 0 : nbytes;
}

// What another host has sent as words, with '?' for all that cannot be shown.
inline std::string shown(std::string_view text) {
  std::string words;
  while (!text.empty()) {
    const std::size_t nbytes = character_nbytes(text);
    const bool is_c1 =
        nbytes == 2 && text[0] == '\xC2' && static_cast<unsigned char>(text[1]) < 0xA0;
    const bool is_shown =
        (nbytes > 1 && !is_c1) || (nbytes == 1 && text[0] >= ' ' && text[0] != 0x7F);
    words += is_shown ? text.substr(0, nbytes) : "?";
    text.remove_prefix(nbytes == 0 ? 1 : nbytes);
  }
  return words;
}

}  // namespace distdbg
