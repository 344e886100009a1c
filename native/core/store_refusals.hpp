// Which clients of a store left, or were turned away, without having proven that they know the token.
#pragma once

#include <mutex>
#include <string>
#include <utility>

namespace distdbg {

class StoreRefusals {
 public:
  void note(const std::string& peer) {
    const std::lock_guard lock(mutex_);
    ++count_;
    last_ = peer;
  }

  // How many, and the address of the last one as in store_address.hpp; '' where it was gone.
  std::pair<int, std::string> get() const {
    const std::lock_guard lock(mutex_);
    return {count_, last_};
  }

 private:
  mutable std::mutex mutex_;
  int count_ = 0;
  std::string last_;
};

}  // namespace distdbg
