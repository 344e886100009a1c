// Writes a rank's record into its mapped file (record.hpp says what holds; record_file.cpp makes the file).
// An op is written twice: `begin` fills its entry in the ring and publishes its number last, so that a reader
// never sees half of one, and `end_at` adds status and times. Strings, sites, forms and errors are entries of
// their own that an op refers to by number. `park` copies an op in flight to a place outside of the ring before
// its entry there is overwritten; `note` writes what is no op: marks, spans, findings, contexts.
#include "record.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "record_stores.hpp"
#include "utf8.hpp"

namespace distdbg {

namespace {

constexpr std::size_t most_string_nbytes = 1024;

template <class Entry>  // FormEntry or TextEntry
void write_words(Entry& entry, std::uint64_t number, std::string_view text) {
  const std::size_t nbytes = std::min(text.size(), sizeof entry.text);
  invalidate(entry.number);
  entry.text_nbytes = nbytes;
  const std::size_t padded = (nbytes + 7) / 8 * 8;
  if (padded > 0) std::memset(entry.text + padded - 8, 0, 8);
  std::memcpy(entry.text, text.data(), nbytes);
  std::uint64_t words[sizeof entry.text / 8 + 2];
  words[0] = number;
  words[1] = nbytes;
  std::memcpy(words + 2, entry.text, padded);
  entry.check = checksum(words, 2 + padded / 8);
  publish(entry.number, number);
}

std::size_t bucket_of(std::uint64_t value) {
  const auto bucket = static_cast<std::size_t>(std::bit_width(value | 1)) - 1;
  return std::min(bucket, bucket_count - 1);
}

}  // namespace

Recorder::Lock::Lock(const Recorder& recorder) : flag_(recorder.lock_) {
  for (int tries = 0; flag_.test_and_set(std::memory_order_acquire); ++tries)
    if (tries > 100) ::sched_yield();
}

// ----------------------------------------------------------------------------- strings, sites

std::uint32_t Recorder::intern(std::string_view text) {
  const Lock lock(*this);
  return intern_locked(text);
}

std::uint32_t Recorder::intern_locked(std::string_view text) {
  text = whole_characters(text, most_string_nbytes);
  std::string key(text);
  if (const auto found = strings_.find(key); found != strings_.end()) return found->second;
  const std::uint64_t offset = state().strings_nbytes;
  const std::uint64_t nbytes = 8 + (text.size() + 7) / 8 * 8;
  if (offset + nbytes > count(SectionId::strings)) {
    ++state().lost_strings;
    return 0;
  }
  std::byte* at = section<std::byte>(SectionId::strings) + offset;
  std::uint64_t check = text.size();
  for (const char c : text) check += static_cast<unsigned char>(c);
  const auto length = static_cast<std::uint32_t>(text.size());
  const auto check32 = static_cast<std::uint32_t>(check % 0xFFFF'FFFF);
  std::memcpy(at + 8, text.data(), text.size());
  std::memcpy(at + 4, &check32, 4);
  std::memcpy(at, &length, 4);
  publish(state().strings_nbytes, offset + nbytes);
  const auto reference = static_cast<std::uint32_t>(offset / 8);
  strings_.emplace(std::move(key), reference);
  return reference;
}

std::string_view Recorder::string(std::uint32_t reference) const {
  if (reference == 0) return {};
  const std::byte* at = section<std::byte>(SectionId::strings) + std::uint64_t{reference} * 8;
  std::uint32_t length = 0;
  std::memcpy(&length, at, 4);
  return {reinterpret_cast<const char*>(at + 8), length};
}

std::uint32_t Recorder::add_site(std::uint32_t file, std::uint32_t function, std::uint32_t line,
                                 std::uint32_t parent) {
  const Lock lock(*this);
  const SiteKey key{std::uint64_t{file} << 32 | function, std::uint64_t{line} << 32 | parent};
  if (const auto found = sites_.find(key); found != sites_.end()) return found->second;
  const auto index = static_cast<std::uint32_t>(state().site_count);
  if (index >= count(SectionId::sites)) {
    ++state().lost_sites;
    return 0;
  }
  SiteEntry& entry = section<SiteEntry>(SectionId::sites)[index];
  entry = {file, function, line, parent, index, 0};
  std::uint64_t words[3];
  std::memcpy(words, &entry, sizeof words);
  entry.check = checksum(words, 3);
  publish(state().site_count, index + 1);
  sites_.emplace(key, index);
  return index;
}

std::string Recorder::site_words(std::uint32_t site, std::size_t most_nbytes) const {
  if (site == 0) return {};
  const SiteEntry& entry = section<SiteEntry>(SectionId::sites)[site];
  std::string_view file = string(entry.file);
  if (file.empty()) file = "?";
  const std::string line = std::to_string(entry.line);
  const std::string_view function = string(entry.function);
  const std::size_t room = most_nbytes - std::min(most_nbytes, line.size() + sizeof ": (...)" - 1);
  while (file.size() + function.size() > room && file.find('/') < file.size() - 1)
    file.remove_prefix(file.find('/') + 1);
  file = last_characters(file, room);
  const std::string_view shown = last_characters(function, room - file.size());
  const std::string_view cut = shown.size() < function.size() ? "..." : "";
  return std::string(file) + ":" + line + " (" + std::string(cut) + std::string(shown) + ")";
}

std::uint64_t Recorder::add_text(std::string_view text) {
  const Lock lock(*this);
  const std::uint64_t number = state().last_text + 1;
  write_words(section<TextEntry>(SectionId::texts)[number % count(SectionId::texts)], number, text);
  publish(state().last_text, number);
  return number;
}

void Recorder::set_comm(std::string_view name) {
  const Lock lock(*this);
  comm_ = name.empty() ? 0 : intern_locked(name);
}

// ------------------------------------------------------------------------------------- groups

Recorder::Group* Recorder::find_group(std::uint64_t number) {
  Group& group = groups_[number % groups_.size()];
  return number != 0 && group.number == number ? &group : nullptr;
}

GroupEntry& Recorder::group_entry(std::uint64_t number) const {
  return section<GroupEntry>(SectionId::groups)[number % count(SectionId::groups)];
}

std::uint64_t Recorder::add_group(const GroupFacts& facts) {
  const Lock lock(*this);
  // The place of a living group is left alone as long as there is another.
  std::uint64_t number = state().last_group + 1;
  for (std::size_t tries = 0; tries < groups_.size(); ++tries, ++number)
    if (groups_[number % groups_.size()].is_closed) break;
  GroupEntry& entry = group_entry(number);
  invalidate(entry.number);
  GroupEntry made{};
  made.number = number;
  made.created_ns = now_ns();
  made.name = intern_locked(facts.name);
  made.desc = intern_locked(facts.desc);
  made.ranks = intern_locked(facts.ranks);
  made.backend = intern_locked(facts.backend);
  made.size = facts.size;
  made.rank = facts.rank;
  made.timeout_ns = facts.timeout_ns;
  made.site = facts.site;
  std::uint64_t words[7];
  std::memcpy(words, &made, sizeof words);
  made.check = checksum(words, 7);
  std::memcpy(reinterpret_cast<std::byte*>(&entry) + 8, reinterpret_cast<std::byte*>(&made) + 8,
              sizeof made - 8);
  publish(entry.number, number);
  Group& group = groups_[number % groups_.size()];
  group = Group{};
  group.number = number;
  group.is_closed = false;
  is_counting_full_ = false;  // it may have the place of a living one
  publish(state().last_group, number);
  return number;
}

void Recorder::close_group(std::uint64_t number, std::uint32_t site) {
  const Lock lock(*this);
  Group* group = find_group(number);
  if (group == nullptr || group->is_closed) return;
  group->is_closed = true;
  is_counting_full_ = false;
  group_entry(number).closed_site = site;
  publish(group_entry(number).closed_ns, static_cast<std::uint64_t>(now_ns()));
}

void Recorder::set_broken(std::uint64_t number, std::uint64_t text) {
  const Lock lock(*this);
  if (find_group(number) != nullptr && group_entry(number).broken == 0)
    publish(group_entry(number).broken, pack(text));
}

void Recorder::set_exit(std::uint64_t how, std::uint64_t text) {
  const Lock lock(*this);
  publish(state().exit_text, text == 0 ? 0 : pack(text));
  publish(state().exit_ns, static_cast<std::uint64_t>(now_ns()));
  publish(state().exit, how == 0 ? 0 : pack(how));
}

void Recorder::set_level(std::uint8_t level) { publish(state().level, level); }

namespace {

bool counts(const CounterEntry& counter, std::uint64_t group, std::uint8_t kind,
            std::uint32_t dtype) {
  return counter.group == group && counter.kind == kind && counter.dtype == dtype;
}

}  // namespace

// A place is known from the op that ends second on: the first one takes it.
void Recorder::find_counter(const Group& group, Form& form) {
  if (form.dtype_reference == 0 && !form.dtype.empty())
    form.dtype_reference = intern_locked(form.dtype);
  form.counted_group = 0;
  for (const std::uint32_t place : group.counters)
    if (counts(counters_[place], group.number, form.kind, form.dtype_reference)) {
      form.counter = place;
      form.counted_group = group.number;
      return;
    }
}

CounterEntry* Recorder::counter_of(Group& group, const RecordedOp& op) {
  if (CounterEntry& counter = counters_[op.counter];
      counts(counter, group.number, op.kind, op.dtype)) [[likely]]
    return &counter;
  for (const std::uint32_t place : group.counters)
    if (counts(counters_[place], group.number, op.kind, op.dtype)) return &counters_[place];
  return take_counter(group, op.kind, op.dtype);
}

// A free place, else that of a closed group; none when all 512 count for living groups.
CounterEntry* Recorder::take_counter(Group& group, std::uint8_t kind, std::uint32_t dtype) {
  const std::uint32_t total = is_counting_full_ ? 0 : count(SectionId::counters);
  for (std::uint32_t tries = 0; tries < total; ++tries) {
    const std::uint32_t place = next_counter_;
    CounterEntry& counter = counters_[place];
    next_counter_ = (next_counter_ + 1) % total;
    const Group* owner = find_group(counter.group);
    if (owner != nullptr && !owner->is_closed) continue;
    invalidate(counter.group);
    std::memset(&counter, 0, sizeof counter);
    counter.kind = kind;
    counter.dtype = dtype;
    publish(counter.group, group.number);
    group.counters.push_back(place);
    state().counter_count = std::min<std::uint64_t>(state().counter_count + 1, total);
    return &counter;
  }
  is_counting_full_ = true;
  ++state().lost_counters;
  return nullptr;
}

// ---------------------------------------------------------------------------------------- ops

OpEntry& Recorder::place_of(std::uint64_t number) const { return ring_[number & ring_mask_]; }

// Each op writes at most one form, so a form that is younger than all but `form_slack_` places of its
// ring outlives every op of the other ring that names it.
void Recorder::keep_form(Form& form) {
  std::uint64_t& last = state().last_form;
  if (form.number != 0 && last - form.number < form_slack_) return;
  form.number = last + 1;
  write_words(section<FormEntry>(SectionId::forms)[form.number % count(SectionId::forms)],
              form.number, form.text);
  publish(last, form.number);
}

void Recorder::park(const OpEntry& entry) {
  auto* const parked = section<ParkedEntry>(SectionId::parked);
  const auto is_in_flight = [](const ParkedEntry& e) {
    return e.op.number != 0 && e.op.ended == 0;
  };
  const std::uint32_t total = count(SectionId::parked);
  std::uint32_t place = next_parked_ % total;  // the oldest gives way when all are in flight
  for (std::uint32_t tries = 1; tries < total && is_in_flight(parked[place]); ++tries)
    place = (place + 1) % total;
  ParkedEntry& into = parked[place];
  if (is_in_flight(into)) ++state().lost_parked;
  next_parked_ = place + 1;
  invalidate(into.op.number);
  const FormEntry& form =
      section<FormEntry>(SectionId::forms)[entry.form % count(SectionId::forms)];
  std::memcpy(&into.form, &form, sizeof form);
  std::memcpy(reinterpret_cast<std::byte*>(&into.op) + 8,
              reinterpret_cast<const std::byte*>(&entry) + 8, sizeof entry - 8);
  publish(into.op.number, entry.number);
}

OpEntry* Recorder::find(std::uint64_t number) {
  OpEntry& entry = place_of(number);
  if (entry.number == number) return &entry;
  auto* const parked = section<ParkedEntry>(SectionId::parked);
  for (std::uint32_t i = 0; i < count(SectionId::parked); ++i)
    if (parked[i].op.number == number) return &parked[i].op;
  return nullptr;
}

std::uint64_t Recorder::write(EventType type, const OpFacts& facts, std::uint8_t kind,
                              const Form* form, std::uint64_t text) {
  const std::uint64_t number = state().last_number + 1;
  OpEntry& entry = place_of(number);
  if (entry.number != 0 && entry.ended == 0 &&
      entry.type == static_cast<std::uint8_t>(EventType::op))
    park(entry);
  OpEntry made;
  made.number = number;
  made.issued_ns = facts.issued_ns;
  made.seq = facts.seq;
  made.value = facts.value;
  made.group = facts.group;
  made.form = form != nullptr ? form->number : 0;
  made.site = facts.site;
  made.thread = thread_number();
  made.peer = facts.peer;
  made.type = static_cast<std::uint8_t>(type);
  made.flags = facts.flags;
  made.kind = kind;
  made.level = static_cast<std::uint8_t>(state().level);
  made.fingerprint = form != nullptr ? form->fingerprint : 0;
  made.text = text;
  made.comm = comm_;
  made.reserved = 0;
  std::uint64_t words[11];
  std::memcpy(words, &made, sizeof words);
  made.check = checksum(words, 11);
  made.started = made.ended = made.outcome = made.error = 0;
  invalidate(entry.number);
  std::memcpy(reinterpret_cast<std::byte*>(&entry) + 8, reinterpret_cast<std::byte*>(&made) + 8,
              sizeof made - 8);
  publish(entry.number, number);
  publish(state().last_number, number);
  return number;
}

RecordedOp Recorder::begin(const OpFacts& facts, Form& form, PreviousOp* previous) {
  const Lock lock(*this);
  keep_form(form);
  RecordedOp op;
  op.number = write(EventType::op, facts, form.kind, &form, 0);
  op.seq = facts.seq;
  op.is_counted = (facts.flags & (flag_message | flag_aside)) == 0;
  op.group = facts.group;
  op.nbytes = form.nbytes;
  op.issued_ns = facts.issued_ns;
  op.kind = form.kind;
  state().heartbeat_ns = facts.issued_ns;
  if (Group* group = find_group(facts.group)) {
    GroupEntry& entry = group_entry(facts.group);
    entry.current = op.number;
    if (form.counted_group != facts.group) find_counter(*group, form);
    op.counter = form.counter;
    op.dtype = form.dtype_reference;
    if (op.is_counted) {
      entry.issued_seq = facts.seq;
      if (previous != nullptr) *previous = group->last;
      if (form.name_reference == 0) form.name_reference = intern_locked(form.name);
      group->last = {facts.seq, form.name_reference, facts.site};
    }
  }
  return op;
}

void Recorder::started(RecordedOp& op) {
  if (op.number == 0 || op.started_ns != 0) return;
  op.started_ns = now_ns();
  const Lock lock(*this);
  if (OpEntry* entry = find(op.number))
    publish(entry->started, pack(static_cast<std::uint64_t>(op.started_ns - op.issued_ns)));
}

void Recorder::ended(RecordedOp& op, std::uint32_t status, int source, std::int64_t now) {
  end_at(op, status, source, now != 0 ? now : now_ns());
}

void Recorder::ended_after(RecordedOp& op, std::int64_t ran_ns, int source) {
  const std::int64_t now = now_ns();
  if (op.number != 0) {
    op.started_ns = std::max(op.issued_ns, now - ran_ns);
    const Lock lock(*this);
    if (OpEntry* entry = find(op.number))
      publish(entry->started, pack(static_cast<std::uint64_t>(op.started_ns - op.issued_ns)));
  }
  end_at(op, 0, source, now);
}

void Recorder::end_at(RecordedOp& op, std::uint32_t status, int source, std::int64_t now) {
  const std::uint64_t number = std::exchange(op.number, 0);  // an op ends once
  if (number == 0) return;
  const auto took_ns = static_cast<std::uint64_t>(now - op.issued_ns);
  const Lock lock(*this);
  state().heartbeat_ns = now;
  if (OpEntry* entry = find(number)) {
    publish(entry->outcome, pack(status | static_cast<std::uint64_t>(source + 1) << 8));
    publish(entry->ended, pack(took_ns));
  }
  Group* group = find_group(op.group);
  if (group == nullptr) return;
  if (op.is_counted) ++group_entry(op.group).ended_seq;
  CounterEntry* counter = counter_of(*group, op);
  if (counter == nullptr) return;
  ++counter->ended;
  if (status == 0) {
    counter->nbytes += op.nbytes;
  } else {
    ++counter->failed;
  }
  const std::uint64_t waited_ns =
      op.started_ns != 0 ? static_cast<std::uint64_t>(op.started_ns - op.issued_ns) : took_ns;
  counter->duration_ns += took_ns;
  counter->wait_ns += waited_ns;
  counter->longest_ns = std::max(counter->longest_ns, took_ns);
  ++counter->duration_buckets[bucket_of(took_ns)];
  ++counter->wait_buckets[bucket_of(waited_ns)];
  ++counter->size_buckets[bucket_of(op.nbytes)];
}

void Recorder::set_error(std::uint64_t number, std::uint64_t text) {
  const Lock lock(*this);
  if (OpEntry* entry = number != 0 ? find(number) : nullptr) publish(entry->error, pack(text));
}

void Recorder::set_seq(RecordedOp& op, std::uint64_t seq) {
  op.seq = seq;
  change(op.number, [seq](OpEntry& entry) { return std::exchange(entry.seq, seq) != seq; });
}

void Recorder::set_end_queued(const RecordedOp& op) {
  change(op.number, [](OpEntry& entry) {
    const auto flags =
        static_cast<std::uint8_t>((entry.flags & ~flag_end_noticed) | flag_end_queued);
    return std::exchange(entry.flags, flags) != flags;
  });
}

void Recorder::failed_after_all(std::uint64_t number, std::uint32_t status) {
  const Lock lock(*this);
  if (OpEntry* entry = number != 0 ? find(number) : nullptr) publish(entry->outcome, pack(status));
}

// `how` changes what the check of an entry covers, and says whether it has.
template <class How>
void Recorder::change(std::uint64_t number, How&& how) {
  if (number == 0) return;
  const Lock lock(*this);
  OpEntry* const entry = find(number);
  if (entry == nullptr) return;
  OpEntry changed = *entry;
  if (!how(changed)) return;
  invalidate(entry->number);
  how(*entry);
  std::uint64_t words[11];
  std::memcpy(words, entry, sizeof words);
  words[0] = number;
  entry->check = checksum(words, 11);
  publish(entry->number, number);
}

std::uint64_t Recorder::note(EventType type, const OpFacts& facts, Form* form, std::uint64_t text) {
  const Lock lock(*this);
  if (form != nullptr) keep_form(*form);
  return write(type, facts, 0, form, text);
}

std::uint64_t Recorder::set_context(const TraceContext& context) {
  OpFacts facts;
  facts.issued_ns = now_ns();
  facts.seq = context.trace_high;
  facts.value = std::bit_cast<std::int64_t>(context.span);
  facts.flags = context.is_sampled ? flag_sampled : 0;
  Form low;  // without a place among the forms
  low.fingerprint = context.trace_low;
  const Lock lock(*this);
  return write(EventType::context, facts, 0, &low, 0);
}

}  // namespace distdbg
