// Collectives and messages between the GPUs of a host that leave all multiprocessors to others: copy engines move the bytes, and
// words in the members' memory that streams wait for and write say when.
#pragma once

#include <cstddef>
#include <span>

#include "consist/transport.h"
#include "plugins/transports/nccl/driver.h"
#include "plugins/transports/nccl/part_kernels.h"
#include "plugins/transports/nccl/peer_window.h"

namespace consist::nccl {

/// One tensor of an all_gather, reduce_scatter or all_to_all: equal parts, one per member.
struct Parts {
  const void* input = nullptr;  ///< the own part to gather; all parts to scatter or to exchange
  void* output = nullptr;       ///< all parts that are gathered or exchanged; the own part of the sum
  std::int64_t count = 0;       ///< elements of a part
  DType dtype = DType::f32;
  std::size_t input_stride = 0, output_stride = 0;  ///< bytes from one part to the next, of an all_to_all
  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }  ///< of a part
};

/// Every call enqueues on `stream` and returns; calls may be recorded in graphs, whose replays repeat them. Members make the same
/// calls in the same order. A call that waits for a member which never comes waits for ever, until release().
///
/// Bytes pass through memory of fixed size, so that no member needs to know where another's tensors lie: each puts what it has
/// for another into the other's place for it. Only what happens then with all of it takes multiprocessors, so that nobody waits
/// for those of a slower member. Larger tensors go in rounds.
class PeerCopies {
 public:
  static constexpr int most_members = 16;

  /// Called by all members at once, with the CUDA context of their device current. `staging` bytes for each peer and direction
  /// are taken from the device. Throws SystemError where GPUs or processes cannot reach each other's memory.
  PeerCopies(const Driver& driver, Job& job, const GroupRequest& group, std::size_t staging);
  /// When no member uses it any more: after JoinedJob::leave(), or a failure.
  ~PeerCopies();

  void gather(std::span<const Parts> tensors, CUstream stream);
  /// Parts are summed in f32 in the order of members and rounded once.
  void scatter(std::span<const Parts> tensors, CUstream stream);
  void all_to_all(std::span<const Parts> tensors, CUstream stream);
  void send(const void* data, std::size_t bytes, int to, CUstream stream);
  void receive(void* data, std::size_t bytes, int from, CUstream stream);

  /// Lets everything that waits here go on, whatever is missing: after a failure, again and again, until nothing waits. By any
  /// thread with the context current.
  void release() noexcept;

 private:
  /// Messages of a peer. full: it has put data into my inbox; free: it has read the data that I put into its inbox.
  enum class Word { full, free };
  struct Segment;
  class Round;
  class Signals;

  CUdeviceptr word(int owner, Word word, int about) const;
  CUdeviceptr inbox(int owner, int from) const;
  template <typename Source, typename Finish>
  void exchange(std::span<const Parts> tensors, CUstream stream, Source source, Finish finish);
  HeldParts brought(const Segment& s, CUdeviceptr mine) const;
  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) const;
  int peer(int i) const { return (own_ + i) % members_; }  ///< i = 1 to members_ - 1: each member begins with another one

  const Driver& driver_;
  const int own_, members_;
  const bool link_;
  const std::size_t staging_;
  PeerWindow window_;
  CUstream stream_ = nullptr;  ///< for what is not asked for with a stream
};

}  // namespace consist::nccl
