#include "plugins/transports/nccl/peer_copies.h"

#include <algorithm>
#include <array>

#include "consist/error.h"
#include "plugins/transports/nccl/part_kernels.h"

namespace consist::nccl {
namespace {

constexpr std::size_t word_distance = 64;  // bytes: no two writers share a sector
constexpr std::size_t words_bytes = std::size_t{64} << 10;
constexpr std::size_t alignment = 256;

CUdeviceptr address(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

std::size_t window_bytes(const GroupRequest& group, std::size_t staging) {
  return words_bytes + staging * (group.link ? 1 : group.ranks.size() - 1);  // a place for each peer
}

}  // namespace

/// A stretch of each part of one tensor, and where it stands in a round's memory.
struct PeerCopies::Segment {
  const Parts& tensor;
  std::size_t offset, bytes, at;
};

/// As much of the tensors, from a place in them on, as fits into the memory of one round.
class PeerCopies::Round {
 public:
  Round(std::span<const Parts> tensors, std::size_t staging) : tensors_(tensors), staging_(staging) {}

  bool empty() const {
    return std::all_of(tensors_.begin(), tensors_.end(), [](const Parts& tensor) { return tensor.count == 0; });
  }

  template <typename Visit>
  void each(Visit visit) const {
    walk(visit);
  }
  /// The round behind this one.
  Round next() const {
    return walk([](const Segment&) {});
  }

 private:
  template <typename Visit>
  Round walk(Visit visit) const {
    Round rest = *this;
    for (std::size_t used = 0; used < staging_ && !rest.tensors_.empty();) {
      const Parts& tensor = rest.tensors_.front();
      const std::size_t bytes = std::min(tensor.bytes() - rest.offset_, staging_ - used);
      if (bytes > 0) visit(Segment{tensor, rest.offset_, bytes, used});
      used += (bytes + alignment - 1) / alignment * alignment;
      rest.offset_ += bytes;
      if (rest.offset_ < tensor.bytes()) continue;
      rest.tensors_ = rest.tensors_.subspan(1);
      rest.offset_ = 0;
    }
    return rest;
  }

  std::span<const Parts> tensors_;
  std::size_t staging_, offset_ = 0;  // bytes of the first tensor's parts that earlier rounds have moved
};

/// Words that a stream waits for or writes, as one node of a graph.
class PeerCopies::Signals {
 public:
  Signals(const PeerCopies& copies, CUstream stream) : copies_(copies), stream_(stream) {}

  /// Waits until `peer` has set the word, and takes it back.
  Signals& await(Word word, int peer) {
    CUstreamBatchMemOpParams op{};
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = copies_.word(copies_.own_, word, peer);
    op.waitValue.value = 1;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    ops_.at(count_++) = op;
    return write(copies_.word(copies_.own_, word, peer), 0);
  }
  /// Behind everything that the stream has done so far.
  Signals& tell(Word word, int peer) { return write(copies_.word(peer, word, copies_.own_), 1); }

  void enqueue() {
    if (count_ == 0) return;
    copies_.driver_.check(copies_.driver_.batch_writes(stream_, static_cast<unsigned>(count_), ops_.data(), 0),
                          "making a stream wait for another rank (cuStreamBatchMemOp)");
    count_ = 0;
  }

 private:
  Signals& write(CUdeviceptr word, std::uint32_t value) {
    CUstreamBatchMemOpParams op{};
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = word;
    op.writeValue.value = value;
    ops_.at(count_++) = op;
    return *this;
  }

