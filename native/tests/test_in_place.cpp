// Ops on shared arrays: threads as ranks, with arrays that are shared, mixed, and taken out when an op fails.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "check.hpp"
#include "ranks.hpp"
#include "shared_heap.hpp"

using namespace distdbg;

namespace {

constexpr std::uint64_t count = 24 * 1024;
constexpr std::uint64_t nbytes = count * sizeof(float);

// An array of floats, shared or not.
class Floats {
 public:
  explicit Floats(bool is_shared) {
    if (is_shared) {
      heap_ = &SharedHeap::make(64 << 20);
      data_ = heap_->allocate(nbytes, 0);
    } else {
      own_.resize(count);
      data_ = reinterpret_cast<std::byte*>(own_.data());
    }
  }
  ~Floats() {
    if (heap_ != nullptr) SharedHeap::free(heap_, data_);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float& operator[](std::size_t i) { return reinterpret_cast<float*>(data_)[i]; }
  void fill(float value) {
    for (std::size_t i = 0; i < count; ++i) (*this)[i] = value + static_cast<float>(i % 7);
  }
  bool is(float value, float factor) {
    for (std::size_t i = 0; i < count; ++i)
      if ((*this)[i] != value + factor * static_cast<float>(i % 7)) return false;
    return true;
  }
  Region region() const { return {data_, nbytes}; }
  bool is_reached() const { return heap_->reaches(data_, nbytes); }

 private:
  SharedHeap* heap_ = nullptr;
  std::byte* data_ = nullptr;
  std::vector<float> own_;
};

Plan sum_in_place(std::uint32_t rank, std::uint32_t size) {
  Plan plan = all_reduce(rank, size, nbytes / 2, true);
  plan.in_cuts = plan.out_cuts = {{0, 0, nbytes}};
  plan.fingerprint = 1;
  // In two rounds, as the slot has 64 KiB.
  const std::uint64_t half = nbytes / 2;
  plan.steps = {{StepKind::copy, Space::input, Space::slot, -1, 0, 0, 0, 0, half},
                gate(),
                {StepKind::fold_all, Space::slot, Space::output, -1, 0, 0, 0, 0, half},
                {StepKind::copy, Space::input, Space::slot, -1, 0, 0, half, 0, half},
                gate(),
                {StepKind::fold_all, Space::slot, Space::output, -1, 0, 0, 0, half, half}};
  const std::uint64_t share = nbytes / size;
  plan.in_place.steps = {
      gate(),
      {StepKind::fold_to, Space::input, Space::output, -1, 0, 0, rank * share, rank * share, share},
      gate()};
  plan.in_place.exposes_inputs = plan.in_place.exposes_outputs = true;
  plan.in_place.peers.clear();
  plan.finish(size, slot_nbytes);
  return plan;
}

std::uint64_t ops_in_place() {
  const SharedHeap* heap = SharedHeap::here();
  return heap == nullptr ? 0 : heap->facts().ops;
}

void sum(Group& group, const Plan& plan, Floats& x) {
  x.fill(static_cast<float>(group.rank()));
  const Region region = x.region();
  group.run(plan, nothing, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
  const auto size = static_cast<float>(group.size());
  CHECK(x.is(size * (size - 1) / 2, size));
}

void test_shared_and_ordinary_arrays_mix() {
  constexpr std::uint32_t size = 3;
  const std::uint64_t before = ops_in_place();
  run_ranks(size, false, [](Group& group) {
    const Plan plan = sum_in_place(group.rank(), size);
    Floats shared(true);
    Floats ordinary(false);
    for (int i = 0; i < 200; ++i) {
      const bool is_mixed = i % 5 == 3 && group.rank() == static_cast<std::uint32_t>(i / 5) % size;
      sum(group, plan, is_mixed ? ordinary : shared);
    }
  });
  CHECK(ops_in_place() - before == size * 160);
}

// Processes as ranks.
template <class Body>
void run_processes(std::uint32_t size, const Body& body) {
  Segment segment = Segment::create(size, slot_nbytes, 4096, cookie);
  std::vector<pid_t> children;
  for (std::uint32_t r = 0; r < size; ++r) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    Group group(Segment::open(::getppid(), segment.fd(), cookie), r, Patience{20, 20'000}, false);
    group.join(in_seconds(20), {});
    body(group);
    std::exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
  }
}

void test_processes_map_each_other_in_the_first_op() {
  run_processes(3, [](Group& group) {
    const Plan plan = sum_in_place(group.rank(), group.size());
    Floats x(true);
    for (std::uint64_t i = 0; i < 50; ++i) {
      sum(group, plan, x);
      CHECK(ops_in_place() == i);
    }
  });
}

// The last rank reads where its peer has nothing: it fails when it and the others are between the gates.
void test_an_array_is_out_of_reach_when_its_op_failed() {
  run_processes(3, [](Group& group) {
    Plan plan = sum_in_place(group.rank(), group.size());
    Floats x(true);
    sum(group, plan, x);
    sum(group, plan, x);
    if (group.rank() == group.size() - 1)
      plan.in_place.steps[1] = {
          StepKind::pull, Space::input, Space::output, 0, 0, 0, nbytes, 0, 64};
    const Region region = x.region();
    CHECK(x.is_reached());
    try {
      group.run(plan, nothing, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
    } catch (const Error& error) {
      CHECK(!x.is_reached());
      // Whatever a peer still does, it is its owner's.
      x.fill(5);
      CHECK(x.is(5, 1));
      return;
    }
    CHECK(false);
  });
}

template <class Change>
bool is_refused(const Change& change) {
  Plan plan = sum_in_place(0, 2);
  plan.in_place.peers.clear();
  change(plan);
  try {
    plan.finish(2, slot_nbytes);
  } catch (const Error& error) {
    return error.fault() == Fault::usage;
  }
  return false;
}

void test_plans_are_looked_at() {
  CHECK(!is_refused([](Plan&) {}));
  CHECK(is_refused([](Plan& plan) { plan.in_place.steps.pop_back(); }));
  CHECK(is_refused([](Plan& plan) { plan.in_place.steps.erase(plan.in_place.steps.begin()); }));
  CHECK(is_refused([](Plan& plan) { plan.in_place.steps[1].nbytes += nbytes; }));
  CHECK(is_refused([](Plan& plan) { plan.in_place.steps[1].dst_block = 1; }));
  CHECK(is_refused([](Plan& plan) { plan.in_place.steps[1].dst_space = Space::input; }));
  CHECK(is_refused([](Plan& plan) { plan.in_place.steps[1].src_space = Space::slot; }));
  CHECK(is_refused([](Plan& plan) { plan.in_place.steps[1].kind = StepKind::exchange; }));
  CHECK(is_refused([](Plan& plan) {
    plan.in_place.steps[1].kind = StepKind::push;
    plan.in_place.steps[1].peer = 2;
  }));
  CHECK(is_refused([](Plan& plan) { plan.steps[2].kind = StepKind::fold_to; }));
}

}  // namespace

int main() {
  // Before there are threads, since it forks.
  test_processes_map_each_other_in_the_first_op();
  test_an_array_is_out_of_reach_when_its_op_failed();
  test_shared_and_ordinary_arrays_mix();
  test_plans_are_looked_at();
  return 0;
}
