// The addresses of the two ends of a TCP connection, as the store's handshake has them: both ends of a
// connection that nobody stands between see the same bytes.
#pragma once

#include <string>

namespace distdbg {

// Where this end, or the other end, of the connection is: 16 bytes of IPv6 (IPv4 mapped into it) and
// the port, big-endian. Error(network) when the connection is gone, or is none of IP.
std::string own_store_address(int fd);
std::string peer_store_address(int fd);

}  // namespace distdbg
