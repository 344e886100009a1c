// Which clients of a store left, or were turned away, without having proven that they know the token.
#pragma once

#include <cerrno>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "store_wire.hpp"
#include "tcp_relay.hpp"

namespace distdbg {

// What the user is to change so that a client may begin, as far as its first bytes and its relay tell it.
inline std::string why_not_tls(std::string_view first, const TcpRelayed* relayed) {
  if (begins_tls(first)) return "it speaks TLS, and DISTDBG_TLS is not set here";
  if (relayed == nullptr) return {};
  const auto [error_number, words] = relayed->failure();
  return error_number == EPROTO || error_number == EACCES ? words : std::string();
}

class StoreRefusals {
 public:
  // `why`: what the user is to do about it, where that is known.
  void note(const std::string& peer, std::string why) {
    const std::lock_guard lock(mutex_);
    ++count_;
    last_ = peer;
    if (!why.empty()) why_ = std::move(why);
  }

  // How many, and the address of the last one as in store_address.hpp; '' where it was gone.
  std::pair<int, std::string> get() const {
    const std::lock_guard lock(mutex_);
    return {count_, last_};
  }

  // Of the last one of which it is known; '' else.
  std::string why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  int count_ = 0;
  std::string last_;
  std::string why_;
};

}  // namespace distdbg
