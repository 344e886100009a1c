// What a thread passes by in torch's dispatcher: our kernels, while torch has an op of the short way.
#pragma once

#include <utility>

#include "attributes.hpp"

namespace distdbg {

class TorchKeys {
 public:
  // `key`: that of our kernels. Torch is imported already.
  explicit TorchKeys(nb::object key) : key_(std::move(key)) {
    const nb::object c = nb::module_::import_("torch").attr("_C");
    is_excluded_ = c.attr("_dispatch_tls_is_dispatch_key_excluded");
    exclude_ = c.attr("_dispatch_tls_set_dispatch_key_excluded");
    modes_ = c.attr("_len_torch_dispatch_stack");
  }

  // Whether somebody else passes them by, or looks at ops himself: such an op takes the long way.
  bool are_in_use() const { return are_traced() || nb::cast<bool>(is_excluded_(key_)); }

  // Whether a mode looks at ops, as when torch traces.
  bool are_traced() const { return nb::cast<int>(modes_()) != 0; }

  // For a block.
  class Excluded {
   public:
    explicit Excluded(const TorchKeys& keys) : keys_(keys) { keys_.exclude_(keys_.key_, true); }
    ~Excluded() {
      try {
        keys_.exclude_(keys_.key_, false);
      } catch (nb::python_error& error) {
        error.discard_as_unraisable(keys_.exclude_);
      }
    }
    Excluded(const Excluded&) = delete;
    Excluded& operator=(const Excluded&) = delete;

   private:
    const TorchKeys& keys_;
  };

 private:
  nb::object key_;
  nb::object is_excluded_;
  nb::object exclude_;
  nb::object modes_;
};

}  // namespace distdbg
