// The bytes between a TCPStore client and its server. All integers are little-endian.
//
// 1. Handshake, once per connection; nothing else is read before it has succeeded.
//
//    server -> client   Hello, 48 bytes      0 magic "distdbgS"   8 u32 version   12 u32 zero
//                                           16 server nonce[32]
//    client -> server   Challenge, 72 bytes  0 magic "distdbgC"   8 u32 version   12 u32 zero
//                                           16 client nonce[32]
//                                           48 the address dialled[18]   66 zeros[6]
//    server -> client   Verdict, 48 bytes    0 u32 verdict (1 = proven, 2 = another version, 3 = it is not
//                                              served at this address)
//                                            4 u32 zero   8 u32 largest key   12 u32 largest value
//                                           16 proof of the server[32], zeros unless proven
//    client -> server   Proof, 32 bytes      0 proof of the client[32]; requests may follow at once
//
//    An address is 16 bytes of IPv6 (IPv4 as ::ffff:a.b.c.d) and the port, big-endian. A proof is
//    HMAC(token, "distdbg store 2 server" or "distdbg store 2 client", server nonce, client nonce,
//    address, largest key and value). The client says no word beyond its nonce before the server has
//    proven itself. A recorded handshake is worth nothing, since both nonces are fresh; nor is one with
//    another store that a stranger hands through, since that is served at another address. What follows
//    is not encrypted.
//
// 2. Messages. A client sends one request and reads one reply before it sends the next, so neither side
//    ever holds more than one of each per connection. Requests and replies look alike:
//
//      0        4    5           8          16
//      +--------+----+-----------+----------+-------------------------------------------
//      | u32    | u8 | zeros [3] | i64      | fields, each: u32 nbytes, then the bytes
//      | nbytes | op |           | number   |
//      +--------+----+-----------+----------+-------------------------------------------
//      nbytes counts the fields only. In a reply the byte at 4 is the status.
//
//      `set rank0 hi` has 4+5+4+2 = 15 bytes of fields:
//        0f 00 00 00  01 00 00 00  00 00 00 00 00 00 00 00  05 00 00 00 "rank0"  02 00 00 00 "hi"
//
//      op            number        fields                   reply: number, fields
//      set           -             key, value, key, value.. -
//      get           timeout_ns    key, key, ..             values, when all are there
//      add           amount        key                      the sum
//      append        -             key, value               -
//      check         -             key, key, ..             1 if all are there, else 0
//      compare_set   -             key, expected, desired   the value afterwards
//      delete_key    -             key                      1 if it was there, else 0
//      list_keys     -             prefix                   keys that begin with it
//      num_keys      -             prefix                   how many begin with it
//      wait          timeout_ns    key, key, ..             -, when all are there
//      queue_push    -             key, value               -
//      queue_pop     timeout_ns    key                      value; number -1 in the request: do not wait
//      queue_len     -             key                      length
//      join          -             who (text)               how many have joined, with this one
//      await_joined  timeout_ns    count (decimal text)     -, when so many have joined
//
//      status        meaning                                number, fields
//      ok
//      timeout       the server waited timeout_ns           how many keys are missing; the first few.
//                                                           await_joined: how many joined; who they are
//      empty         queue_pop that does not wait
//      not_a_number  add to a value that is none            0; the value's first bytes
//      overflow      add leaves 64 bits
//      too_large     the reply would exceed the limit
//      bad_request   the message makes no sense             the connection is closed after it
//
// A key that begins with a zero byte is internal: it works as any other and is neither listed nor counted.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distdbg {

constexpr std::string_view store_server_magic = "distdbgS";
constexpr std::string_view store_client_magic = "distdbgC";
// What a server that speaks TLS says in clear, in the length of a Hello, to a client that says nothing.
constexpr std::string_view tls_magic = "distdbgT";
constexpr const char* needs_tls_words =
    "it speaks TLS: set DISTDBG_TLS=1 here as well, or on no host";
