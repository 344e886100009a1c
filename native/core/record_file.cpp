// How a record comes into being: its size, its file, its header.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "error.hpp"
#include "fork.hpp"
#include "peers.hpp"
#include "record.hpp"

namespace distdbg {

namespace {

constexpr std::uint32_t group_count = 128;
constexpr std::uint32_t counter_count = 512;
constexpr std::uint32_t site_count = 16384;
constexpr std::uint32_t strings_nbytes = 256 * 1024;
constexpr std::uint32_t text_count = 64;
constexpr std::uint32_t parked_count = 256;
// Forms in use that were written longest ago are written again in time; see keep_form.
constexpr std::uint32_t spare_forms = 1024;

void write_text(char* into, std::size_t room, const std::string& text) {
  std::memcpy(into, text.data(), std::min(text.size(), room - 1));  // the rest is 0 already
}

// A power of two; no more than keeps the file within what a reader takes (MAX_RECORD_NBYTES).
std::uint32_t to_ring_count(std::uint32_t wanted) {
  return std::bit_ceil(std::clamp(wanted, 16U, 1U << 18));
}

std::array<RecordSection, section_count> lay_out(std::uint32_t ring_count) {
  std::array<RecordSection, section_count> sections{};
  std::uint64_t offset = sizeof(RecordHeader) + sizeof(RecordState);
  const auto put = [&](SectionId id, std::uint32_t count, std::size_t entry_nbytes) {
    sections[static_cast<std::size_t>(id)] = {offset, count,
                                              static_cast<std::uint32_t>(entry_nbytes)};
    offset += count * entry_nbytes;
  };
  put(SectionId::groups, group_count, sizeof(GroupEntry));
  put(SectionId::counters, counter_count, sizeof(CounterEntry));
  put(SectionId::forms, ring_count + spare_forms, sizeof(FormEntry));
  put(SectionId::sites, site_count, sizeof(SiteEntry));
  put(SectionId::strings, strings_nbytes, 1);
  put(SectionId::texts, text_count, sizeof(TextEntry));
  put(SectionId::parked, parked_count, sizeof(ParkedEntry));
  put(SectionId::ring, ring_count, sizeof(OpEntry));
  return sections;
}

// Says that the writer lives, for as long as any process holds the file. Who asks takes a shared lock
// for a moment, so that two who ask do not take each other for a writer; one may be at it right now.
void hold(int fd) {
  for (int tries = 0; tries < 100 && ::flock(fd, LOCK_EX | LOCK_NB) != 0; ++tries) ::usleep(1000);
}

std::size_t end_of(const std::array<RecordSection, section_count>& sections) {
  const RecordSection& last = sections.back();
  return last.offset + std::size_t{last.count} * last.entry_nbytes;
}

}  // namespace

Recorder::Recorder(std::byte* base, std::size_t nbytes, int fd, std::string path)
    : base_(base),
      nbytes_(nbytes),
      fd_(fd),
      path_(std::move(path)),
      generation_(fork_generation()),
      groups_(group_count),
      ring_mask_(0),
      ring_(nullptr),
      counters_(nullptr),
      form_slack_(spare_forms) {}

Recorder::~Recorder() {
  ::munmap(base_, nbytes_);
  if (fd_ >= 0) ::close(fd_);
}

bool Recorder::is_forked() const { return generation_ != fork_generation(); }

std::shared_ptr<Recorder> Recorder::create(const std::string& path, const RecordFacts& facts,
                                           std::uint32_t ring_count) {
  const auto sections = lay_out(to_ring_count(ring_count));
  const std::size_t nbytes = end_of(sections);
  // Made beside its place and renamed when it is whole: a reader never sees half a header.
  const std::string draft = path + ".new." + std::to_string(::getpid());
  ::unlink(draft.c_str());
  const int fd = ::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  const auto give_up = [&](int number, const char* what) {
    if (fd >= 0) ::close(fd);
    ::unlink(draft.c_str());
    throw Error(Fault::system, std::string(what) + ": " + std::strerror(number), number);
  };
  if (fd < 0) throw Error(Fault::system, std::strerror(errno), errno);
  hold(fd);
  // All blocks now: a full disk must be an error here, not a SIGBUS at some op.
  if (const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(nbytes)); error != 0)
    give_up(error, "reserving the space");
  void* base = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) give_up(errno, "mapping the file");
  auto recorder = finish(static_cast<std::byte*>(base), nbytes, fd, path, facts, sections);
  if (::rename(draft.c_str(), path.c_str()) != 0) {
    const int number = errno;
    ::unlink(draft.c_str());
    throw Error(Fault::system, std::string("naming the file: ") + std::strerror(number), number);
  }
  return recorder;
}

std::shared_ptr<Recorder> Recorder::in_memory(const RecordFacts& facts, std::uint32_t ring_count) {
  const auto sections = lay_out(to_ring_count(ring_count));
  const std::size_t nbytes = end_of(sections);
  void* base = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw Error(Fault::system, std::strerror(errno), errno);
  return finish(static_cast<std::byte*>(base), nbytes, -1, "", facts, sections);
}

std::shared_ptr<Recorder> Recorder::finish(
    std::byte* base, std::size_t nbytes, int fd, const std::string& path, const RecordFacts& facts,
    const std::array<RecordSection, section_count>& sections) {
  std::shared_ptr<Recorder> recorder(new Recorder(base, nbytes, fd, path));
  RecordHeader& h = recorder->header();
  h.version = record_version;
  h.byte_order = record_byte_order;
  h.header_nbytes = sizeof h;
  h.rank = facts.rank;
  h.world_size = facts.world_size;
  h.pid = ::getpid();
  h.process_start = process_start_time(h.pid);
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  h.monotonic_ns = now_ns();
  h.wall_ns = static_cast<std::int64_t>(wall.tv_sec) * 1'000'000'000 + wall.tv_nsec;
  h.total_nbytes = nbytes;
  std::copy(sections.begin(), sections.end(), h.sections);
  write_text(h.host, sizeof h.host, facts.host);
  write_text(h.boot_id, sizeof h.boot_id, facts.boot_id);
  write_text(h.distdbg_version, sizeof h.distdbg_version, facts.distdbg_version);
  write_text(h.python_version, sizeof h.python_version, facts.python_version);
  write_text(h.run, sizeof h.run, facts.run);
  write_text(h.argv, sizeof h.argv, facts.argv);
  h.magic = record_magic;
  std::uint64_t words[sizeof h / 8];
  std::memcpy(words, &h, sizeof h);
  h.check = checksum(words, sizeof h / 8 - 1);
  recorder->ring_ = recorder->section<OpEntry>(SectionId::ring);
  recorder->counters_ = recorder->section<CounterEntry>(SectionId::counters);
  recorder->ring_mask_ = recorder->count(SectionId::ring) - 1;
  recorder->state().strings_nbytes = 8;  // reference 0 means none
  recorder->state().site_count = 1;
  recorder->state().heartbeat_ns = h.monotonic_ns;
  return recorder;
}

}  // namespace distdbg
