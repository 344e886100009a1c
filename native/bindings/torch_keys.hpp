// What a thread passes by in torch's dispatcher: our kernels, while torch has an op of the short way.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <utility>

#include "attributes.hpp"

namespace distdbg {

// The functions of torch's libc10 that are behind torch._C's of the same names, each some 0.15 us cheaper than
// those. They are looked up by their names in C++; null: this torch has them no longer.
struct C10Functions {
  C10Functions() {
    void* const library = ::dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;  // it stays open otherwise, as long as torch does
    find(library, "_ZN3c104impl28tls_is_dispatch_key_excludedENS_11DispatchKeyE", is_excluded);
    find(library, "_ZN3c104impl29tls_set_dispatch_key_excludedENS_11DispatchKeyEb", exclude);
    find(library, "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv", count_modes);
  }

  bool are_found() const {
    return is_excluded != nullptr && exclude != nullptr && count_modes != nullptr;
  }

  // A dispatch key is a number of 16 bits.
  bool (*is_excluded)(std::uint32_t key) = nullptr;
  void (*exclude)(std::uint32_t key, bool value) = nullptr;
  std::int64_t (*count_modes)() = nullptr;

 private:
  template <class Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
  }
};

class TorchKeys {
 public:
  // `key`: that of our kernels. Torch is imported already.
  explicit TorchKeys(nb::object key) : key_(std::move(key)) {
    const nb::object c = nb::module_::import_("torch").attr("_C");
    is_excluded_ = c.attr("_dispatch_tls_is_dispatch_key_excluded");
    exclude_ = c.attr("_dispatch_tls_set_dispatch_key_excluded");
    modes_ = c.attr("_len_torch_dispatch_stack");
    number_ = nb::cast<std::uint32_t>(nb::int_(key_));
    is_direct_ = c10_.are_found() && do_both_agree();
  }

  // Whether somebody else passes them by, or looks at ops himself: such an op takes the long way.
  bool are_in_use() const { return are_traced() || is_excluded(); }

  // Whether a mode looks at ops, as when torch traces.
  bool are_traced() const {
    return (is_direct_ ? c10_.count_modes() : nb::cast<std::int64_t>(modes_())) != 0;
  }

  bool is_excluded() const {
    return is_direct_ ? c10_.is_excluded(number_) : nb::cast<bool>(is_excluded_(key_));
  }

  // Whether torch is asked past its Python.
  bool is_direct() const { return is_direct_; }

  // For a block.
  class Excluded {
   public:
    explicit Excluded(const TorchKeys& keys) : keys_(keys) { keys_.exclude(true); }
    ~Excluded() {
      try {
        keys_.exclude(false);
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
  void exclude(bool value) const {
    if (is_direct_)
      c10_.exclude(number_, value);
    else
      exclude_(key_, value);
  }

  // Whether what one sets is what the other sees, in this torch.
  bool do_both_agree() const {
    const bool before = nb::cast<bool>(is_excluded_(key_));
    if (c10_.is_excluded(number_) != before) return false;
    exclude_(key_, !before);
    const bool sees = c10_.is_excluded(number_) != before;
    c10_.exclude(number_, before);
    const bool is_seen = nb::cast<bool>(is_excluded_(key_)) == before;
    exclude_(key_, before);
    return sees && is_seen && c10_.count_modes() == nb::cast<std::int64_t>(modes_());
  }

  nb::object key_;
  nb::object is_excluded_;
  nb::object exclude_;
  nb::object modes_;
  std::uint32_t number_ = 0;
  C10Functions c10_;
  bool is_direct_ = false;
};

}  // namespace distdbg
