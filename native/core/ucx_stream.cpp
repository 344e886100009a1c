#include "ucx_stream.hpp"

#include <cstring>

namespace distdbg {
namespace {

// The parts of a long message: so small that the ends copy while others are on their way.
constexpr std::uint64_t least_part_nbytes = 64 * 1024;

}  // namespace

void UcxStream::open(UcxEngine& engine, const std::string& address, const TcpWay& way,
                     bool is_here) {
  engine_ = &engine;
  end_ = engine.end_of(address, is_here);
  header_ = ucx_header(engine.token(), way, UcxType::data);
}

std::string UcxStream::why() const {
  return end_ != nullptr && end_->has_failed.load(std::memory_order_acquire) ? end_->why
                                                                             : std::string();
}

std::size_t UcxStream::write(const Piece* pieces, std::size_t count) {
  if (end_ == nullptr || end_->has_failed.load(std::memory_order_acquire)) return 0;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) total += pieces[i].nbytes;
  const std::uint64_t part = std::clamp(total / 4, least_part_nbytes, ucx_part_nbytes);
  std::uint64_t done = 0;
  std::uint64_t in_piece = 0;
  while (done < total) {
    const std::uint64_t nbytes = std::min(total - done, part);
    if (written_ + cost(nbytes) - room_ > ucx_window) break;
    UcxOp* const op = engine_->take(nbytes);
    for (std::uint64_t at = 0; at < nbytes;) {
      const std::uint64_t n = std::min(nbytes - at, pieces->nbytes - in_piece);
      if (n != 0) std::memcpy(op->bytes.get() + at, pieces->data + in_piece, n);
      at += n;
      in_piece += n;
      if (in_piece == pieces->nbytes) {
        ++pieces;
        in_piece = 0;
      }
    }
    op->header = header_;
    op->header.number = parts_++;
    engine_->send(*end_, op);
    written_ += cost(nbytes);
    done += nbytes;
  }
  return done;
}

std::size_t UcxStream::read(std::byte* into, std::size_t nbytes) {
  if (unread_.empty()) return 0;
  const UcxPart& part = unread_.front();
  const std::uint64_t n = std::min<std::uint64_t>(nbytes, part.nbytes - at_);
  if (into != nullptr && n != 0) std::memcpy(into, part.data + at_, n);
  at_ += n;
  if (at_ == part.nbytes) {
    consumed_ += cost(part.nbytes);
    done_.push_back(part);
    unread_.pop_front();
    at_ = 0;
  }
  return n;
}

void UcxStream::settle(std::vector<UcxPart>& read) {
  if (done_.empty()) return;
  read.insert(read.end(), done_.begin(), done_.end());
  done_.clear();
  if (consumed_ - reported_ < ucx_window / 4 || !is_open()) return;
  reported_ = consumed_;
  tell(UcxType::room, consumed_);
}

void UcxStream::drop(std::vector<UcxPart>& read) {
  read.insert(read.end(), unread_.begin(), unread_.end());
  read.insert(read.end(), done_.begin(), done_.end());
  unread_.clear();
  done_.clear();
}

void UcxStream::ask() { tell(UcxType::ask, parts_); }

void UcxStream::tell(UcxType type, std::uint64_t number) {
  if (end_ == nullptr || end_->has_failed.load(std::memory_order_acquire)) return;
  UcxOp* const op = engine_->take(0);
  op->header = header_;
  op->header.type = type;
  op->header.number = number;
  engine_->send(*end_, op);
}

}  // namespace distdbg
