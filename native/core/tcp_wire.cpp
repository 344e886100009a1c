#include "tcp_wire.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "error.hpp"
#include "sha256.hpp"
#include "store_wire.hpp"

namespace distdbg {
namespace {

constexpr std::string_view hub_magic = "distdbgH";
constexpr std::string_view dialler_magic = "distdbgL";

}  // namespace

std::string encode_tcp_hello(std::string_view nonce) {
  std::string out(hub_magic);
  put_u32(out, tcp_wire_version);
  put_u32(out, 0);
  return out.append(nonce);
}

std::string encode_tcp_request(const TcpWay& way, std::string_view nonce,
                               std::string_view hub_address, std::string_view dialler_address) {
  std::string out(dialler_magic);
  put_u32(out, tcp_wire_version);
  put_u32(out, way.kind);
  put_u32(out, static_cast<std::uint32_t>(way.cookie & 0xffffffffU));
  put_u32(out, static_cast<std::uint32_t>(way.cookie >> 32));
  put_u32(out, way.from);
  put_u32(out, way.to);
  out.append(nonce).append(hub_address).append(dialler_address);
  put_u32(out, way.options);
  return out;
}

std::string encode_tcp_verdict(TcpVerdict verdict, std::string_view proof) {
  std::string out;
  put_u32(out, static_cast<std::uint32_t>(verdict));
  put_u32(out, 0);
  out.append(proof);
  out.resize(tcp_verdict_nbytes, '\0');
  return out;
}

std::string prove_tcp_role(TcpRole role, std::string_view token, std::string_view hub_nonce,
                           std::string_view request) {
  const std::string_view name =
      role == TcpRole::hub ? "distdbg link 1 hub" : "distdbg link 1 dialler";
  return std::string(as_view(hmac_sha256(token, {name, hub_nonce, request})));
}

std::string TcpDialler::take_hello(std::string_view hello, std::string_view hub_address,
                                   std::string_view own_address) {
  if (hello.starts_with(tls_magic)) throw Error(Fault::network, needs_tls_words, EPROTO);
  if (hello.size() != tcp_hello_nbytes || !hello.starts_with(hub_magic))
    throw Error(Fault::network, "what answers there is no rank of distdbg", EPROTO);
  const std::uint32_t version = get_u32(hello.data() + 8);
  if (version != tcp_wire_version)
    throw Error(Fault::network,
                "it speaks version " + std::to_string(version) +
                    " of the protocol between hosts, " + "this process version " +
                    std::to_string(tcp_wire_version),
                EPROTO);
  hub_nonce_ = hello.substr(16);
  request_ = encode_tcp_request(way_, make_store_nonce(), hub_address, own_address);
  return request_;
}

std::string TcpDialler::take_verdict(std::string_view verdict) {
  const auto code = static_cast<TcpVerdict>(get_u32(verdict.data()));
  if (code == TcpVerdict::other_version)
    throw Error(Fault::network, "it refuses this version of the protocol between hosts", EPROTO);
  if (code == TcpVerdict::other_address)
    throw Error(Fault::network, "it sees other addresses than this end: something is in between",
                EACCES);
  if (code != TcpVerdict::proven ||
      !equal_in_constant_time(verdict.substr(8),
                              prove_tcp_role(TcpRole::hub, token_, hub_nonce_, request_)))
    throw Error(Fault::network, "it does not know the token of this run", EACCES);
  return prove_tcp_role(TcpRole::dialler, token_, hub_nonce_, request_);
}

TcpDoor::TcpDoor(std::string_view token, std::string nonce, std::string own_address,
                 std::string peer_address)
    : token_(token),
      nonce_(std::move(nonce)),
      own_address_(std::move(own_address)),
      peer_address_(std::move(peer_address)) {}

std::size_t TcpDoor::wants() const {
  const std::size_t whole =
      in_.size() < tcp_request_nbytes ? tcp_request_nbytes : tcp_request_nbytes + tcp_proof_nbytes;
  return whole - in_.size();
}

TcpDoor::State TcpDoor::take(std::string_view bytes, std::string& reply) {
  const bool is_request = in_.size() < tcp_request_nbytes;
  in_.append(bytes.substr(0, wants()));
  const std::string_view in = in_;
  if (is_request) {
    const std::size_t magic = std::min(in.size(), dialler_magic.size());
    if (in.substr(0, magic) != dialler_magic.substr(0, magic))
      return refuse(begins_tls(in) ? Misbehaviour::tls : Misbehaviour::garbage);
    if (in.size() < tcp_request_nbytes) return State::listens;
    const auto u32 = [&](std::size_t at) { return get_u32(in.data() + at); };
    way_ = {std::uint64_t{u32(16)} | std::uint64_t{u32(20)} << 32, u32(12), u32(24), u32(28),
            u32(100)};
    if (u32(8) != tcp_wire_version) {
      reply.append(encode_tcp_verdict(TcpVerdict::other_version, {}));
      return refuse(Misbehaviour::version);
    }
    if (in.substr(64, store_address_nbytes) != own_address_ ||
        in.substr(82, store_address_nbytes) != peer_address_) {
      reply.append(encode_tcp_verdict(TcpVerdict::other_address, {}));
      return refuse(Misbehaviour::address);
    }
    reply.append(
        encode_tcp_verdict(TcpVerdict::proven, prove_tcp_role(TcpRole::hub, token_, nonce_, in)));
    return State::listens;
  }
  if (in.size() < tcp_request_nbytes + tcp_proof_nbytes) return State::listens;
  const std::string_view request = in.substr(0, tcp_request_nbytes);
  if (!equal_in_constant_time(in.substr(tcp_request_nbytes),
                              prove_tcp_role(TcpRole::dialler, token_, nonce_, request)))
    return refuse(Misbehaviour::token);
  return State::open;
}

const char* misbehaviour_words(TcpDoor::Misbehaviour misbehaviour) {
  switch (misbehaviour) {
    case TcpDoor::Misbehaviour::silence: return "connected and did not say in time who it is";
    case TcpDoor::Misbehaviour::leaves: return "left before it had proven who it is";
    case TcpDoor::Misbehaviour::garbage: return "sent what is no request of distdbg";
    case TcpDoor::Misbehaviour::version: return "speaks another version of the protocol";
    case TcpDoor::Misbehaviour::address: return "dialled by addresses that this end does not see";
    case TcpDoor::Misbehaviour::tls:
      return "speaks TLS, and DISTDBG_TLS is not set here: set it on all hosts, or on none";
    case TcpDoor::Misbehaviour::no_tls:
      return "does not speak TLS, and DISTDBG_TLS=1 is set here: set it on all hosts, or on none";
    case TcpDoor::Misbehaviour::certificate:
      return "has no certificate of this run: another token, or not signed by DISTDBG_TLS_CA";
    case TcpDoor::Misbehaviour::token: return "does not know the token of this run";
    case TcpDoor::Misbehaviour::unexpected:
      return "knows the token and dialled a rank that no group here has";
    case TcpDoor::Misbehaviour::options:
      return "has another DISTDBG_LINK_CHECKSUM than the group here";
    default: return "";
  }
}

}  // namespace distdbg
