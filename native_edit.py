import re
def sub(path, pairs):
    s=open(path).read()
    for a,b in pairs:
        assert s.count(a)==1,(path,a,s.count(a))
        s=s.replace(a,b)
    open(path,'w').write(s)
sub('native/core/store_wire.hpp',[
("""//    client -> server   Proof, 80 bytes      0 magic "distdbgC"   8 u32 version   12 u32 zero
//                                           16 client nonce[32]
//                                           48 HMAC(token, "client" server nonce, client nonce)[32]
//    server -> client   Verdict, 48 bytes    0 u32 accepted (1, or 0 = another token, 2 = another version)
//                                            4 u32 zero   8 u32 largest key   12 u32 largest value
//                                           16 HMAC(token, "server" server nonce, client nonce)[32],
//                                              zeros unless accepted
//
//    Both sides thereby prove that they know the token without sending it, and a recorded handshake is
//    worth nothing, since both nonces are fresh. What follows is not encrypted.
""","""//    client -> server   Challenge, 72 bytes  0 magic "distdbgC"   8 u32 version   12 u32 zero
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
"""),
("constexpr std::uint32_t store_wire_version = 1;","constexpr std::uint32_t store_wire_version = 2;"),
("""constexpr std::size_t store_proof_nbytes = 80;
""","""constexpr std::size_t store_address_nbytes = 18;
constexpr std::size_t store_challenge_nbytes = 72;
constexpr std::size_t store_proof_nbytes = 32;
"""),
("enum class StoreVerdict : std::uint32_t { other_token = 0, accepted = 1, other_version = 2 };",
 "enum class StoreVerdict : std::uint32_t { proven = 1, other_version = 2, other_address = 3 };"),
("""// The three messages of the handshake.
std::string encode_store_hello(std::string_view server_nonce);
std::string encode_store_proof(std::string_view token, std::string_view server_nonce,
                               std::string_view client_nonce);
std::string encode_store_verdict(StoreVerdict verdict, const StoreLimits& limits,
                                 std::string_view token, std::string_view server_nonce,
                                 std::string_view client_nonce);
StoreVerdict judge_store_proof(std::string_view proof, std::string_view token,
                               std::string_view server_nonce);
bool is_store_server_proven(std::string_view verdict, std::string_view token,
                            std::string_view server_nonce, std::string_view client_nonce);
""","""// What both proofs are about.
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
"""),
])
p='native/core/store_wire.cpp'
s=open(p).read()
i=s.index("std::string encode_store_proof("); j=s.index("std::string make_store_nonce()")
s=s[:i]+'''std::string encode_store_challenge(const StoreMeeting& meeting) {
  std::string out(store_client_magic);
  put_u32(out, store_wire_version);
  put_u32(out, 0);
  out.append(meeting.client_nonce);
  out.append(meeting.address);
  out.resize(store_challenge_nbytes, '\\0');
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
    out.append(store_proof_nbytes, '\\0');
  }
  return out;
}

bool is_store_proof(std::string_view proof, StoreRole role, std::string_view token,
                    const StoreMeeting& meeting) {
  return equal_in_constant_time(proof, prove_store_role(role, token, meeting));
}

'''+s[j:]
open(p,'w').write(s)
sub('native/core/store_client.cpp',[
("""  const std::string server_nonce = hello.substr(16);
  const std::string client_nonce = make_store_nonce();
  socket.send(encode_store_proof(token, server_nonce, client_nonce), wait);
  const std::string verdict = socket.receive(store_verdict_nbytes, wait);
""","""  StoreMeeting meeting{hello.substr(16), make_store_nonce(), peer_store_address(socket.fd()), {}};
  socket.send(encode_store_challenge(meeting), wait);
  const std::string verdict = socket.receive(store_verdict_nbytes, wait);
"""),
("""  if (code != StoreVerdict::accepted) {
    throw Error(Fault::network, "the server has another token", EACCES);
  }
  if (!is_store_server_proven(verdict, token, server_nonce, client_nonce)) {
    throw Error(Fault::network, "the server does not know the token", EACCES);
  }
  return {get_u32(verdict.data() + 8), get_u32(verdict.data() + 12)};
""","""  if (code == StoreVerdict::other_address) {
    throw Error(Fault::network, "the server is not at the address that was dialled", EACCES);
  }
  meeting.limits = {get_u32(verdict.data() + 8), get_u32(verdict.data() + 12)};
  if (code != StoreVerdict::proven ||
      !is_store_proof(std::string_view(verdict).substr(16), StoreRole::server, token, meeting)) {
    throw Error(Fault::network, "the server does not know the token", EACCES);
  }
  socket.send(prove_store_role(StoreRole::client, token, meeting), wait);
  return meeting.limits;
"""),
('#include "error.hpp"\n','#include "error.hpp"\n#include "store_address.hpp"\n'),
])
sub('native/core/store_server.cpp',[
('#include "sha256.hpp"\n#include "store_table.hpp"\n','#include "store_address.hpp"\n#include "store_table.hpp"\n'),
("""  enum class State { proving, ready, parked, closed };
""","""  enum class State { challenged, proving, ready, parked, closed };
"""),
("  State state = State::proving;\n","  State state = State::challenged;\n"),
("  std::string nonce;\n","  StoreMeeting meeting;\n"),
("""  Loop(int listen_fd, std::string token, StoreLimits limits, bool shares_port,
       std::int64_t proof_timeout_ns, std::atomic<int>& client_count)
      : listen_fd_(listen_fd),
        token_(std::move(token)),
""","""  Loop(int listen_fd, std::string token, std::vector<std::string> served_as, StoreLimits limits,
       bool shares_port, std::int64_t proof_timeout_ns, std::atomic<int>& client_count)
      : listen_fd_(listen_fd),
        token_(std::move(token)),
        served_as_(std::move(served_as)),
"""),
("      connection.nonce = make_store_nonce();\n","      connection.meeting = {make_store_nonce(), {}, {}, limits_};\n"),
("encode_store_hello(connection.nonce)","encode_store_hello(connection.meeting.server_nonce)"),
("    if (connection.state == Connection::State::proving) check_proof(connection);\n",
"""    if (connection.state == Connection::State::challenged) take_challenge(connection);
    if (connection.state == Connection::State::proving) check_proof(connection);
"""),
])
p='native/core/store_server.cpp'
s=open(p).read()
i=s.index("  void check_proof("); j=s.index("  void refuse(Connection& connection)")
s=s[:i]+'''  void take_challenge(Connection& connection) {
    const std::string_view in = connection.in;
    const std::size_t magic = std::min(in.size(), store_client_magic.size());
    if (in.substr(0, magic) != store_client_magic.substr(0, magic)) return bury(connection);
    if (in.size() < store_challenge_nbytes) return;
    StoreMeeting& meeting = connection.meeting;
    meeting.client_nonce = in.substr(16, store_nonce_nbytes);
    meeting.address = in.substr(48, store_address_nbytes);
    StoreVerdict verdict = StoreVerdict::proven;
    if (get_u32(in.data() + 8) != store_wire_version) {
      verdict = StoreVerdict::other_version;
    } else if (!is_served_at(connection.fd, meeting.address)) {
      verdict = StoreVerdict::other_address;
    }
    connection.out.append(encode_store_verdict(verdict, token_, meeting));
    flush(connection);
    if (verdict != StoreVerdict::proven) return bury(connection);
    if (connection.state == Connection::State::closed) return;
    consume(connection, store_challenge_nbytes);
    connection.state = Connection::State::proving;
  }

  bool is_served_at(int fd, std::string_view address) const {
    return address == own_store_address(fd) ||
           std::find(served_as_.begin(), served_as_.end(), address) != served_as_.end();
  }

  void check_proof(Connection& connection) {
    const std::string_view in = connection.in;
    if (in.size() < store_proof_nbytes) return;
    if (!is_store_proof(in.substr(0, store_proof_nbytes), StoreRole::client, token_,
                        connection.meeting)) {
      return bury(connection);
    }
    consume(connection, store_proof_nbytes);
    set_deadline(connection, no_deadline);
    connection.state = Connection::State::ready;
  }

'''+s[j:]
open(p,'w').write(s)
open('native/core/store_address.hpp','w').write('''// The addresses of the two ends of a TCP connection, as the store's handshake has them: both ends of a
// connection that nobody stands between see the same bytes.
#pragma once

#include <string>

namespace distdbg {

// Where this end, or the other end, of the connection is: 16 bytes of IPv6 (IPv4 mapped into it) and
// the port, big-endian. Error(network) when the connection is gone, or is none of IP.
std::string own_store_address(int fd);
std::string peer_store_address(int fd);

}  // namespace distdbg
''')
open('native/core/store_address.cpp','w').write('''#include "store_address.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "error.hpp"

namespace distdbg {
namespace {

std::string to_bytes(const sockaddr_storage& address) {
  std::string bytes;
  in_port_t port = 0;
  if (address.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    bytes.assign(10, '\\0');
    bytes.append(2, '\\xff');
    bytes.append(reinterpret_cast<const char*>(&v4.sin_addr), sizeof v4.sin_addr);
    port = v4.sin_port;
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof v6);
    bytes.assign(reinterpret_cast<const char*>(&v6.sin6_addr), sizeof v6.sin6_addr);
    port = v6.sin6_port;
  } else {
    throw Error(Fault::network, "the connection is not one of IP", EPROTO);
  }
  return bytes.append(reinterpret_cast<const char*>(&port), sizeof port);
}

}  // namespace

std::string own_store_address(int fd) {
  sockaddr_storage address{};
  socklen_t nbytes = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &nbytes) != 0) {
    throw Error(Fault::network, "the connection is gone", errno);
  }
  return to_bytes(address);
}

std::string peer_store_address(int fd) {
  sockaddr_storage address{};
  socklen_t nbytes = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &nbytes) != 0) {
    throw Error(Fault::network, "the connection is gone", errno);
  }
  return to_bytes(address);
}

}  // namespace distdbg
''')
sub('native/core/store_server.hpp',[
("""//   proving --(right proof)--> ready --(a key is missing)--> parked
//      |                         ^  |                          |
""","""//   challenged, proving --(right proof)--> ready --(a key is missing)--> parked
//      |                         ^  |                          |
"""),
("A connection is in one of three states","A connection is in one of four states"),
("""  // that it is closed, but not shut down, in the end.
  StoreServer(int listen_fd, std::string token, StoreLimits limits, bool shares_port,
              std::int64_t proof_timeout_ns);
""","""  // that it is closed, but not shut down, in the end. `served_as`: at which addresses clients may dial
  // it beside those of its own host, where something translates them (18 bytes each, as on the wire).
  StoreServer(int listen_fd, std::string token, std::vector<std::string> served_as,
              StoreLimits limits, bool shares_port, std::int64_t proof_timeout_ns);
"""),
("#include <thread>\n","#include <thread>\n#include <vector>\n"),
])
sub('native/bindings/store_py.cpp',[
("#include <nanobind/stl/string.h>\n","#include <nanobind/stl/string.h>\n#include <nanobind/stl/vector.h>\n"),
("""             std::uint32_t value_nbytes, bool shares_port, std::int64_t proof_timeout_ns) {
            new (self) StoreServer(listen_fd, copy(token), {key_nbytes, value_nbytes}, shares_port,
                                   proof_timeout_ns);
""","""             std::uint32_t value_nbytes, bool shares_port, std::int64_t proof_timeout_ns,
             const std::vector<nb::bytes>& served_as) {
            std::vector<std::string> addresses;
            for (const nb::bytes& address : served_as) addresses.push_back(copy(address));
            new (self) StoreServer(listen_fd, copy(token), std::move(addresses),
                                   {key_nbytes, value_nbytes}, shares_port, proof_timeout_ns);
"""),
("""nb::arg("shares_port"), nb::arg("proof_timeout_ns"))""","""nb::arg("shares_port"), nb::arg("proof_timeout_ns"),
          nb::arg("served_as") = std::vector<nb::bytes>{})"""),
])
s=open('native/tests/test_store.cpp').read()
s=s.replace('"token", StoreLimits{}, false','"token", {}, StoreLimits{}, false'); open('native/tests/test_store.cpp','w').write(s)
