// Stands for CUDA's driver: contexts, streams and events that do nothing. It claims nothing about hardware.
//
// An event that is recorded passes at once, or, while streams hold, when pass_next() says so, in the order of
// records. While the queue is full, to record one blocks.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { success = 0, invalid_context = 201, invalid_handle = 400, not_ready = 600, most = 65536 };
enum { device_count = 2, first_device = 7 };

struct stream {
  int device;
  int is_capturing;
};
struct event {
  int device;
  int status;
  float at_ms;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int contexts[device_count];
static struct stream streams[device_count];
static __thread int* current;
static struct event* waiting[most];
static int waiting_count, waiting_first, made, holds, asked_elsewhere;
static volatile int is_full;
static float now_ms;

int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= device_count) return 101;
  *device = first_device + ordinal;
  return success;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &contexts[device - first_device];
  return success;
}

int cuCtxGetCurrent(void** context) {
  *context = current;
  return success;
}

int cuCtxSetCurrent(void* context) {
  current = context;
  return success;
}

// The default stream is that of the current context.
static struct stream* find(void* stream) {
  if (stream != NULL) return stream;
  if (current == NULL) return NULL;
  streams[current - contexts].device = (int)(current - contexts);
  return &streams[current - contexts];
}

int cuStreamIsCapturing(void* stream, int* status) {
  const struct stream* in = find(stream);
  if (in == NULL) return invalid_context;
  *status = in->is_capturing;
  return success;
}

int cuStreamCreate(void** stream, unsigned flags) {
  if (current == NULL || flags != 1) return invalid_context;
  struct stream* created = calloc(1, sizeof *created);
  created->device = (int)(current - contexts);
  *stream = created;
  return success;
}

int cuEventCreate(void** made_event, unsigned flags) {
  if (current == NULL || flags != 0) return invalid_context;
  struct event* event = calloc(1, sizeof *event);
  event->device = (int)(current - contexts);
  pthread_mutex_lock(&lock);
  ++made;
  pthread_mutex_unlock(&lock);
  *made_event = event;
  return success;
}

int cuEventRecord(void* recorded, void* stream) {
  struct event* event = recorded;
  const struct stream* in = find(stream);
  if (in == NULL || current != &contexts[event->device] || event->device != in->device)
    return invalid_handle;
  while (is_full) usleep(1000);
  pthread_mutex_lock(&lock);
  event->status = holds ? not_ready : success;
  event->at_ms = now_ms;
  if (holds) waiting[waiting_count++ % most] = event;
  pthread_mutex_unlock(&lock);
  return success;
}

int cuEventQuery(void* asked) {
  struct event* event = asked;
  pthread_mutex_lock(&lock);
  if (current != &contexts[event->device]) ++asked_elsewhere;
  const int status = event->status;
  pthread_mutex_unlock(&lock);
  return status;
}

int cuEventElapsedTime(float* ms, void* begin, void* end) {
  struct event *from = begin, *to = end;
  if (from->status != success || to->status != success) return not_ready;
  *ms = to->at_ms - from->at_ms;
  return success;
}

// -------------------------------------------------------------------------- for the tests

void* stream_of(int device) {
  streams[device].device = device;
  return &streams[device];
}
void set_capturing(int device, int is_capturing) { streams[device].is_capturing = is_capturing; }
void set_full(int it_is) { is_full = it_is; }
void set_holds(int it_holds) { holds = it_holds; }
void set_now(float ms) { now_ms = ms; }
int count_made(void) { return made; }
int count_asked_elsewhere(void) { return asked_elsewhere; }
int current_device(void) { return current == NULL ? -1 : (int)(current - contexts); }
void set_current_device(int device) { current = device < 0 ? NULL : &contexts[device]; }

// The oldest that has not passed does, at this time; how many are left.
int pass_next(float ms) {
  pthread_mutex_lock(&lock);
  if (waiting_first < waiting_count) {
    struct event* event = waiting[waiting_first++ % most];
    event->at_ms = ms;
    event->status = success;
  }
  const int left = waiting_count - waiting_first;
  pthread_mutex_unlock(&lock);
  return left;
}
