#include "bindings.hpp"

NB_MODULE(_native, module) {
  // A program that ends without destroy_process_group is no reason to print pages at its users; the
  // tests turn the warnings on.
  nanobind::set_leak_warnings(false);
  module.def("set_leak_warnings", [](bool on) { nanobind::set_leak_warnings(on); });
  distdbg::bind_errors(module);
  distdbg::bind_control(module);
  distdbg::bind_reduce(module);
  distdbg::bind_store(module);
  distdbg::bind_record(module);
  distdbg::bind_ops(module);
  distdbg::bind_tcp(module);
  distdbg::bind_ucx(module);
  distdbg::bind_group(module);
  distdbg::bind_known_calls(module);
  distdbg::bind_noted_option(module);
  distdbg::bind_short_way(module);
  distdbg::bind_reducer(module);
  distdbg::bind_tap(module);
  distdbg::bind_tap_messages(module);
  distdbg::bind_shared_heap(module);
}
