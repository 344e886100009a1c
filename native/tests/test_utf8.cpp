// Words that another host has sent: only what can be shown is left of them.
#include <cstdio>
#include <string>

#include "check.hpp"
#include "utf8.hpp"

using distdbg::last_characters;
using distdbg::shown;
using distdbg::whole_characters;

int main() {
  CHECK(whole_characters("a\u00fcb", 2) == "a");
  CHECK(whole_characters("a\u00fcb", 3) == "a\u00fc");
  CHECK(last_characters("a\u00fcb", 2) == "b");
  CHECK(last_characters("a\u00fcb", 3) == "\u00fcb");
  CHECK(last_characters("a\u00fcb", 4) == "a\u00fcb");
  CHECK(last_characters("\u00fc", 1).empty());
  CHECK(shown("") == "");
  CHECK(shown("rank 3 left: no data") == "rank 3 left: no data");
  CHECK(shown("gr\u00fc\u00dfe, \u65e5\u672c, \U0001F642") ==
        "gr\u00fc\u00dfe, \u65e5\u672c, \U0001F642");
  CHECK(shown("\x1b[31m\r\n\x7f") == "?[31m???");
  CHECK(shown("\xc2\x9b"
              "2J") == "?2J");  // C1
  CHECK(shown("a\xff"
              "b\xc3") == "a?b?");  // no character, half of one
  CHECK(shown("\xc0\xaf"
              "\xe0\x80\xaf") == "?????");  // longer than need be
  CHECK(shown("\xed\xa0\x80") == "???");    // half of a surrogate pair
  CHECK(shown("\xf4\x90\x80\x80"
              "\xf5") == "?????");  // beyond the last character
  CHECK(shown(std::string("a\0b", 3)) == "a?b");
  std::puts("test_utf8: passed");
}
