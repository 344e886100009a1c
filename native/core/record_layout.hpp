// The layout of a record: distdbg/record/format.py draws it and explains the rules; a test compares the
// two. Everything here is little endian and plain memory: no pointers, no padding that is not named.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace distdbg {

static_assert(std::endian::native == std::endian::little, "a record is little endian");

constexpr std::uint64_t record_magic = 0x5267'6264'7473'6964;  // "distdbgR", little endian
constexpr std::uint32_t record_version = 1;
constexpr std::uint32_t record_byte_order = 0x0102'0304;
constexpr std::size_t bucket_count = 40;
constexpr std::size_t wait_count = 32;

struct RecordSection {
  std::uint64_t offset;
  std::uint32_t count;
  std::uint32_t entry_nbytes;
};

enum class SectionId : std::uint8_t {
  groups,
  counters,
  forms,
  sites,
  strings,
  texts,
  parked,
  ring,
};  // clang-format keeps this on one line
constexpr std::size_t section_count = 8;

struct RecordHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint32_t header_nbytes;
  std::int32_t rank;
  std::int32_t world_size;
  std::int32_t pid;
  std::uint64_t process_start;
  std::int64_t wall_ns;
  std::int64_t monotonic_ns;
  std::uint64_t total_nbytes;
  RecordSection sections[section_count];
  char padding[64];
  char host[64];
  char boot_id[40];
  char distdbg_version[32];
  char python_version[32];
  char run[64];
  char padding_2[24];
  char argv[3072];
  char padding_3[504];
  std::uint64_t check;
};

// One thread that waits for an op that it began earlier.
// Of a wait that has a limit of its own: it ends then, and the op goes on.
constexpr std::uint32_t wait_is_limited = std::uint32_t{1} << 31;

struct WaitEntry {
  std::uint64_t number;
  std::int64_t since_ns;
  std::uint32_t thread;  // with wait_is_limited
  std::uint32_t site;
  std::uint64_t check;
};

struct RecordState {
  std::int64_t heartbeat_ns;
  std::uint64_t last_number;
  std::uint64_t exit;
  std::uint64_t exit_text;
  std::uint64_t exit_ns;
  std::uint64_t lost_strings;
  std::uint64_t lost_sites;
  std::uint64_t lost_parked;
  std::uint64_t strings_nbytes;
  std::uint64_t site_count;
  std::uint64_t last_form;
  std::uint64_t last_text;
  std::uint64_t last_group;
  std::uint64_t counter_count;
  std::uint64_t level;
  std::int64_t clock_offset_ns;  // these two are the agent's: no rank writes them
  std::uint64_t clock_error_ns;
  std::uint64_t lost_waits;
  std::uint64_t wait_changes;
  WaitEntry waits[wait_count];
  std::uint64_t lost_counters;
  std::uint64_t padding[364];
};

struct GroupEntry {
  std::uint64_t number;
  std::int64_t created_ns;
  std::uint32_t name;
  std::uint32_t desc;
  std::uint32_t ranks;
  std::uint32_t backend;
  std::int32_t size;
  std::int32_t rank;
  std::int64_t timeout_ns;
  std::uint32_t site;
  std::uint32_t reserved;
  std::uint64_t check;
  std::uint64_t closed_ns;
  std::uint64_t issued_seq;
  std::uint64_t ended_seq;
  std::uint64_t current;
  std::uint64_t broken;
  std::uint64_t closed_site;
  std::uint64_t padding[18];
};

struct CounterEntry {
  std::uint64_t group;
  std::uint32_t kind;
  std::uint32_t dtype;
  std::uint64_t ended;
  std::uint64_t failed;
  std::uint64_t nbytes;
  std::uint64_t duration_ns;
  std::uint64_t wait_ns;
  std::uint64_t longest_ns;
  std::uint64_t duration_buckets[bucket_count];
  std::uint64_t wait_buckets[bucket_count];
  std::uint64_t size_buckets[bucket_count];
};

struct FormEntry {
  std::uint64_t number;
  std::uint64_t text_nbytes;
  std::uint64_t check;
  char text[488];
};

