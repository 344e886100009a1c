// Addresses of a host name, without waiting for a resolver that does not answer: getaddrinfo() has no deadline,
// so it runs in a thread of its own, which those who have waited long enough leave behind.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "clock.hpp"

namespace distdbg {

using Addresses = std::shared_ptr<addrinfo>;
using LookUp = int (*)(const char*, const char*, const addrinfo*, addrinfo**);

// So long a name is waited for where nobody says otherwise.
inline constexpr std::int64_t lookup_limit_ns = 30'000 * ns_per_ms;

// Error(network) in words of the resolver; with ETIMEDOUT when it has not answered and `goes_on`, which is
// asked every 40 ms and may throw, is false. An address is no name: it is not waited for. Who asks for a
// name that is being looked up waits for the same answer.
Addresses look_up(const std::string& host, const std::string& port,
                  const std::function<bool()>& goes_on, LookUp ask = &::getaddrinfo);

}  // namespace distdbg
