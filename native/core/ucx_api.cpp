#include "ucx_api.hpp"

#include <dlfcn.h>

#include "error.hpp"

namespace distdbg::ucx {
namespace {

// Messages with a persistent payload, and structures as they are declared.
constexpr unsigned least_major = 1, least_minor = 12;

std::string why() {
  const char* const words = ::dlerror();
  return words != nullptr ? words : "no reason is given";
}

class Opened {
 public:
  explicit Opened(const std::string& path)
      : path_(path), handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw Error(Fault::network, "libucp cannot be opened: " + why());
  }
  template <class Function>
  void find(const char* name, Function*& function) const {
    void* const found = ::dlsym(handle_, name);
    if (found == nullptr) throw Error(Fault::network, path_ + " has no " + name + ": " + why());
    function = reinterpret_cast<Function*>(found);
  }

 private:
  const std::string path_;
  void* const handle_;  // never closed: what it has hooked into would be gone
};

}  // namespace

Functions open_library(const std::string& path) {
  const Opened opened(path);
  Functions f{};
  opened.find("ucp_get_version", f.get_version);
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  f.get_version(&major, &minor, &release);
  if (major != least_major || minor < least_minor)
    throw Error(Fault::network, path + " has version " + std::to_string(major) + "." +
                                    std::to_string(minor) + "." + std::to_string(release) +
                                    "; needed is 1.12 or a later 1.x");
  opened.find("ucp_init_version", f.init_version);
  opened.find("ucp_cleanup", f.cleanup);
  opened.find("ucp_worker_create", f.worker_create);
  opened.find("ucp_worker_destroy", f.worker_destroy);
  opened.find("ucp_worker_get_address", f.worker_get_address);
  opened.find("ucp_worker_release_address", f.worker_release_address);
  opened.find("ucp_worker_progress", f.worker_progress);
  opened.find("ucp_worker_get_efd", f.worker_get_efd);
  opened.find("ucp_worker_arm", f.worker_arm);
  opened.find("ucp_worker_set_am_recv_handler", f.worker_set_am_recv_handler);
  opened.find("ucp_ep_create", f.ep_create);
  opened.find("ucp_ep_close_nbx", f.ep_close_nbx);
  opened.find("ucp_am_send_nbx", f.am_send_nbx);
  opened.find("ucp_am_recv_data_nbx", f.am_recv_data_nbx);
  opened.find("ucp_am_data_release", f.am_data_release);
  opened.find("ucp_request_check_status", f.request_check_status);
  opened.find("ucp_request_free", f.request_free);
  opened.find("ucs_status_string", f.status_string);
  return f;
}

}  // namespace distdbg::ucx