struct SiteEntry {
  std::uint32_t file;
  std::uint32_t function;
  std::uint32_t line;
  std::uint32_t parent;
  std::uint64_t index;
  std::uint64_t check;
};

struct TextEntry {
  std::uint64_t number;
  std::uint64_t text_nbytes;
  std::uint64_t check;
  char text[2024];
};

enum class EventType : std::uint8_t {
  op = 1,
  mark = 2,
  span_begin = 3,
  span_end = 4,
  finding = 5,
  context = 6,
};

constexpr std::uint8_t flag_async = 1;
constexpr std::uint8_t flag_message = 2;
constexpr std::uint8_t flag_aside = 4;
constexpr std::uint8_t flag_sampled = 8;
constexpr std::uint8_t flag_end_noticed = 16;
constexpr std::uint8_t flag_end_queued = 32;

struct OpEntry {
  std::uint64_t number;
  std::int64_t issued_ns;
  std::uint64_t seq;
  std::int64_t value;
  std::uint64_t group;
  std::uint64_t form;
  std::uint32_t site;
  std::uint32_t thread;
  std::int32_t peer;
  std::uint8_t type;
  std::uint8_t flags;
  std::uint8_t kind;
  std::uint8_t level;
  std::uint64_t fingerprint;
  std::uint64_t text;
  std::uint32_t comm;
  std::uint32_t reserved;
  std::uint64_t check;
  std::uint64_t started;
  std::uint64_t ended;
  std::uint64_t outcome;
  std::uint64_t error;
};

struct ParkedEntry {
  OpEntry op;
  FormEntry form;
};

static_assert(sizeof(RecordHeader) == 4096 && offsetof(RecordHeader, check) == 4088);
static_assert(offsetof(RecordHeader, sections) == 64 && offsetof(RecordHeader, host) == 256);
static_assert(offsetof(RecordHeader, run) == 424 && offsetof(RecordHeader, argv) == 512);
static_assert(sizeof(RecordState) == 4096 && offsetof(RecordState, level) == 112);
static_assert(offsetof(RecordState, clock_offset_ns) == 120);
static_assert(offsetof(RecordState, clock_error_ns) == 128);
static_assert(sizeof(WaitEntry) == 32 && offsetof(RecordState, waits) == 152);
static_assert(offsetof(RecordState, lost_counters) == 1176);
static_assert(sizeof(GroupEntry) == 256 && offsetof(GroupEntry, check) == 56);
static_assert(sizeof(CounterEntry) == 1024 && offsetof(CounterEntry, dtype) == 12);
static_assert(sizeof(FormEntry) == 512 && sizeof(TextEntry) == 2048 && sizeof(SiteEntry) == 32);
static_assert(sizeof(OpEntry) == 128 && offsetof(OpEntry, check) == 88);
static_assert(sizeof(ParkedEntry) == sizeof(OpEntry) + sizeof(FormEntry));
static_assert(std::is_trivially_copyable_v<OpEntry>);

__extension__ typedef unsigned __int128 Wide;

// The check word: the sum of the words before it, modulo 2**64 - 1.
inline std::uint64_t checksum(const std::uint64_t* words, std::size_t count) {
  Wide sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += words[i];
  sum = static_cast<std::uint64_t>(sum) + (sum >> 64);
  sum = static_cast<std::uint64_t>(sum) + (sum >> 64);
  const auto folded = static_cast<std::uint64_t>(sum);
  return folded == ~std::uint64_t{0} ? 0 : folded;
}

// A word that is set after its entry: 48 bits of value, 16 of check; 0 means not set.
inline std::uint64_t pack(std::uint64_t value) {
  constexpr std::uint64_t most = (std::uint64_t{1} << 48) - 1;
  if (value > most) value = most;
  const std::uint64_t sum =
      (value & 0xFFFF) + (value >> 16 & 0xFFFF) + (value >> 32) + std::uint64_t{0x5A5A};
  return value << 16 | sum % 0xFFFF;
}

}  // namespace distdbg
