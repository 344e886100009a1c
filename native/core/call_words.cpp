#include "call_words.hpp"

#include <charconv>
#include <cstdio>
#include <cstring>
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

// Before and after the number of the op before.
void write_parts(const CallWords& words, std::string& head, std::string& tail) {
  head = *words.facts;
  tail.clear();
  if (words.recorder == nullptr) return;
  const Recorder& recorder = *words.recorder;
  if (words.site != 0) head += ", \"call_site\": " + quoted(recorder.site_words(words.site));
  std::string& rest = words.previous.seq != 0 ? tail : head;
  if (words.previous.seq != 0) {
    std::string before = quoted(std::string(recorder.string(words.previous.name)) + " #");
    before.pop_back();
    head += ", \"previous\": " + before;
    if (words.previous.site != 0)
      tail = quoted(" at " + recorder.site_words(words.previous.site)).substr(1);
    else
      tail += '"';
  }
  if (words.comm != 0) rest += ", \"comm\": " + quoted(recorder.string(words.comm));
}

}  // namespace

std::string CallWords::make() const {
  std::string head;
  std::string tail;
  write_parts(*this, head, tail);
  if (recorder != nullptr && previous.seq != 0) head += std::to_string(previous.seq);
  return head + tail + "}";
}

std::size_t CallWords::write(WordsCache& cache, char* into, std::size_t room) const {
  const bool has_previous = recorder != nullptr && previous.seq != 0;
  WordsCache::Entry* found = nullptr;
  for (WordsCache::Entry& each : cache.entries())
    if (each.facts == facts && each.site == site && each.comm == comm &&
        each.previous_name == previous.name && each.previous_site == previous.site &&
        each.has_previous == has_previous && each.known == *facts)
      found = &each;
  if (found == nullptr) {
    found = &cache.next();
    found->facts = facts;
    found->known = *facts;
    found->site = site;
    found->comm = comm;
    found->previous_name = previous.name;
    found->previous_site = previous.site;
    found->has_previous = has_previous;
    write_parts(*this, found->head, found->tail);
    found->tail += '}';
  }
  constexpr std::size_t most_digits = 20;
  const std::string& head = found->head;
  const std::string& tail = found->tail;
  if (head.size() + most_digits + tail.size() > room) return 0;
  std::memcpy(into, head.data(), head.size());
  char* end = into + head.size();
  if (has_previous) end = std::to_chars(end, end + most_digits, previous.seq).ptr;
  std::memcpy(end, tail.data(), tail.size());
  return static_cast<std::size_t>(end - into) + tail.size();
}

}  // namespace distdbg
