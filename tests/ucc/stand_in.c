/* A stand-in for libucc: the functions that distdbg calls, with the structures as the public interface lays
   them out. It carries out each collective by the exchange that it was given to find the others with, so one
   block of at most SLOT bytes of each rank. It shows that the calls are well formed, and nothing of UCC. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SLOT = 4096, OK = 0, BUSY = 1, UNSUPPORTED = -1, WRONG = -3, TOO_LARGE = -5 };
enum { ALLGATHER = 1, ALLGATHERV = 2, ALLREDUCE = 4, ALLTOALLV = 16, BARRIER = 32, BCAST = 64, GATHERV = 1024,
       REDUCE = 2048, REDUCE_SCATTER = 4096, REDUCE_SCATTERV = 8192, SCATTERV = 32768 };
typedef int status;
typedef struct {
  status (*allgather)(void*, void*, size_t, void*, void**);
  status (*test)(void*);
  status (*release)(void*);
  void* info;
  uint32_t count, place;
} oob;
typedef struct { uint64_t mask; int thread_mode; } lib_params;
typedef struct { uint64_t mask; int type, sync_type; oob exchange; } context_params;
typedef struct {
  uint64_t mask, flags;
  int ordering;
  uint64_t outstanding, place, *places;
  int range;
  uint64_t size;
  int sync_type;
  oob exchange;
} team_params;
typedef struct { void* buffer; uint64_t count, type; int memory; } even;
typedef struct { void* buffer; uint64_t *counts, *begins, type; int memory; } uneven;
typedef union { even e; uneven v; } memory;
typedef struct {
  uint64_t mask;
  int kind;
  memory from, to;
  int op;
  uint64_t flags, root;
  int error_type;
  uint16_t tag;
} arguments;
typedef struct team { oob exchange; struct context* context; void* opening; char* words; } team;
typedef struct request {
  status state; /* first: the interface reads it there */
  arguments args;
  team* of;
  void* exchange;
  char mine[SLOT], *all;
  struct request* next;
} request;
typedef struct context { request* open; } context;

static const int SIZES[] = {1, 2, 4, 8, 16, 1, 2, 4, 8, 16, 2, 4, 8};
static size_t width(uint64_t type) { return SIZES[type >> 3]; }

#define FOLD(T) { T *x = into, *y = from; for (size_t i = 0; i < n; i++) x[i] = op == 0 ? x[i] + y[i] : \
  op == 1 ? x[i] * y[i] : op == 2 ? (x[i] > y[i] ? x[i] : y[i]) : (x[i] < y[i] ? x[i] : y[i]); }
#define BITS(T) { T *x = into, *y = from; for (size_t i = 0; i < n; i++) x[i] = op == 7 ? x[i] & y[i] : \
  op == 8 ? x[i] | y[i] : x[i] ^ y[i]; }
static void fold(void* into, void* from, size_t n, uint64_t type, int op) {
  switch ((type >> 3) + (op >= 7 ? 100 : 0)) {
    case 2: FOLD(int32_t) break;
    case 3: FOLD(int64_t) break;
    case 5: FOLD(uint8_t) break;
    case 11: FOLD(float) break;
    case 12: FOLD(double) break;
    case 103: BITS(int64_t) break;
    case 105: BITS(uint8_t) break;
  }
}
static void fold_all(request* r, size_t first, size_t n, uint64_t type, char* into) {
  memcpy(into, r->all + first * width(type), n * width(type));
  for (uint32_t k = 1; k < r->of->exchange.count; k++)
    fold(into, r->all + k * SLOT + first * width(type), n, type, r->args.op);
}

