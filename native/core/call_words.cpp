#include "call_words.hpp"

#include <cstdio>
#include <string_view>

namespace distdbg {

namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

std::string CallWords::make() const {
  std::string text = *facts;
  if (recorder != nullptr) {
    if (site != 0) text += ", \"call_site\": " + quoted(recorder->site_words(site));
    if (previous.seq != 0) {
      std::string words =
          std::string(recorder->string(previous.name)) + " #" + std::to_string(previous.seq);
      if (previous.site != 0) words += " at " + recorder->site_words(previous.site);
      text += ", \"previous\": " + quoted(words);
    }
    if (comm != 0) text += ", \"comm\": " + quoted(recorder->string(comm));
  }
  return text + "}";
}

}  // namespace distdbg
