// How two ranks prove to each other who they are before their first message. All integers are
// little-endian; what follows the handshake are messages (messages.hpp). tcp_relay.hpp encrypts all of it.
//
//    hub -> dialler   Hello, 48 bytes      0 magic "distdbgH"   8 u32 version   12 u32 zero
//                                         16 nonce of the hub[32]
//    dialler -> hub   Request, 104 bytes   0 magic "distdbgL"   8 u32 version   12 u32 kind
//                                         16 u64 cookie of the group   24 u32 from   28 u32 to (group ranks)
//                                         32 nonce of the dialler[32]
//                                         64 address of the hub[18]   82 address of the dialler[18]
//                                        100 u32 options: messages_have_sums, is_lane
//    hub -> dialler   Verdict, 40 bytes    0 u32 verdict   4 u32 zero
//                                          8 proof of the hub[32], zeros unless proven
//    dialler -> hub   Proof, 32 bytes      0 proof of the dialler[32]; messages may follow at once
//
//    An address is as in store_address.hpp. A proof is HMAC(token, "distdbg link 1 hub" or "distdbg link 1
//    dialler", the hub's nonce, the request), so it covers the group, both ranks, the kind, both addresses
//    and both nonces: a recorded handshake is worth nothing, nor is one that a stranger hands through.
//    Ranks say no word beyond their request before the hub has proven itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace distdbg {

constexpr std::uint32_t tcp_wire_version = 4;
constexpr std::size_t tcp_hello_nbytes = 48;
constexpr std::size_t tcp_request_nbytes = 104;
constexpr std::size_t tcp_verdict_nbytes = 40;
constexpr std::size_t tcp_proof_nbytes = 32;

// Messages have sums (messages.hpp). Both ends have it from the same place; here it is only compared.
constexpr std::uint32_t messages_have_sums = 1;
// This is one more connection, for shares of large messages (tcp_lanes.hpp).
constexpr std::uint32_t is_lane = 2;

// Which way this is.
struct TcpWay {
  std::uint64_t cookie = 0;  // of the group
  std::uint32_t kind = 0;
  std::uint32_t from = 0;  // group ranks: who dials,
  std::uint32_t to = 0;    // and who is dialled
  std::uint32_t options = 0;
};

enum class TcpVerdict : std::uint32_t { proven = 1, other_version = 2, other_address = 3 };
enum class TcpRole : std::uint8_t { hub, dialler };

std::string encode_tcp_hello(std::string_view nonce);
std::string encode_tcp_request(const TcpWay& way, std::string_view nonce,
                               std::string_view hub_address, std::string_view dialler_address);
std::string encode_tcp_verdict(TcpVerdict verdict, std::string_view proof);
std::string prove_tcp_role(TcpRole role, std::string_view token, std::string_view hub_nonce,
                           std::string_view request);

// The dialler's half, without the socket. Each takes all bytes of what the hub has sent, and throws
// Error(network) with EPROTO (no hub, another version) or EACCES (not who it should be).
class TcpDialler {
 public:
  TcpDialler(const TcpWay& way, std::string_view token) : way_(way), token_(token) {}
  // Returns the request.
  std::string take_hello(std::string_view hello, std::string_view hub_address,
                         std::string_view own_address);
  // Returns the proof.
  std::string take_verdict(std::string_view verdict);

 private:
  TcpWay way_;
  std::string_view token_;
  std::string hub_nonce_;
  std::string request_;
};

// The hub's half, for one connection, without the socket: at most a request and a proof are held.
class TcpDoor {
 public:
  enum class State { listens, open, refused };
  // How a connection may go wrong.
  enum class Misbehaviour {
    none,
    silence,
    leaves,
    garbage,
    version,
    address,
    token,
    tls,          // from where DISTDBG_TLS is set, and here it is not
    no_tls,       // the other way round
    certificate,  // of another token, or one that is not trusted
    unexpected,
    options,
    count
  };

  TcpDoor(std::string_view token, std::string nonce, std::string own_address,
          std::string peer_address);
  // What is sent first.
  std::string hello() const { return encode_tcp_hello(nonce_); }
  // How much may be read next, so that messages stay in the socket.
  std::size_t wants() const;
  // Takes at most wants() bytes; what to send is appended to `reply`.
  State take(std::string_view bytes, std::string& reply);
  Misbehaviour misbehaviour() const { return misbehaviour_; }
  const TcpWay& way() const { return way_; }  // when open

 private:
  State refuse(Misbehaviour why) {
    misbehaviour_ = why;
    return State::refused;
  }

  std::string_view token_;
  std::string nonce_;
  std::string own_address_;
  std::string peer_address_;
  std::string in_;
  TcpWay way_;
  Misbehaviour misbehaviour_ = Misbehaviour::none;
};

// "sent what is no request of distdbg".
const char* misbehaviour_words(TcpDoor::Misbehaviour misbehaviour);

}  // namespace distdbg
