// A GPU's driver, opened at run time: no header of it is needed to build.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

#include "error.hpp"

namespace distdbg {

// Never closed: a driver has threads and handlers of its own.
class DriverLibrary {
 public:
  // Throws Error(Fault::network) with the linker's words where it cannot be opened.
  explicit DriverLibrary(std::string path)
      : path_(std::move(path)), library_(::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ != nullptr) return;
    const char* const words = ::dlerror();
    throw Error(Fault::network, words != nullptr ? words : path_ + " cannot be opened");
  }

  template <class Function>
  void find(const char* name, Function*& function) const {
    find_if_there(name, function);
    if (function == nullptr) throw Error(Fault::network, path_ + " has no " + name);
  }
  template <class Function>
  void find_if_there(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(::dlsym(library_, name));
  }

 private:
  const std::string path_;
  void* const library_;
};

}  // namespace distdbg
