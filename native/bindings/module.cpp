#include "bindings.hpp"

NB_MODULE(_native, module) {
  distdbg::bind_errors(module);
  distdbg::bind_reduce(module);
  distdbg::bind_store(module);
  distdbg::bind_group(module);
}
