// How a connection between ranks of different hosts begins: each side proves that it knows the run's token.
//
//   connecting -> hub   magic[8] nonce[32]
//   hub -> connecting   nonce[32] proof[32]     HMAC(token, "distdbg link 1 hub", both nonces, hub's address)
//   connecting -> hub   cookie u64 | from u32 | to u32 | purpose u32 | 0 u32, then proof[32]
//                       HMAC(token, "distdbg link 1 rank", both nonces, hub's address, those 24 bytes)
//
// All of fixed size. A recorded connection is worth nothing, since both nonces are fresh; nor is one that is
// passed on from another address. Afterwards frames go in both directions (transport.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace distdbg {

// Whose connection it is.
struct LinkName {
  std::uint64_t cookie;  // of the group
  std::uint32_t from;    // group rank that connects
  std::uint32_t to;
  std::uint32_t purpose;
  std::uint32_t zero;
};
static_assert(sizeof(LinkName) == 24);

constexpr std::size_t link_nonce_nbytes = 32, link_proof_nbytes = 32;
constexpr std::size_t link_hello_nbytes = 8 + link_nonce_nbytes;
constexpr std::size_t link_answer_nbytes = link_nonce_nbytes + link_proof_nbytes;
constexpr std::size_t link_name_nbytes = sizeof(LinkName) + link_proof_nbytes;

// What both sides know when they prove themselves.
struct LinkMeeting {
  std::string rank_nonce;
  std::string hub_nonce;
  std::string hub_address;  // as store_address.hpp has it
};

std::string encode_link_hello(std::string_view rank_nonce);
// The nonce; empty: this is no hello.
std::string decode_link_hello(std::string_view bytes);
std::string encode_link_answer(std::string_view token, const LinkMeeting& meeting);
// Whether the hub knows the token; then its nonce is in `meeting`.
bool check_link_answer(std::string_view bytes, std::string_view token, LinkMeeting& meeting);
std::string encode_link_name(const LinkName& name, std::string_view token,
                             const LinkMeeting& meeting);
bool check_link_name(std::string_view bytes, std::string_view token, const LinkMeeting& meeting,
                     LinkName& name);

}  // namespace distdbg
