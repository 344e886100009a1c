#include "store_wire.hpp"

#include <sys/random.h>

#include <cerrno>

#include "error.hpp"
#include "sha256.hpp"

namespace distdbg {

StoreEncoder::StoreEncoder(std::string& out, std::uint8_t code, std::int64_t number)
    : out_(out), begin_(out.size()) {
  put_u32(out_, 0);
  put_u32(out_, code);
  const auto bits = static_cast<std::uint64_t>(number);
  put_u32(out_, static_cast<std::uint32_t>(bits & 0xffffffffu));
  put_u32(out_, static_cast<std::uint32_t>(bits >> 32));
}

void StoreEncoder::finish() {
  const auto nbytes = static_cast<std::uint32_t>(out_.size() - begin_ - store_header_nbytes);
  for (unsigned i = 0; i < 4; ++i) out_[begin_ + i] = static_cast<char>(nbytes >> (8 * i) & 0xff);
}

std::optional<std::size_t> store_message_nbytes(std::string_view buffer) {
  if (buffer.size() < store_header_nbytes) return std::nullopt;
  return store_header_nbytes + get_u32(buffer.data());
}

bool decode_store_message(std::string_view bytes, StoreMessage& message) {
  message.code = static_cast<std::uint8_t>(bytes[4]);
  message.number = get_i64(bytes.data() + 8);
  message.fields.clear();
  if (bytes[5] != 0 || bytes[6] != 0 || bytes[7] != 0) return false;
  std::string_view rest = bytes.substr(store_header_nbytes);
  while (!rest.empty()) {
    if (rest.size() < 4) return false;
    const std::size_t nbytes = get_u32(rest.data());
    rest.remove_prefix(4);
    if (rest.size() < nbytes) return false;
    message.fields.push_back(rest.substr(0, nbytes));
    rest.remove_prefix(nbytes);
  }
  return true;
}

std::string encode_store_hello(std::string_view server_nonce) {
  std::string out(store_server_magic);
  put_u32(out, store_wire_version);
  put_u32(out, 0);
  out.append(server_nonce);
  return out;
}

std::string encode_store_challenge(const StoreMeeting& meeting) {
  std::string out(store_client_magic);
  put_u32(out, store_wire_version);
  put_u32(out, 0);
  out.append(meeting.client_nonce);
  out.append(meeting.address);
  out.resize(store_challenge_nbytes, '\0');
  return out;
}

std::string prove_store_role(StoreRole role, std::string_view token, const StoreMeeting& meeting) {
  std::string limits;
  put_u32(limits, meeting.limits.key_nbytes);
  put_u32(limits, meeting.limits.value_nbytes);
  const std::string_view name =
      role == StoreRole::server ? "distdbg store 2 server" : "distdbg store 2 client";
  const Digest digest = hmac_sha256(
      token, {name, meeting.server_nonce, meeting.client_nonce, meeting.address, limits});
  return std::string(as_view(digest));
}

std::string encode_store_verdict(StoreVerdict verdict, std::string_view token,
                                 const StoreMeeting& meeting) {
  std::string out;
  put_u32(out, static_cast<std::uint32_t>(verdict));
  put_u32(out, 0);
  put_u32(out, meeting.limits.key_nbytes);
  put_u32(out, meeting.limits.value_nbytes);
  if (verdict == StoreVerdict::proven) {
    out.append(prove_store_role(StoreRole::server, token, meeting));
  } else {
    out.append(store_proof_nbytes, '\0');
  }
  return out;
}

bool is_store_proof(std::string_view proof, StoreRole role, std::string_view token,
                    const StoreMeeting& meeting) {
  return equal_in_constant_time(proof, prove_store_role(role, token, meeting));
}

std::string make_store_nonce() {
  std::string nonce(store_nonce_nbytes, '\0');
  std::size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t got = ::getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    if (got > 0) {
      filled += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      throw Error(Fault::system, "getrandom failed", errno);
    }
  }
  return nonce;
}

}  // namespace distdbg
