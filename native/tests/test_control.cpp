// The control page among threads as ranks: an abort wakes all, a pause stops the deadlines.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "control.hpp"
#include "p2p.hpp"
#include "ranks.hpp"
#include "runner.hpp"

using namespace distdbg;

namespace {

// A page as distdbg/control/page.py makes it, and its writer.
class Page {
 public:
  Page() {
    const int fd = ::mkstemp(path_);
    CHECK(fd >= 0 && ::ftruncate(fd, control_nbytes) == 0);
    void* memory = ::mmap(nullptr, control_nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    ::close(fd);
    page = static_cast<ControlPage*>(memory);
    page->magic = control_magic;
    page->version = control_version;
    std::memcpy(page->run, "run", 3);
  }
  ~Page() {
    ::munmap(page, control_nbytes);
    ::unlink(path_);
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  std::string path() const { return path_; }
  void pause() const { page->clock.store(~(now_ns() - page->clock.load())); }
  void resume() const { page->clock.store(now_ns() - ~page->clock.load()); }
  void abort(const std::string& words) const {
    std::memcpy(reinterpret_cast<char*>(page) + abort_offset, words.data(), words.size());
    page->abort_nbytes.store(words.size());
    page->abort_state.store(abort_set);
  }

  ControlPage* page = nullptr;

 private:
  char path_[32] = "/tmp/distdbg-control-XXXXXX";
};

Fault fault_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.fault();
  }
  std::puts("nothing was thrown");
  std::exit(1);
}

void sleep_ms(std::int64_t ms) { ::usleep(static_cast<useconds_t>(1000 * ms)); }

void tell_time() {
  const Page page;
  const auto control = Control::open(page.path(), "run");
  CHECK(control->moment().job_ns == control->moment().now_ns || !control->is_paused());
  page.pause();
  const std::int64_t stands = control->moment().job_ns;
  sleep_ms(20);
  CHECK(control->is_paused() && control->moment().job_ns == stands);
  page.resume();
  const Moment after = control->moment();
  CHECK(!control->is_paused() && after.job_ns >= stands);
  CHECK(after.now_ns - after.job_ns >= 20 * ns_per_ms);
  const Moment free = Control::none().moment();
  CHECK(free.now_ns == free.job_ns);
}

void refuse_what_is_no_page() {
  const Page page;
  CHECK(fault_of([&] { Control::open(page.path(), "another"); }) == Fault::usage);
  page.page->version = control_version + 1;
  CHECK(fault_of([&] { Control::open(page.path(), "run"); }) == Fault::usage);
  CHECK(::truncate(page.path().c_str(), control_nbytes - 1) == 0);
  CHECK(fault_of([&] { Control::open(page.path(), "run"); }) == Fault::usage);
  CHECK(fault_of([&] { Control::open(page.path() + "-", "run"); }) == Fault::system);
}

void hand_on_text_only() {
  const Page page;
  const auto control = Control::open(page.path(), "run");
  CHECK(control->words().empty());
  page.abort("{\"what\": \"enough\"}");
  CHECK(control->words() == "{\"what\": \"enough\"}");
  page.abort("caf\xc3\xa9");
  CHECK(control->is_aborted() && control->words().empty());
  page.page->abort_nbytes.store(std::uint64_t{1} << 60);
  CHECK(control->words().empty());
}

// Every rank but the last waits; `body` gets a Wait of `limit_ms`.
void wait_in_vain(const Page& page, std::int64_t limit_ms, Fault wanted,
                  const std::function<void(Group&, const Wait&)>& body,
                  const std::function<void()>& meanwhile) {
  const auto control = Control::open(page.path(), "run");
  run_ranks(3, true, [&](Group& group) {
    group.set_control(control);
    if (group.rank() == 2) return meanwhile();
    const Wait wait = group.wait_until(control->moment().job_ns + limit_ms * ns_per_ms, nullptr);
    CHECK(fault_of([&] { body(group, wait); }) == wanted);
  });
}

void reduce(Group& group, const Wait& wait) {
  std::vector<float> x(24, 1.0F);
  const Region region = region_of(x);
  group.run(all_reduce(group.rank(), group.size(), 96, true), nothing, {&region, 1}, {&region, 1},
            wait, false, unrecorded);
}

void reduce_aside(Group& group, const Wait& wait) {
  std::vector<float> x(24, 1.0F);
  Runner runner(group);
  CallWords words;
  const auto plan = std::make_shared<const Plan>(all_reduce(group.rank(), group.size(), 96, true));
  const OpPointer op =
      runner.submit(plan, words, unrecorded, {region_of(x)}, {region_of(x)}, wait.deadline_ns);
  runner.wait(*op, group.wait_until(no_deadline, nullptr));
}

void receive(Group& group, const Wait& wait) {
  std::vector<float> x(24);
  PointToPoint messages(group);
  const MessagePointer message = messages.recv(region_of(x), -1, 2, 0, wait.deadline_ns, false);
  messages.wait(message, wait, true);
}

void receive_aside(Group& group, const Wait& wait) {
  std::vector<float> x(24);
  PointToPoint messages(group);
  const MessagePointer message = messages.recv(region_of(x), -1, 2, 0, wait.deadline_ns, true);
  messages.wait(message, group.wait_until(no_deadline, nullptr), false);
}

constexpr void (*ways[])(Group&, const Wait&) = {reduce, reduce_aside, receive, receive_aside};

void wake_at_an_abort() {
  for (const auto way : ways) {
    const Page page;
    wait_in_vain(page, 20'000, Fault::aborted, way, [&] {
      sleep_ms(30);
      page.abort("{}");
      sleep_ms(300);  // leaving the group would be news as well
    });
    // And from then on nothing begins.
    wait_in_vain(page, 20'000, Fault::aborted, way, [] { sleep_ms(100); });
  }
}

void outlive_a_pause() {
  for (const auto way : ways) {
    const Page page;
    const std::int64_t started = now_ns();
    wait_in_vain(page, 60, Fault::timeout, way, [&] {
      sleep_ms(20);
      page.pause();
      sleep_ms(200);
      page.resume();
      sleep_ms(200);
    });
    CHECK(now_ns() - started >= 260 * ns_per_ms);
  }
}

}  // namespace

int main() {
  tell_time();
  refuse_what_is_no_page();
  hand_on_text_only();
  wake_at_an_abort();
  outlive_a_pause();
  std::puts("test_control: passed");
}
