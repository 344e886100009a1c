// What is used of libucp, by its public ABI: it is opened at run time, and no header of it is needed to build.
//
// Every structure begins with a mask of the fields that are set, and the library reads no others. So each
// may end here where the last field that is used ends, and later versions may add more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace distdbg::ucx {

// An enum of one byte there. What is not done yet is a pointer where a status is asked for as one.
using Status = std::int8_t;
constexpr Status ok = 0, in_progress = 1, err_last = -100;

struct Context;
struct Worker;
struct Endpoint;
struct Address;

inline bool is_error(const void* status) {
  return reinterpret_cast<std::uintptr_t>(status) >=
         static_cast<std::uintptr_t>(static_cast<std::intptr_t>(err_last));
}
inline Status status_of(const void* status) {
  return static_cast<Status>(reinterpret_cast<std::intptr_t>(status));
}

struct ContextParams {
  static constexpr std::uint64_t has_features = 1U << 0;
  static constexpr std::uint64_t feature_wakeup = 1U << 4, feature_am = 1U << 6;
  std::uint64_t mask;
  std::uint64_t features;
};

struct WorkerParams {
  static constexpr std::uint64_t has_thread_mode = 1U << 0, has_flags = 1U << 5;
  static constexpr std::int32_t serialized = 1;  // any thread, one at a time
  static constexpr std::uint64_t ignore_request_leak = 1U << 0;
  std::uint64_t mask;
  std::int32_t thread_mode;
  std::uint64_t cpu_mask[16];
  std::uint32_t events;
  void* user_data;
  std::int32_t event_fd;
  std::uint64_t flags;
};
static_assert(offsetof(WorkerParams, events) == 144 && offsetof(WorkerParams, flags) == 168);

using OnError = void (*)(void* arg, Endpoint* endpoint, Status status);

struct EndpointParams {
  static constexpr std::uint64_t has_address = 1U << 0, has_error_mode = 1U << 1,
                                 has_error_handler = 1U << 2;
  static constexpr std::int32_t no_errors = 0, errors_of_peer = 1;
  std::uint64_t mask;
  const Address* address;
  std::int32_t error_mode;
  OnError on_error;
  void* error_arg;
};
static_assert(offsetof(EndpointParams, on_error) == 24);

struct MessageFacts {
  static constexpr std::uint64_t has_reply_endpoint = 1U << 0, is_kept = 1U << 16,
                                 is_rendezvous = 1U << 17;
  std::uint64_t attributes;
  Endpoint* reply_endpoint;
};

// Returns in_progress to keep `data`.
using OnMessage = Status (*)(void* arg, const void* header, std::size_t header_nbytes, void* data,
                             std::size_t nbytes, const MessageFacts* facts);

struct HandlerParams {
  static constexpr std::uint64_t has_all = 0xF;
  static constexpr std::uint32_t whole_messages = 1U << 0, persistent_data = 1U << 1;
  std::uint64_t mask;
  std::uint32_t id;
  std::uint32_t flags;
  OnMessage on_message;
  void* arg;
};
static_assert(offsetof(HandlerParams, on_message) == 16);

using OnSent = void (*)(void* request, Status status, void* user_data);
using OnFetched = void (*)(void* request, Status status, std::size_t nbytes, void* user_data);

struct RequestParams {
  static constexpr std::uint32_t has_callback = 1U << 1, has_user_data = 1U << 2,
                                 has_flags = 1U << 4;
  static constexpr std::uint32_t send_with_reply = 1U << 0;  // flags of a send
  static constexpr std::uint32_t close_by_force = 1U << 0;   // flags of a close
  std::uint32_t mask;
  std::uint32_t flags;
  void* request;
  union {
    OnSent on_sent;
    OnFetched on_fetched;
  };
  std::uint64_t datatype;
  void* user_data;
  void* reply_buffer;
  std::int32_t memory_type;
  void* receive_info;
  void* memory_handle;
};
static_assert(offsetof(RequestParams, user_data) == 32 && sizeof(RequestParams) == 72);

// By the names of the library, without "ucp_".
struct Functions {
  void (*get_version)(unsigned* major, unsigned* minor, unsigned* release);
  Status (*init_version)(unsigned major, unsigned minor, const ContextParams*, const void* config,
                         Context**);
  void (*cleanup)(Context*);
  Status (*worker_create)(Context*, const WorkerParams*, Worker**);
  void (*worker_destroy)(Worker*);
  Status (*worker_get_address)(Worker*, Address**, std::size_t* nbytes);
  void (*worker_release_address)(Worker*, Address*);
  unsigned (*worker_progress)(Worker*);
  Status (*worker_get_efd)(Worker*, int* fd);
  Status (*worker_arm)(Worker*);
  Status (*worker_set_am_recv_handler)(Worker*, const HandlerParams*);
  Status (*ep_create)(Worker*, const EndpointParams*, Endpoint**);
  void* (*ep_close_nbx)(Endpoint*, const RequestParams*);
  void* (*am_send_nbx)(Endpoint*, unsigned id, const void* header, std::size_t header_nbytes,
                       const void* data, std::size_t nbytes, const RequestParams*);
  void* (*am_recv_data_nbx)(Worker*, void* data, void* into, std::size_t nbytes,
                            const RequestParams*);
  void (*am_data_release)(Worker*, void* data);
  Status (*request_check_status)(void* request);
  void (*request_free)(void* request);
  const char* (*status_string)(Status);  // of libucs
};

// Opens the library, for as long as the process lives. Error(network) in words where that cannot be done,
// or where it is too old.
Functions open_library(const std::string& path);

}  // namespace distdbg::ucx
