#include "tcp_wire.hpp"

#include <cstring>

#include "sha256.hpp"

namespace distdbg {

namespace {

constexpr std::string_view magic = "distlnk1";
static_assert(magic.size() == 8);

Digest prove(std::string_view role, std::string_view token, const LinkMeeting& meeting,
             std::string_view rest) {
  return hmac_sha256(token,
                     {role, meeting.rank_nonce, meeting.hub_nonce, meeting.hub_address, rest});
}
constexpr std::string_view hub_role = "distdbg link 1 hub", rank_role = "distdbg link 1 rank";

}  // namespace

std::string encode_link_hello(std::string_view rank_nonce) {
  return std::string(magic).append(rank_nonce);
}

std::string decode_link_hello(std::string_view bytes) {
  if (bytes.size() != link_hello_nbytes || !bytes.starts_with(magic)) return {};
  return std::string(bytes.substr(magic.size()));
}

std::string encode_link_answer(std::string_view token, const LinkMeeting& meeting) {
  return meeting.hub_nonce + std::string(as_view(prove(hub_role, token, meeting, {})));
}

bool check_link_answer(std::string_view bytes, std::string_view token, LinkMeeting& meeting) {
  if (bytes.size() != link_answer_nbytes) return false;
  meeting.hub_nonce = bytes.substr(0, link_nonce_nbytes);
  const Digest expected = prove(hub_role, token, meeting, {});
  return equal_in_constant_time(bytes.substr(link_nonce_nbytes), as_view(expected));
}

std::string encode_link_name(const LinkName& name, std::string_view token,
                             const LinkMeeting& meeting) {
  std::string bytes(reinterpret_cast<const char*>(&name), sizeof name);
  return bytes.append(as_view(prove(rank_role, token, meeting, bytes)));
}

bool check_link_name(std::string_view bytes, std::string_view token, const LinkMeeting& meeting,
                     LinkName& name) {
  if (bytes.size() != link_name_nbytes) return false;
  const std::string_view words = bytes.substr(0, sizeof name);
  const Digest expected = prove(rank_role, token, meeting, words);
  if (!equal_in_constant_time(bytes.substr(sizeof name), as_view(expected))) return false;
  std::memcpy(&name, words.data(), sizeof name);
  return true;
}

}  // namespace distdbg
