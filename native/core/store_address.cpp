#include "store_address.hpp"

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
    bytes.assign(10, '\0');
    bytes.append(2, '\xff');
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
