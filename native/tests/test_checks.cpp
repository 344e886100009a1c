// What is checked beside the calls: levels, non-finite inputs, outputs that diverge, buffers that change,
// call sites that cross; and that ranks which differ while nothing is compared harm nobody's memory.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "check.hpp"
#include "hash.hpp"
#include "nonfinite.hpp"
#include "p2p.hpp"
#include "ranks.hpp"
#include "runner.hpp"

#if defined(__SANITIZE_THREAD__)
constexpr bool watches_races = true;
#else
constexpr bool watches_races = false;
#endif

using namespace distdbg;

namespace {

// ------------------------------------------------------------------------- pure parts

void hash_sees_each_byte() {
  std::vector<std::uint8_t> x(200, 1);
  for (std::size_t n = 0; n <= x.size(); ++n) {
    const std::uint64_t before = hash_bytes(x.data(), n);
    CHECK(before == hash_bytes(std::vector<std::uint8_t>(x).data(), n));
    if (n > 0) CHECK(before != hash_bytes(x.data(), n - 1));
    for (std::size_t i = 0; i < n; ++i) {
      x[i] ^= 0x80;
      CHECK(hash_bytes(x.data(), n) != before);
      x[i] ^= 0x80;
    }
  }
  CHECK(hash_bytes(x.data(), 8, 1) != hash_bytes(x.data(), 8, 2));
}

// Every bit pattern of the small formats, against the plain definition.
template <class Word>
void find_all_patterns(Dtype dtype, bool (*is_bad)(std::uint32_t)) {
  const std::uint32_t count = 1U << (8 * sizeof(Word));
  for (std::uint32_t bits = 0; bits < count; ++bits) {
    const Word words[3] = {0, static_cast<Word>(bits), 0};
    CHECK(any_nonfinite(dtype, words, 3) == is_bad(bits));
    const NonFinite found = find_nonfinite(dtype, words, 3);
    CHECK(found.bad_count == (is_bad(bits) ? 1 : 0));
    if (is_bad(bits)) CHECK(found.first == 1);
  }
}

void nonfinite_is_found_in_every_dtype() {
  find_all_patterns<std::uint16_t>(Dtype::float16,
                                   [](std::uint32_t b) { return (b & 0x7c00) == 0x7c00; });
  find_all_patterns<std::uint16_t>(Dtype::bfloat16,
                                   [](std::uint32_t b) { return (b & 0x7f80) == 0x7f80; });
  find_all_patterns<std::uint8_t>(Dtype::float8_e5m2,
                                  [](std::uint32_t b) { return (b & 0x7c) == 0x7c; });
  find_all_patterns<std::uint8_t>(Dtype::float8_e4m3fn,
                                  [](std::uint32_t b) { return (b & 0x7f) == 0x7f; });
  for (const Dtype dtype : {Dtype::float8_e4m3fnuz, Dtype::float8_e5m2fnuz})
    find_all_patterns<std::uint8_t>(dtype, [](std::uint32_t b) { return b == 0x80; });
  // At every place of an array longer than a piece of the search, unaligned.
  std::vector<std::byte> memory(8 * 40'001 + 1);
  for (const std::size_t at : {0U, 1U, 16'383U, 16'384U, 39'999U}) {
    for (const double value : {std::nan(""), double{INFINITY}, -double{INFINITY}}) {
      std::memcpy(memory.data() + 1 + 8 * at, &value, 8);
      const NonFinite one = find_nonfinite(Dtype::float64, memory.data() + 1, 40'000);
      CHECK(any_nonfinite(Dtype::float64, memory.data() + 1, 40'000));
      CHECK(one.bad_count == 1 && one.first == at && one.first_is_nan == std::isnan(value));
      const NonFinite complex = find_nonfinite(Dtype::complex128, memory.data() + 1, 20'000);
      CHECK(complex.bad_count == 1 && complex.first == at / 2);
      CHECK(!any_nonfinite(Dtype::int64, memory.data() + 1, 40'000));
      const double zero = 0;
      std::memcpy(memory.data() + 1 + 8 * at, &zero, 8);
      const auto single = static_cast<float>(value);
      std::memcpy(memory.data() + 1 + 4 * at, &single, 4);
      CHECK(find_nonfinite(Dtype::float32, memory.data() + 1, 40'000).first == at);
      CHECK(any_nonfinite(Dtype::complex64, memory.data() + 1, 20'000));
      std::memset(memory.data() + 1 + 4 * at, 0, 4);
    }
  }
  const float largest[2] = {std::numeric_limits<float>::max(), -1e-45F};
  CHECK(!any_nonfinite(Dtype::float32, largest, 2));
}

void crossed_sites_are_reported_once() {
  using Verdict = SiteOrder::Verdict;
  SiteOrder order;
  const std::vector<std::uint64_t> ab{1, 2, 2};
  const std::vector<std::uint64_t> ba{2, 1, 1};
  const std::vector<std::uint64_t> same{5, 5, 5};
  CHECK(order.look_at(same, false, 1).verdict == Verdict::quiet);
  CHECK(order.look_at(ab, false, 2).verdict == Verdict::quiet);
  CHECK(order.look_at(same, false, 3).verdict == Verdict::quiet);
  const SiteOrder::Answer answer = order.look_at(ba, false, 4);
  CHECK(answer.verdict == Verdict::crossed && answer.other_seq == 2);
  for (std::uint64_t seq = 5; seq < 100; ++seq)
    CHECK(order.look_at(seq % 2 == 0 ? ba : ab, false, seq).verdict == Verdict::quiet);
  CHECK(order.look_at(same, true, 100).verdict == Verdict::layouts);
  CHECK(order.look_at(same, true, 101).verdict == Verdict::quiet);
  CHECK(order.look_at(std::vector<std::uint64_t>{0, 9, 9}, false, 102).verdict == Verdict::quiet);
}

void sites_that_only_differ_are_quiet() {
  using Verdict = SiteOrder::Verdict;
  SiteOrder order;
  std::uint64_t seq = 0;
  for (int round = 0; round < 10; ++round)
    for (std::uint64_t line = 10; line < 20; ++line)  // rank 0 has a branch of its own
      CHECK(order.look_at(std::vector<std::uint64_t>{line, line + 100, line + 100}, false, ++seq)
                .verdict == Verdict::quiet);
  // Learned, and still known: whoever crosses it later is told.
  CHECK(order.look_at(std::vector<std::uint64_t>{119, 19, 19}, false, ++seq).verdict ==
        Verdict::crossed);
  // Too far apart to have been swapped.
  SiteOrder other;
  CHECK(other.look_at(std::vector<std::uint64_t>{1, 2}, false, 1).verdict == Verdict::quiet);
  for (std::uint64_t k = 0; k < 16; ++k)
    CHECK(other.look_at(std::vector<std::uint64_t>{50 + k, 90 + k}, false, 2 + k).verdict ==
          Verdict::quiet);
  CHECK(other.look_at(std::vector<std::uint64_t>{2, 1}, false, 20).verdict == Verdict::quiet);
  // Nor does it grow with a program that makes up lines.
  for (std::uint64_t k = 0; k < 10'000; ++k)
    other.look_at(std::vector<std::uint64_t>{1'000 + 2 * k, 1'001 + 2 * k}, false, 100 + k);
}

// --------------------------------------------------------------------------- in a group

Fault fault_of(const std::function<void()>& body, Error* caught = nullptr) {
  try {
    body();
  } catch (const Error& error) {
    if (caught != nullptr) *caught = error;
    return error.fault();
  }
  return Fault::usage;  // none of those expected here
}

constexpr auto no_fault = Fault::usage;

std::vector<float> ones(std::uint64_t count) { return std::vector<float>(count, 1.0F); }

Fault reduce(Group& group, std::vector<float>& x, bool through_slots, const Describe& describe,
             Error* caught = nullptr, std::uint64_t fingerprint = 7, bool is_whole = true) {
  Plan plan = all_reduce(group.rank(), group.size(), x.size() * 4, through_slots);
  plan.fingerprint = fingerprint;
  plan.has_equal_outputs = true;
  if (!is_whole) plan.steps.back().nbytes /= 2;
  const Region region = region_of(x);
  return fault_of(
      [&] {
        group.run(plan, describe, {&region, 1}, {&region, 1}, in_seconds(20), false, unrecorded);
      },
      caught);
}

void refuse_nonfinite(Group& group) {
  for (const bool through_slots : {true, false}) {
    std::vector<float> x = ones(1200);
    if (group.rank() == 1) x[1100] = std::nanf("");
    const std::vector<float> before = x;
    Error error(Fault::system, "");
    CHECK(reduce(group, x, through_slots, nothing, &error) == Fault::nonfinite);
    CHECK(std::memcmp(x.data(), before.data(), x.size() * 4) == 0);
    CHECK(error.descriptions && error.descriptions->size() == group.size());
    const std::vector<Trouble>& troubles = *error.troubles;
    for (std::uint32_t r = 0; r < group.size(); ++r)
      CHECK(troubles[r].bad_count == (r == 1 ? 1 : 0) && troubles[r].count == 1200);
    CHECK(troubles[1].first == 1100 && (troubles[1].flags & first_is_nan) != 0);
    x = ones(1200);
    CHECK(reduce(group, x, through_slots, nothing) == no_fault);
    CHECK(x[1100] == static_cast<float>(group.size()));
  }
  // A mismatch is the worse news.
  std::vector<float> x(8, std::nanf(""));
  CHECK(reduce(group, x, true, nothing, nullptr, group.rank() == 0 ? 1 : 2) == Fault::mismatch);
  group.set_level(level_info);
  CHECK(reduce(group, x, true, nothing) == no_fault);
}

void notice_diverged_outputs(Group& group) {
  for (int round = 1; round <= 6; ++round) {
    std::vector<float> x = ones(12 * 64);
    Error error(Fault::system, "");
    // Rank 1 leaves half of its output as it was. Looked at on every third op.
    const Fault fault = reduce(group, x, true, nothing, &error, 7, group.rank() != 1);
    CHECK(fault == (round % 3 == 0 ? Fault::diverged : no_fault));
    if (round % 3 != 0) continue;
    const std::vector<Trouble>& troubles = *error.troubles;
    for (std::uint32_t r = 0; r < group.size(); ++r)
      CHECK((troubles[r].checksum == troubles[0].checksum) == (r != 1));
  }
  for (int round = 0; round < 7; ++round) {
    std::vector<float> x = ones(12 * 64);
    CHECK(reduce(group, x, round % 2 == 0, nothing) == no_fault);
  }
}

void go_on_after_a_suspicion(Group& group) {
  const bool is_odd = group.rank() == 1;
  for (int k = 0; k < 4; ++k) {
    for (const bool through_slots : {true, false}) {
      std::vector<float> x = ones(12 * 64);
      Describe describe = nothing;
      describe.site = (k % 2 == 0) != is_odd ? 10U : 20U;
      CHECK(reduce(group, x, through_slots, describe) == no_fault);
      for (const float value : x) CHECK(value == static_cast<float>(group.size()));
    }
  }
  const std::vector<Suspicion> found = group.take_suspicions();
  CHECK(found.size() == 1 && found[0].answer.verdict == SiteOrder::Verdict::crossed);
  CHECK(found[0].seq == 3 && found[0].answer.other_seq == 2);
  for (const std::string& words : found[0].descriptions) CHECK(words == "words");
  CHECK(group.take_suspicions().empty() && !group.has_suspicions());
}

void notice_changed_buffers(Group& group) {
  Runner runner(group);
  const bool is_odd = group.rank() == 1;
  const auto plan = std::make_shared<Plan>(all_reduce(group.rank(), group.size(), 960, true));
  std::vector<float> first = ones(240);
  std::vector<float> second = ones(240);
  static const std::string facts = "{\"facts\": 0";
  CallWords words;
  words.facts = &facts;
  const auto submit = [&](std::vector<float>& x) {
    return runner.submit(plan, words, unrecorded, {region_of(x)}, {region_of(x)},
                         in_seconds(20).deadline_ns);
  };
  // The first op holds the second back until all ranks have submitted and changed theirs.
  std::vector<OpPointer> ops;
  if (!is_odd) ops = {submit(first), submit(second)};
  if (is_odd) {
    ops = {submit(first)};
    runner.wait(*ops[0], in_seconds(20));
    BufferGuard guard;
    const Region region = region_of(second);
    guard.take({&region, 1}, {&region, 1});
    second[7] = 3;
    CHECK(guard.has_changed({&region, 1}, {&region, 1}));
    Describe describe = nothing;
    describe.flags = has_changed_buffer;
    Error error(Fault::system, "");
    CHECK(reduce(group, second, true, describe, &error, 960) == Fault::changed);
    CHECK((*error.troubles)[1].flags == has_changed_buffer && (*error.troubles)[0].flags == 0);
  } else {
    runner.wait(*ops[0], in_seconds(20));
    CHECK(fault_of([&] { runner.wait(*ops[1], in_seconds(20)); }) == Fault::changed);
  }
  CHECK(second[0] == 1.0F);
  // One array twice in a row is no change by the user: the ops run in order.
  std::vector<float> twice = ones(240);
  ops = {submit(twice), submit(twice), submit(twice)};
  for (const OpPointer& op : ops) runner.wait(*op, in_seconds(20));
  const auto n = static_cast<float>(group.size());
  CHECK(twice[5] == n * n * n);
}

void read_only_inputs_are_looked_at_again() {
  std::vector<float> in = ones(16);
  std::vector<float> out = ones(16);
  const Region from = region_of(in);
  const Region to = region_of(out);
  BufferGuard guard;
  guard.start({&from, 1}, {&to, 1});
  out[3] = 9;
  CHECK(!guard.has_changed_since_start({&from, 1}, {&to, 1}));
  in[3] = 9;
  CHECK(guard.has_changed_since_start({&from, 1}, {&to, 1}));
  guard.start({&from, 1}, {&from, 1});
  in[3] = 10;
  CHECK(!guard.has_changed_since_start({&from, 1}, {&from, 1}));
}

void guard_messages(Group& group) {
  PointToPoint messages(group);
  std::vector<float> x = ones(4);
  if (group.rank() == 0) {
    x[1] = INFINITY;
    Error error(Fault::system, "");
    CHECK(fault_of(
              [&] {
                messages.send(region_of(x), static_cast<int>(Dtype::float32), 1, 0,
                              in_seconds(20).deadline_ns, false);
              },
              &error) == Fault::nonfinite);
    CHECK((*error.troubles)[0].first == 1 && (*error.troubles)[0].bad_count == 1);
    x[1] = 1;
    const MessagePointer sent = messages.send(region_of(x), static_cast<int>(Dtype::float32), 1, 0,
                                              in_seconds(20).deadline_ns, true);
    x[2] = 5;
    reduce(group, *std::make_unique<std::vector<float>>(ones(8)), true, nothing);
    CHECK(fault_of([&] { messages.wait(sent, in_seconds(20), false); }) == Fault::changed);
    return;
  }
  reduce(group, *std::make_unique<std::vector<float>>(ones(8)), true, nothing);
  if (group.rank() == 1) {
    const MessagePointer got = messages.recv(region_of(x), static_cast<int>(Dtype::float32), 0, 0,
                                             in_seconds(20).deadline_ns, false);
    messages.wait(got, in_seconds(20), true);
  }
}

// ------------------------------------------------------------------------------- levels

void the_highest_level_decides(Group& group) {
  std::vector<float> x = ones(240);
  const std::uint64_t mine = group.rank() + 1;
  for (const std::uint32_t level : {level_info, level_detail}) {
    group.set_level(group.rank() == group.size() - 1 ? level : level_off);
    CHECK(reduce(group, x, true, nothing, nullptr, mine) == Fault::mismatch);
  }
  group.set_level(level_off);
  CHECK(reduce(group, x, true, nothing, nullptr, mine) == no_fault);
  CHECK(x[0] == static_cast<float>(group.size()));
  group.set_level(level_detail);
  x = ones(240);
  CHECK(reduce(group, x, false, nothing) == no_fault);
}

// A few steps that every rank makes up for itself, of its own blocks and whatever it hopes to find.
Plan random_plan(std::mt19937& random, const Group& group, std::uint64_t nbytes) {
  const auto below = [&](std::uint64_t n) { return std::uint64_t{random()} % n; };
  const auto n = group.size();
  Plan plan;
  plan.dtype = Dtype::float32;
  plan.fingerprint = random();
  const std::uint32_t blocks = below(2) == 0 ? 1 : n;
  for (std::uint32_t b = 0; b < blocks; ++b)
    for (auto* cuts : {&plan.in_cuts, &plan.out_cuts})
      cuts->push_back({0, b * (nbytes / blocks), 4 * below(nbytes / blocks / 4 + 1)});
  const auto range = [&](std::uint64_t limit) {
    const std::uint64_t begin = 4 * below(limit / 4 + 1);
    return std::pair{begin, 4 * below((limit - begin) / 4 + 1)};
  };
  plan.steps.push_back(gate());
  const auto count = 1 + below(6);
  for (std::uint64_t k = 0; k < count; ++k) {
    const auto block = static_cast<std::uint32_t>(below(blocks));
    const bool to_slot = below(2) == 0;
    const Space dst = to_slot ? Space::slot : Space::output;
    const auto [offset, length] = range(to_slot ? slot_nbytes : plan.out_cuts[block].nbytes);
    const auto dst_block = to_slot ? 0 : block;
    const auto src_block = static_cast<std::uint32_t>(below(n));
    const std::uint64_t src_offset = 4 * below(nbytes / 4);
    switch (below(5)) {
      case 0: plan.steps.push_back(gate()); break;
      case 1:
        plan.steps.push_back({StepKind::pull, below(2) == 0 ? Space::input : Space::output, dst,
                              static_cast<std::int32_t>(below(n)), src_block, dst_block, src_offset,
                              offset, length});
        break;
      case 2:
        plan.steps.push_back(
            {StepKind::fold_all, Space::input, dst, -1, 0, dst_block, src_offset, offset, length});
        break;
      case 3:
        plan.steps.push_back({StepKind::fold_all, Space::slot, dst, -1, 0, dst_block, 0, offset,
                              std::min<std::uint64_t>(length, slot_nbytes)});
        break;
      case 4:
        if (blocks == n)
          plan.steps.push_back(
              {StepKind::exchange, Space::input, Space::output, -1, 0, 0, 0, 0, 0});
        break;
    }
  }
  plan.steps.push_back(gate());
  plan.finish(n, slot_nbytes);
  return plan;
}

// Every op of every rank is another one, arrays go as soon as an op has ended, and nothing is compared.
void differ_at_level_off(std::uint32_t size, bool single_copy, unsigned seed) {
  run_ranks(size, single_copy, [&](Group& group) {
    group.set_level(level_off);
    std::mt19937 random(seed * 100 + group.rank());
    for (int k = 0; k < 40; ++k) {
      const std::uint64_t nbytes = 4 * (64 + random() % 100'000);
      auto in = std::make_unique<std::vector<float>>(nbytes / 4, 1.0F);
      auto out = std::make_unique<std::vector<float>>(nbytes / 4, 1.0F);
      Plan plan;
      try {
        plan = random_plan(random, group, nbytes);
      } catch (const Error&) {
        continue;  // not a plan
      }
      const Region from = region_of(*in);
      const Region to = region_of(*out);
      try {
        group.run(plan, nothing, {&from, 1}, {&to, 1}, in_seconds(0.5), false, unrecorded);
      } catch (const Error& error) {
        CHECK(error.fault() != Fault::mismatch);
        break;  // the group is broken, and says so to all
      }
    }
    group.leave();
  });
}

// Equal fingerprints and other sizes: what fits is copied, no more.
void exchange_other_sizes_at_level_off(Group& group) {
  group.set_level(level_off);
  const std::uint32_t n = group.size();
  for (const std::uint64_t unit : {std::uint64_t{8}, std::uint64_t{90'000}}) {
    Plan plan;
    const std::uint64_t in_part = unit * (1 + group.rank());
    const std::uint64_t out_part = unit * (1 + (group.rank() + 1) % n);
    for (std::uint32_t p = 0; p < n; ++p) {
      plan.in_cuts.push_back({0, p * in_part, in_part});
      plan.out_cuts.push_back({0, p * out_part, out_part});
    }
    plan.steps = {gate(), {StepKind::exchange, Space::input, Space::output, -1, 0, 0, 0, 0, 0}};
    plan.finish(n, slot_nbytes);
    std::vector<std::byte> in(n * in_part);
    std::vector<std::byte> out(n * out_part);
    const Region from{in.data(), in.size()};
    const Region to{out.data(), out.size()};
    CHECK(fault_of([&] {
            group.run(plan, nothing, {&from, 1}, {&to, 1}, in_seconds(20), false, unrecorded);
          }) == no_fault);
  }
}

// Ranks that lost step while nothing was compared find out at the next op that is, and stop.
void compare_again_after_losing_step(Group& group) {
  group.set_level(level_off);
  std::vector<float> x = ones(12 * 64);
  if (group.rank() == 0) {
    // One gate here, three at the others: they still are in their first op in this one's next two.
    for (int k = 0; k < 2; ++k) CHECK(reduce(group, x, true, nothing, nullptr, 1) == no_fault);
    group.set_level(level_detail);
    Error error(Fault::system, "");
    CHECK(reduce(group, x, true, nothing, &error, 1) == Fault::mismatch);
    CHECK(!error.descriptions && error.peer() > 0 && group.is_broken());
    return;
  }
  CHECK(reduce(group, x, false, nothing, nullptr, 2) == no_fault);
  while (!group.is_broken()) ::usleep(1000);
}

}  // namespace

int main() {
  hash_sees_each_byte();
  nonfinite_is_found_in_every_dtype();
  crossed_sites_are_reported_once();
  sites_that_only_differ_are_quiet();
  read_only_inputs_are_looked_at_again();
  for (const bool single_copy : {true, false}) {
    for (const std::uint32_t size : {2U, 3U, 4U}) {
      run_ranks(size, single_copy, refuse_nonfinite, check_nonfinite);
      if (size > 2) run_ranks(size, single_copy, notice_diverged_outputs, 0, 3);
      run_ranks(size, single_copy, go_on_after_a_suspicion, check_order);
      run_ranks(size, single_copy, notice_changed_buffers, check_buffers);
      run_ranks(size, single_copy, guard_messages, check_nonfinite | check_buffers);
      run_ranks(size, single_copy, the_highest_level_decides);
      run_ranks(size, single_copy, exchange_other_sizes_at_level_off);
      // These race by their nature: ranks read what others write, and get wrong data.
      if (watches_races) continue;
      if (size == 2) run_ranks(size, single_copy, compare_again_after_losing_step);
      for (unsigned seed = 0; seed < 40; ++seed) differ_at_level_off(size, single_copy, seed);
    }
  }
  std::puts("test_checks: passed");
}
