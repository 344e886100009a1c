#include "store_table.hpp"

#include <algorithm>
#include <charconv>

namespace distdbg {
namespace {

constexpr std::size_t names_shown = 16;  // in a timeout; the count says how many there are

void reply(std::string& out, StoreStatus status, std::int64_t number = 0) {
  StoreEncoder(out, static_cast<std::uint8_t>(status), number).finish();
}

void reply_with(std::string& out, StoreStatus status, std::int64_t number, std::string_view field) {
  StoreEncoder encoder(out, static_cast<std::uint8_t>(status), number);
  encoder.field(field);
  encoder.finish();
}

bool parse(std::string_view text, std::int64_t& number) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  return fault == std::errc{} && end == text.data() + text.size();
}

bool is_listed(std::string_view key, std::string_view prefix) {
  return !key.starts_with('\0') && key.starts_with(prefix);
}

}  // namespace

bool StoreTable::is_present(std::string_view key) const {
  if (values_.find(key) != values_.end()) return true;
  const auto queue = queues_.find(key);
  return queue != queues_.end() && !queue->second.empty();
}

std::string& StoreTable::value_of(std::string_view key) {
  const auto found = values_.find(key);
  if (found != values_.end()) return found->second;
  return values_.emplace(std::string(key), std::string()).first->second;
}

// Every key is at most key_nbytes long, every value at most value_nbytes, and the number of fields fits the op.
bool StoreTable::has_valid_sizes(const StoreMessage& request) const {
  const auto& fields = request.fields;
  const auto is_key = [&](std::string_view f) { return f.size() <= limits_.key_nbytes; };
  const auto is_value = [&](std::string_view f) { return f.size() <= limits_.value_nbytes; };
  switch (static_cast<StoreOp>(request.code)) {
    case StoreOp::set:
      for (std::size_t i = 0; i < fields.size(); ++i) {
        if (i % 2 == 0 ? !is_key(fields[i]) : !is_value(fields[i])) return false;
      }
      return fields.size() % 2 == 0;
    case StoreOp::get:
    case StoreOp::check:
    case StoreOp::wait: return std::all_of(fields.begin(), fields.end(), is_key);
    case StoreOp::append:
    case StoreOp::queue_push: return fields.size() == 2 && is_key(fields[0]) && is_value(fields[1]);
    case StoreOp::compare_set:
      return fields.size() == 3 && is_key(fields[0]) && is_value(fields[1]) && is_value(fields[2]);
    case StoreOp::add:
    case StoreOp::delete_key:
    case StoreOp::queue_pop:
    case StoreOp::queue_len: return fields.size() == 1 && is_key(fields[0]);
    case StoreOp::list_keys:
    case StoreOp::num_keys:
    case StoreOp::join:
    case StoreOp::await_joined: return fields.size() == 1 && fields[0].size() <= limits_.key_nbytes;
  }
  return false;
}

StoreTable::Outcome StoreTable::answer(const StoreMessage& request, std::string& out) {
  using Kind = Outcome::Kind;
  if (request.code == 0 || request.code > store_last_op || !has_valid_sizes(request)) {
    reply(out, StoreStatus::bad_request);
    return {Kind::refused};
  }
  const auto& fields = request.fields;
  switch (static_cast<StoreOp>(request.code)) {
    case StoreOp::set:
      for (std::size_t i = 0; i < fields.size(); i += 2) value_of(fields[i]).assign(fields[i + 1]);
      reply(out, StoreStatus::ok);
      return {Kind::touched};
    case StoreOp::get:
      for (std::string_view key : fields) {
        if (values_.find(key) == values_.end()) return {Kind::waits, key};
      }
      answer_get(request, out);
      return {};
    case StoreOp::wait:
      for (std::string_view key : fields) {
        if (!is_present(key)) return {Kind::waits, key};
      }
      reply(out, StoreStatus::ok);
      return {};
    case StoreOp::check: {
      const bool all = std::all_of(fields.begin(), fields.end(),
                                   [this](std::string_view key) { return is_present(key); });
      reply(out, StoreStatus::ok, all ? 1 : 0);
      return {};
    }
    case StoreOp::add: answer_add(request, out); return {Kind::touched, fields[0]};
    case StoreOp::append: {
      std::string& value = value_of(fields[0]);
      if (value.size() + fields[1].size() > limits_.value_nbytes) {
        reply(out, StoreStatus::too_large);
        return {};
      }
      value.append(fields[1]);
      reply(out, StoreStatus::ok);
      return {Kind::touched, fields[0]};
    }
    case StoreOp::compare_set: answer_compare_set(request, out); return {Kind::touched, fields[0]};
    case StoreOp::delete_key: {
      const auto found = values_.find(fields[0]);  // queues stay, as in torch
      const bool existed = found != values_.end();
      if (existed) values_.erase(found);
      reply(out, StoreStatus::ok, existed ? 1 : 0);
      return {};
    }
    case StoreOp::list_keys: answer_list_keys(fields[0], out); return {};
    case StoreOp::num_keys: {
      std::int64_t count = 0;
      for (const auto& [key, value] : values_) count += is_listed(key, fields[0]) ? 1 : 0;
      reply(out, StoreStatus::ok, count);
      return {};
    }
    case StoreOp::queue_push: {
      auto queue = queues_.find(fields[0]);
      if (queue == queues_.end()) {
        queue = queues_.emplace(std::string(fields[0]), std::deque<std::string>()).first;
      }
      queue->second.emplace_back(fields[1]);
      reply(out, StoreStatus::ok);
      return {Kind::touched, fields[0]};
    }
    case StoreOp::queue_pop: {
      const auto queue = queues_.find(fields[0]);
      if (queue == queues_.end()) {
        if (request.number >= 0) return {Kind::waits, fields[0]};
        reply(out, StoreStatus::empty);
        return {};
      }
      reply_with(out, StoreStatus::ok, 0, queue->second.front());
      queue->second.pop_front();
      if (queue->second.empty()) queues_.erase(queue);  // so an empty queue costs nothing
      return {};
    }
    case StoreOp::queue_len: {
      const auto queue = queues_.find(fields[0]);
      reply(out, StoreStatus::ok,
            queue == queues_.end() ? 0 : static_cast<std::int64_t>(queue->second.size()));
      return {};
    }
    case StoreOp::join:
      joined_.emplace_back(fields[0]);
      reply(out, StoreStatus::ok, static_cast<std::int64_t>(joined_.size()));
      return {Kind::touched, store_join_key};
    case StoreOp::await_joined: {
      std::int64_t count = 0;
      if (!parse(fields[0], count)) {
        reply(out, StoreStatus::bad_request);
        return {Kind::refused};
      }
      if (static_cast<std::int64_t>(joined_.size()) < count) return {Kind::waits, store_join_key};
      reply(out, StoreStatus::ok);
      return {};
    }
  }
  return {Kind::refused};
}

