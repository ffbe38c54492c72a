// Ring collectives on host memory, over any PointToPoint.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "consist/host_transport.h"
#include "consist/transport.h"

namespace consist {

/// Collectives that move the least possible bytes per member: 2 (n-1)/n of the data for all_reduce, (n-1)/n for reduce_scatter,
/// all_gather and all_to_all (whose parts go straight to their members), all of it once for broadcast. The data is cut into
/// pieces of n blocks, each block into a few chunks; a chunk is sent on as soon as it has been summed, while the next ones are on
/// their way, so that sending, receiving and summing overlap. Allocates only in the constructor.
///
/// Ahead of its first chunk each call sends a head (CallHead) to whom it sends at all: which call it is, and of what. Members
/// that are in different calls, or cut them otherwise, throw ProgramError naming both; nothing that arrived is used then.
class RingCommunicator final : public Communicator {
 public:
  explicit RingCommunicator(std::unique_ptr<PointToPoint> links, std::size_t chunk_bytes = default_chunk_bytes);
  ~RingCommunicator() override;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  void all_reduce(void* data, std::int64_t count, DType dtype, NativeQueue queue) override;
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override;
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override;
  void all_to_all(const void* input, std::int64_t input_stride, void* output, std::int64_t output_stride, std::int64_t count,
                  DType dtype, NativeQueue queue) override;
  void broadcast(void* data, std::int64_t count, DType dtype, int root, NativeQueue queue) override;
  void send(const void* data, std::int64_t count, DType dtype, int to, NativeQueue queue) override;
  void receive(void* data, std::int64_t count, DType dtype, int from, NativeQueue queue) override;
  void group_begin(NativeQueue queue) override;
  void group_end(NativeQueue queue) override;
  std::string verified_path() const override { return links_->verified_path(); }
  /// Without the heads.
  std::int64_t bytes_sent() const noexcept override { return links_->bytes_sent() - head_bytes_; }

 private:
  enum class Call : std::uint8_t { all_reduce = 1, reduce_scatter, all_gather, broadcast, message, all_to_all };
  /// Header that announces the next call. It is the same for all members of a call (both ends of a message).
  struct CallHead {
    std::uint64_t number = 0;  ///< of the group's collectives, or of the messages from one member to another
    std::int64_t count = 0;    ///< elements, as the call was given them
    std::uint64_t chunk_bytes = 0;
    std::int32_t root = 0;
    Call call = Call::message;
    std::uint8_t dtype = 0;
    std::uint16_t unused = 0;
    bool operator==(const CallHead&) const = default;
  };
  static_assert(sizeof(CallHead) == 32);

  /// As a size; throws ProgramError for a negative count.
  static std::size_t checked(std::int64_t count);
  CallHead head_of(Call call, std::uint64_t number, std::int64_t count, DType dtype, int root = 0) const;
  static std::string text_of(const CallHead& head);
  /// A message that waits for the end of its group.
  struct Message {
    const std::byte* from = nullptr;  ///< of a send
    std::byte* to = nullptr;          ///< of a receive
    std::int64_t count = 0;
    DType dtype = DType::f32;
    int member = 0;
  };
  void exchange(const Message& sent, const Message& received);

  void send_head(int to);
  PointToPoint::Ticket expect_head(int from);
  /// Waits for the head from `from` and throws if it is not `mine`.
  void check_head(int from, PointToPoint::Ticket ticket, const CallHead& mine);
  void check_head(int from, PointToPoint::Ticket ticket) { check_head(from, ticket, own_); }

  template <typename Schedule>
  void run(const Schedule& schedule);
  /// True if there is nothing to exchange: no bytes, or one member only, whose part is copied.
  bool copied_alone(const void* input, void* output, std::size_t bytes) const;
  template <typename Post, typename Wait>
  void stream(std::size_t bytes, const Post& post, const Wait& wait);
  std::byte* slot(std::size_t position) noexcept { return scratch_.data() + position % slots * chunk_bytes_; }
  /// Elements of one chunk, and so of the scratch slots.
  std::size_t chunk_elements(DType dtype) const noexcept { return chunk_bytes_ / size_of(dtype); }

  /// Chunks on their way at once, per direction.
  static constexpr std::size_t window = 4;
  /// Scratch chunks: one is taken from its receive until what was made of it has been sent on, `window` positions later.
  static constexpr std::size_t slots = 3 * window;

  std::unique_ptr<PointToPoint> links_;
  const int rank_;
  const int size_;
  const int next_;
  const int previous_;
  const std::size_t chunk_bytes_;
  std::vector<std::byte> scratch_;
  std::uint64_t collectives_ = 0;                       // calls so far
  std::vector<std::uint64_t> sent_to_, received_from_;  // messages so far, by member
  bool in_group_ = false;
  std::vector<Message> sends_, receives_;  // of the group
  CallHead own_, heard_;                                // of the present call
  std::int64_t head_bytes_ = 0;
};

}  // namespace consist
