// The way to a rank's hub: which of its addresses answers, and the dialler's half of the handshake.
#pragma once

#include <string>
#include <vector>

#include "tcp_relay.hpp"
#include "tcp_wire.hpp"
#include "transport.hpp"
#include "wait.hpp"

namespace distdbg {

// Tries "host:port" after "host:port", again and again until one lets this rank in. Empty once
// `has_come` (asked now and then) says that the other side was faster.
// Error(network) names every address and what became of it: at the deadline, after `dial_limit_ns`, or at
// once where none can ever do. Without an address the other side is waited for. An address that does not answer holds up the others for a moment only.
constexpr std::int64_t dial_limit_ns = 10'000 * ns_per_ms;
TcpLine dial_tcp(const std::vector<std::string>& addresses, const TcpWay& way,
                 const std::string& token, const std::shared_ptr<TcpRelay>& relay, const Wait& wait,
                 Look has_come);

// As it is: not encrypted.
inline Fd dial_tcp(const std::vector<std::string>& addresses, const TcpWay& way,
                   const std::string& token, const Wait& wait, Look has_come) {
  return std::move(dial_tcp(addresses, way, token, nullptr, wait, has_come).fd);
}

}  // namespace distdbg