void StoreTable::answer_get(const StoreMessage& request, std::string& out) const {
  std::size_t nbytes = 0;
  for (std::string_view key : request.fields) nbytes += 4 + values_.find(key)->second.size();
  if (nbytes > limits_.message_nbytes()) return reply(out, StoreStatus::too_large);
  StoreEncoder encoder(out, static_cast<std::uint8_t>(StoreStatus::ok), 0);
  for (std::string_view key : request.fields) encoder.field(values_.find(key)->second);
  encoder.finish();
}

void StoreTable::answer_add(const StoreMessage& request, std::string& out) {
  const std::string_view key = request.fields[0];
  std::int64_t sum = 0;
  const auto found = values_.find(key);
  if (found != values_.end() && !parse(found->second, sum)) {
    return reply_with(out, StoreStatus::not_a_number, 0,
                      std::string_view(found->second).substr(0, 64));
  }
  if (__builtin_add_overflow(sum, request.number, &sum)) return reply(out, StoreStatus::overflow);
  value_of(key) = std::to_string(sum);
  reply(out, StoreStatus::ok, sum);
}

void StoreTable::answer_compare_set(const StoreMessage& request, std::string& out) {
  const auto found = values_.find(request.fields[0]);
  if (found == values_.end()) {
    // As torch: nothing expected creates the key, else the answer is what was expected.
    if (request.fields[1].empty()) value_of(request.fields[0]).assign(request.fields[2]);
    return reply_with(out, StoreStatus::ok, 0, request.fields[request.fields[1].empty() ? 2 : 1]);
  }
  if (found->second == request.fields[1]) found->second.assign(request.fields[2]);
  reply_with(out, StoreStatus::ok, 0, found->second);
}

void StoreTable::answer_list_keys(std::string_view prefix, std::string& out) const {
  std::size_t nbytes = 0;
  for (const auto& [key, value] : values_) nbytes += is_listed(key, prefix) ? 4 + key.size() : 0;
  if (nbytes > limits_.message_nbytes()) return reply(out, StoreStatus::too_large);
  StoreEncoder encoder(out, static_cast<std::uint8_t>(StoreStatus::ok), 0);
  for (const auto& [key, value] : values_) {
    if (is_listed(key, prefix)) encoder.field(key);
  }
  encoder.finish();
}

void StoreTable::answer_timeout(const StoreMessage& request, std::string& out) const {
  std::vector<std::string_view> names;
  std::int64_t count = 0;
  if (static_cast<StoreOp>(request.code) == StoreOp::await_joined) {
    count = static_cast<std::int64_t>(joined_.size());
    names.assign(joined_.begin(), joined_.end());
  } else {
    const bool only_values = static_cast<StoreOp>(request.code) == StoreOp::get;
    for (std::string_view key : request.fields) {
      if (only_values ? values_.find(key) != values_.end() : is_present(key)) continue;
      names.push_back(key);
    }
    count = static_cast<std::int64_t>(names.size());
  }
  if (names.size() > names_shown) names.resize(names_shown);
  StoreEncoder encoder(out, static_cast<std::uint8_t>(StoreStatus::timeout), count);
  for (std::string_view name : names) encoder.field(name);
  encoder.finish();
}

}  // namespace distdbg
