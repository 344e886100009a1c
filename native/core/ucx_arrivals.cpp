// What comes to the worker of UCX: whether it is of this run, in which order, and for whom.
#include <cstring>
#include <utility>

#include "ucx_engine.hpp"

namespace distdbg {

ucx::Status UcxEngine::on_message(void* arg, const void* header, std::size_t header_nbytes,
                                  void* data, std::size_t nbytes, const ucx::MessageFacts* facts) {
  auto* const engine = static_cast<UcxEngine*>(arg);
  if (header_nbytes != sizeof(UcxHeader)) {
    engine->refused_.fetch_add(1, std::memory_order_relaxed);
    return ucx::ok;
  }
  UcxHeader own;
  std::memcpy(&own, header, sizeof own);
  return engine->take_in(own, data, nbytes, *facts);
}

// nullptr where the key is not of this run, or its transport is gone.
UcxEngine::Door* UcxEngine::door_of(const UcxHeader& header) {
  const auto found = doors_.find(header.key);
  if (found != doors_.end()) return &found->second;
  if (!proves_token(header, token_)) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  const Place place{header.cookie, header.kind, header.to};
  if (shut_.contains(place)) return nullptr;
  Door& door = doors_[header.key];
  door.place = place;
  door.from = header.from;
  const auto mailbox = open_.find(place);
  if (mailbox != open_.end()) {
    door.mailbox = mailbox->second;
    door.mailbox->keys.push_back(header.key);
  }
  return &door;
}

ucx::Status UcxEngine::take_in(const UcxHeader& header, void* data, std::uint64_t nbytes,
                               const ucx::MessageFacts& facts) {
  Door* const door = door_of(header);
  if (door == nullptr) {
    // All that has come to a transport that is gone is as good as read.
    if (header.type == UcxType::ask && shut_.contains({header.cookie, header.kind, header.to}) &&
        proves_token(header, token_))
      answer(header, facts.reply_endpoint);
    return ucx::ok;
  }
  switch (header.type) {
    case UcxType::data:
      if (nbytes == 0 || nbytes > ucx_part_nbytes) break;
      if ((facts.attributes & ucx::MessageFacts::is_rendezvous) != 0) {
        to_fetch_.push_back({data, header, nbytes});
        return ucx::in_progress;
      }
      if ((facts.attributes & ucx::MessageFacts::is_kept) != 0) {
        arrive(*door, header.number, {static_cast<std::byte*>(data), nbytes, nullptr});
        return ucx::in_progress;
      } else {
        UcxOp* const op = take_locked(nbytes);
        std::memcpy(op->bytes.get(), data, nbytes);
        arrive(*door, header.number, {op->bytes.get(), nbytes, op});
      }
      break;
    case UcxType::ask:
      if (door->next >= header.number) answer(header, facts.reply_endpoint);
      break;
    case UcxType::room:
    case UcxType::have: put(*door, {door->from, header.type, header.number, {}}); break;
  }
  return ucx::ok;
}

void UcxEngine::answer(const UcxHeader& ask, ucx::Endpoint* to) {
  if (to == nullptr) return;
  UcxOp* const op = take_locked(0);
  op->header = ucx_header(token_, {ask.cookie, ask.kind, ask.to, ask.from}, UcxType::have);
  op->header.number = ask.number;
  post(to, op);
}

void UcxEngine::arrive(Door& door, std::uint64_t number, UcxPart part) {
  if (number < door.next || door.late.contains(number)) return give_back(part);  // it was here
  if (number != door.next) {
    door.late.emplace(number, part);
    return;
  }
  put(door, {door.from, UcxType::data, door.next++, part});
  for (auto next = door.late.begin(); next != door.late.end() && next->first == door.next;
       next = door.late.erase(next))
    put(door, {door.from, UcxType::data, door.next++, next->second});
}

void UcxEngine::put(Door& door, UcxNews news) {
  if (!door.mailbox) return door.early.push_back(news);
  door.mailbox->news.push_back(news);
  if (door.mailbox.get() != collecting_ && door.mailbox->wake) door.mailbox->wake();
}

void UcxEngine::fetch(const Fetch& what) {
  UcxOp* const op = take_locked(what.nbytes);
  op->header = what.header;
  ucx::RequestParams params{};
  params.mask = ucx::RequestParams::has_callback | ucx::RequestParams::has_user_data;
  params.on_fetched = &UcxEngine::on_fetched;
  params.user_data = op;
  void* const request =
      ucp_.am_recv_data_nbx(worker_, what.descriptor, op->bytes.get(), what.nbytes, &params);
  if (request == nullptr || ucx::is_error(request)) fetched(op, ucx::status_of(request));
}

void UcxEngine::on_fetched(void* request, ucx::Status status, std::size_t, void* user_data) {
  auto* const op = static_cast<UcxOp*>(user_data);
  UcxEngine& engine = *op->engine;
  engine.fetched(op, status);
  engine.ucp_.request_free(request);
}

// What cannot be fetched leaves a gap: nothing behind it is ever read, and the peer's end fails as well.
void UcxEngine::fetched(UcxOp* op, ucx::Status status) {
  const auto door = doors_.find(op->header.key);
  if (door == doors_.end() || status != ucx::ok) return give_back(op);
  arrive(door->second, op->header.number, {op->bytes.get(), op->nbytes, op});
}

}  // namespace distdbg