// A first byte or more of a client that speaks TLS.
inline bool begins_tls(std::string_view bytes) {
  return !bytes.empty() && bytes[0] == 0x16 && (bytes.size() < 2 || bytes[1] == 3);
}
constexpr std::uint32_t store_wire_version = 2;
constexpr std::size_t store_nonce_nbytes = 32;
constexpr std::size_t store_hello_nbytes = 48;
constexpr std::size_t store_address_nbytes = 18;
constexpr std::size_t store_challenge_nbytes = 72;
constexpr std::size_t store_proof_nbytes = 32;
constexpr std::size_t store_verdict_nbytes = 48;
constexpr std::size_t store_header_nbytes = 16;

enum class StoreOp : std::uint8_t {
  set = 1,
  get,
  add,
  append,
  check,
  compare_set,
  delete_key,
  list_keys,
  num_keys,
  wait,
  queue_push,
  queue_pop,
  queue_len,
  join,
  await_joined,
};
constexpr std::uint8_t store_last_op = static_cast<std::uint8_t>(StoreOp::await_joined);

enum class StoreStatus : std::uint8_t {
  ok = 0,
  timeout,
  empty,
  not_a_number,
  overflow,
  too_large,
  bad_request,
};

enum class StoreVerdict : std::uint32_t { proven = 1, other_version = 2, other_address = 3 };

// What a server takes; clients learn it in the handshake and refuse earlier, with a better text.
struct StoreLimits {
  std::uint32_t key_nbytes = 64u << 10;
  std::uint32_t value_nbytes = 64u << 20;

  // A message may carry many small pairs, or one largest pair (compare_set: two values).
  std::size_t message_nbytes() const {
    return 2 * std::size_t{value_nbytes} + key_nbytes + (std::size_t{1} << 20);
  }
};

struct StoreMessage {
  std::uint8_t code = 0;  // StoreOp or StoreStatus
  std::int64_t number = 0;
  std::vector<std::string_view> fields;
};

inline void put_u32(std::string& out, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8)
    out.push_back(static_cast<char>(value >> shift & 0xff));
}

inline std::uint32_t get_u32(const char* at) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < 4; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(at[i])) << (8 * i);
  }
  return value;
}

inline std::int64_t get_i64(const char* at) {
  return static_cast<std::int64_t>(std::uint64_t{get_u32(at)} | std::uint64_t{get_u32(at + 4)}
                                                                    << 32);
}

// Appends one message field by field; finish() fills in the length.
class StoreEncoder {
 public:
  StoreEncoder(std::string& out, std::uint8_t code, std::int64_t number);
  void field(std::string_view bytes) {
    put_u32(out_, static_cast<std::uint32_t>(bytes.size()));
    out_.append(bytes);
  }
  void finish();

 private:
  std::string& out_;
  std::size_t begin_;
};

// The length of the message that starts `buffer`, once its header is there.
std::optional<std::size_t> store_message_nbytes(std::string_view buffer);

// The fields point into `bytes`, one whole message. False when the fields do not fill it exactly.
bool decode_store_message(std::string_view bytes, StoreMessage& message);

// What both proofs are about.
struct StoreMeeting {
  std::string server_nonce;
  std::string client_nonce;
  std::string address;  // where the client has dialled
  StoreLimits limits;
};

enum class StoreRole : std::uint8_t { server, client };

std::string prove_store_role(StoreRole role, std::string_view token, const StoreMeeting& meeting);

// The messages of the handshake; the last one is the client's proof alone.
std::string encode_store_hello(std::string_view server_nonce);
std::string encode_store_challenge(const StoreMeeting& meeting);
std::string encode_store_verdict(StoreVerdict verdict, std::string_view token,
                                 const StoreMeeting& meeting);
bool is_store_proof(std::string_view proof, StoreRole role, std::string_view token,
                    const StoreMeeting& meeting);

// 32 bytes from the system's random generator.
std::string make_store_nonce();

}  // namespace distdbg
