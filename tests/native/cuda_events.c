// Stands for CUDA's driver: an event is an int that says its status, and a context is an address. It claims nothing
// about hardware.
static int the_context;
static __thread void* current;
static int asked;

int cuEventQuery(void* event) {
  ++asked;
  return current == &the_context ? *(volatile int*)event : 201;  // CUDA_ERROR_INVALID_CONTEXT
}

int cuCtxGetCurrent(void** context) {
  *context = &the_context;
  return 0;
}

int cuCtxSetCurrent(void* context) {
  current = context;
  return 0;
}

int times_asked(void) { return asked; }