/* What the others need of this rank, one block after the other. */
static status pack(request* r) {
  arguments* a = &r->args;
  uint32_t me = r->of->exchange.place, n = r->of->exchange.count;
  int in_place = a->flags & 1;
  size_t at = 0;
  if (!(a->mask & 1) || !(a->flags & 4) || !(a->flags & 8)) return WRONG;
  if (a->kind == ALLTOALLV || (a->kind == SCATTERV && me == a->root))
    for (uint32_t k = 0; k < n; k++) {
      size_t bytes = a->from.v.counts[k] * width(a->from.v.type);
      if (at + 8 + bytes > SLOT) return TOO_LARGE;
      memcpy(r->mine + at, &bytes, 8);
      memcpy(r->mine + at + 8, (char*)a->from.v.buffer + a->from.v.begins[k] * width(a->from.v.type), bytes);
      at += 8 + bytes;
    }
  else if (a->kind != BARRIER && a->kind != SCATTERV && (a->kind != BCAST || me == a->root)) {
    even* e = in_place && (a->kind == ALLREDUCE || me == a->root) ? &a->to.e : &a->from.e;
    if (e->count * width(e->type) > SLOT) return TOO_LARGE;
    memcpy(r->mine, e->buffer, e->count * width(e->type));
  }
  return OK;
}
/* The block for `me` in what pack has made. */
static void unpack(char* packed, uint32_t me, char* into) {
  size_t bytes;
  for (; memcpy(&bytes, packed, 8), me; me--) packed += 8 + bytes;
  memcpy(into, packed + 8, bytes);
}
static void deliver(request* r) {
  arguments* a = &r->args;
  uint32_t me = r->of->exchange.place, n = r->of->exchange.count;
  char* to = a->to.e.buffer;
  size_t w, first = 0;
  switch (a->kind) {
    case BCAST:
      memcpy(a->from.e.buffer, r->all + a->root * SLOT, a->from.e.count * width(a->from.e.type));
      break;
    case ALLREDUCE: fold_all(r, 0, a->to.e.count, a->to.e.type, to); break;
    case REDUCE: if (me == a->root) fold_all(r, 0, a->to.e.count, a->to.e.type, to); break;
    case ALLGATHER:
      w = a->to.e.count / n * width(a->to.e.type);
      for (uint32_t k = 0; k < n; k++) memcpy(to + k * w, r->all + k * SLOT, w);
      break;
    case GATHERV: if (me != a->root) break; /* fall through */
    case ALLGATHERV:
      w = width(a->to.v.type);
      for (uint32_t k = 0; k < n; k++) memcpy(to + a->to.v.begins[k] * w, r->all + k * SLOT, a->to.v.counts[k] * w);
      break;
    case SCATTERV: unpack(r->all + a->root * SLOT, me, to); break;
    case REDUCE_SCATTER: fold_all(r, me * a->to.e.count, a->to.e.count, a->to.e.type, to); break;
    case REDUCE_SCATTERV:
      for (uint32_t k = 0; k < me; k++) first += a->to.v.counts[k];
      fold_all(r, first, a->to.v.counts[me], a->to.v.type, to);
      break;
    case ALLTOALLV:
      for (uint32_t k = 0; k < n; k++)
        unpack(r->all + k * SLOT, me, to + a->to.v.begins[k] * width(a->to.v.type));
      break;
  }
}

status ucc_lib_config_read(const char* prefix, const char* file, void** out) { *out = malloc(1); return OK; }
void ucc_lib_config_release(void* config) { free(config); }
status ucc_init_version(unsigned major, unsigned minor, lib_params* p, void* config, void** out) {
  if (major != 1 || p->mask != 1 || p->thread_mode != 2) return WRONG;
  *out = malloc(1);
  return OK;
}
status ucc_context_config_read(void* lib, const char* file, void** out) { *out = malloc(1); return OK; }
void ucc_context_config_release(void* config) { free(config); }
status ucc_context_create(void* lib, context_params* p, void* config, void** out) {
  if (p->mask != 4) return WRONG;
  char mine = p->exchange.place, all[256];
  void* exchange;
  status state = p->exchange.allgather(&mine, all, 1, p->exchange.info, &exchange);
  if (state == OK) while ((state = p->exchange.test(exchange)) == BUSY);
  if (state < 0) return state;
  p->exchange.release(exchange);
  for (uint32_t k = 0; k < p->exchange.count; k++) if (all[k] != (char)k) return WRONG;
  *out = calloc(1, sizeof(context));
  return OK;
}
status ucc_context_destroy(void* c) { free(c); return OK; }
status ucc_context_progress(context* c) {
  for (request** at = &c->open; *at;) {
    request* r = *at;
    status state = r->of->exchange.test(r->exchange);
    if (state == BUSY) { at = &r->next; continue; }
    if (state == OK) deliver(r);
    r->of->exchange.release(r->exchange);
    r->state = state;
    *at = r->next;
  }
  return OK;
}
status ucc_team_create_post(context** contexts, uint32_t count, team_params* p, void** out) {
  if (count != 1 || p->mask != (4 | 16 | 32 | 128) || p->size != p->exchange.count || p->place != p->exchange.place)
    return WRONG;
  team* t = calloc(1, sizeof(team));
  t->exchange = p->exchange, t->context = contexts[0], t->words = malloc(8 * p->size);
  *out = t;
  return t->exchange.allgather(&p->place, t->words, 8, t->exchange.info, &t->opening);
}
status ucc_team_create_test(team* t) { return t->exchange.test(t->opening); }
status ucc_team_destroy(team* t) { free(t->words); free(t); return OK; }
status ucc_collective_init(arguments* args, void** out, team* t) {
  request* r = *out = calloc(1, sizeof(request));
  r->args = *args, r->of = t, r->state = 2, r->all = malloc((size_t)SLOT * t->exchange.count);
  return pack(r);
}
status ucc_collective_post(request* r) {
  status state = r->of->exchange.allgather(r->mine, r->all, SLOT, r->of->exchange.info, &r->exchange);
  if (state < 0) return state;
  r->state = BUSY, r->next = r->of->context->open, r->of->context->open = r;
  return OK;
}
status ucc_collective_finalize(request* r) { free(r->all); free(r); return OK; }
const char* ucc_status_string(status state) { return state == UNSUPPORTED ? "Operation is not supported" : "wrong"; }