  const PeerCopies& copies_;
  CUstream stream_;
  std::array<CUstreamBatchMemOpParams, std::size_t{4} * most_members> ops_;
  std::size_t count_ = 0;
};

PeerCopies::PeerCopies(const Driver& driver, Job& job, const GroupRequest& group, std::size_t staging)
    : driver_(driver),
      own_(group.index),
      members_(static_cast<int>(group.ranks.size())),
      link_(group.link),
      staging_(std::max(staging / alignment, std::size_t{1}) * alignment),
      window_(driver, job, group, window_bytes(group, staging_)) {
  static_assert(2 * most_members * word_distance <= words_bytes);
  load_part_kernels();  // a kernel that is loaded at its first launch may have to wait for what then waits for other ranks
  driver_.check(driver_.create_stream(&stream_, CU_STREAM_NON_BLOCKING), "making a stream");
  Signals signals(*this, stream_);
  for (int i = 1; i < members_; ++i) signals.tell(Word::free, peer(i));
  signals.enqueue();
}

PeerCopies::~PeerCopies() {
  driver_.destroy_stream(stream_);
}

CUdeviceptr PeerCopies::word(int owner, Word word, int about) const {
  return window_.of(owner) + static_cast<CUdeviceptr>(static_cast<int>(word) * most_members + about) * word_distance;
}

CUdeviceptr PeerCopies::inbox(int owner, int from) const {
  if (link_) return window_.of(owner) + words_bytes;
  const int place = from < owner ? from : from - 1;
  return window_.of(owner) + words_bytes + static_cast<std::size_t>(place) * staging_;
}

void PeerCopies::copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) const {
  if (to != from && bytes > 0) driver_.check(driver_.copy(to, from, bytes, stream), "copying between GPUs");
}

/// Brings stretches of tensors to their peers and what peers bring here together: `source` says where the bytes for a peer lie,
/// `finish` works on what all have brought.
template <typename Source, typename Finish>
void PeerCopies::exchange(std::span<const Parts> tensors, CUstream stream, Source source, Finish finish) {
  Signals signals(*this, stream);
  for (Round round(tensors, staging_); !round.empty(); round = round.next()) {
    for (int i = 1; i < members_; ++i) {
      signals.await(Word::free, peer(i));
      signals.enqueue();
      round.each([&](const Segment& s) { copy(inbox(peer(i), own_) + s.at, source(s, peer(i)), s.bytes, stream); });
      signals.tell(Word::full, peer(i));
    }
    for (int i = 1; i < members_; ++i) signals.await(Word::full, peer(i));
    signals.enqueue();
    round.each(finish);
    for (int i = 1; i < members_; ++i) signals.tell(Word::free, peer(i));
    signals.enqueue();
  }
}

/// Parts of a segment that every member has brought; the own part is at `mine`.
HeldParts PeerCopies::brought(const Segment& s, CUdeviceptr mine) const {
  HeldParts parts{.count = members_, .part = {}};
  for (int member = 0; member < members_; ++member)
    parts.part[member] = reinterpret_cast<const void*>(member == own_ ? mine : inbox(own_, member) + s.at);
  return parts;
}

void PeerCopies::gather(std::span<const Parts> tensors, CUstream stream) {
  const auto mine = [](const Segment& s, int /*peer*/) { return address(s.tensor.input) + s.offset; };
  exchange(tensors, stream, mine, [&](const Segment& s) {
    place_parts(brought(s, mine(s, own_)), static_cast<char*>(s.tensor.output) + s.offset, s.tensor.bytes(), s.bytes, stream);
  });
}

void PeerCopies::scatter(std::span<const Parts> tensors, CUstream stream) {
  const auto part_of = [](const Segment& s, int member) {
    return address(s.tensor.input) + static_cast<std::size_t>(member) * s.tensor.bytes() + s.offset;
  };
  exchange(tensors, stream, part_of, [&](const Segment& s) {
    sum_parts(brought(s, part_of(s, own_)), static_cast<char*>(s.tensor.output) + s.offset,
              static_cast<std::int64_t>(s.bytes / size_of(s.tensor.dtype)), s.tensor.dtype, stream);
  });
}

void PeerCopies::all_to_all(std::span<const Parts> tensors, CUstream stream) {
  const auto part_for = [](const Segment& s, int member) {
    return address(s.tensor.input) + static_cast<std::size_t>(member) * s.tensor.input_stride + s.offset;
  };
  exchange(tensors, stream, part_for, [&](const Segment& s) {
    place_parts(brought(s, part_for(s, own_)), static_cast<char*>(s.tensor.output) + s.offset, s.tensor.output_stride, s.bytes,
                stream);
  });
}

void PeerCopies::send(const void* data, std::size_t bytes, int to, CUstream stream) {
  Signals signals(*this, stream);
  for (std::size_t offset = 0; offset < bytes; offset += staging_) {
    signals.await(Word::free, to).enqueue();
    copy(inbox(to, own_), address(data) + offset, std::min(staging_, bytes - offset), stream);
    signals.tell(Word::full, to).enqueue();
  }
}

void PeerCopies::receive(void* data, std::size_t bytes, int from, CUstream stream) {
  Signals signals(*this, stream);
  for (std::size_t offset = 0; offset < bytes; offset += staging_) {
    signals.await(Word::full, from).enqueue();
    copy(address(data) + offset, inbox(own_, from), std::min(staging_, bytes - offset), stream);
    signals.tell(Word::free, from).enqueue();
  }
}

void PeerCopies::release() noexcept {
  driver_.fill(window_.of(own_), 1, words_bytes, stream_);
}

}  // namespace consist::nccl
