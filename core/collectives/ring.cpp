#include "core/collectives/ring.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "consist/error.h"
#include "core/collectives/sum.h"

namespace consist {
namespace {

using Ticket = PointToPoint::Ticket;

/// Part `index` of `parts` nearly equal parts of [0, count).
struct Range {
  std::size_t begin;
  std::size_t count;
};
Range part_of(std::size_t count, std::size_t parts, std::size_t index) {
  const std::size_t share = count / parts;
  const std::size_t longer = count % parts;  // the first parts that hold one more
  const std::size_t begin = share * index + std::min(index, longer);
  return {begin, share + (index < longer ? 1 : 0)};
}
Range part_of(Range whole, std::size_t parts, std::size_t index) {
  const Range part = part_of(whole.count, parts, index);
  return {whole.begin + part.begin, part.count};
}

std::size_t divide_up(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

/// Numbers the chunks of a collective's stream. The elements are cut into pieces; each piece makes `steps` turns around the
/// ring; in each turn every member sends one block and receives another, in `chunks` chunks. All members count alike, so the
/// chunk that one sends at a position is the one that the next receives at that position. What is sent in a turn was received in
/// the turn before, `chunks` positions earlier.
struct Numbering {
  std::size_t pieces = 1;
  std::size_t steps = 1;
  std::size_t chunks = 1;

  std::size_t positions() const { return pieces * steps * chunks; }
  std::size_t piece(std::size_t position) const { return position / (steps * chunks); }
  std::size_t step(std::size_t position) const { return position / chunks % steps; }
  std::size_t chunk(std::size_t position) const { return position % chunks; }
};

/// `block`: elements of one block of the whole data, before it is cut into pieces.
Numbering number(std::size_t block, std::size_t steps, std::size_t chunk, std::size_t window) {
  Numbering numbering;
  numbering.pieces = std::max<std::size_t>(1, divide_up(block, chunk * window));
  numbering.steps = steps;
  numbering.chunks = std::clamp<std::size_t>(divide_up(divide_up(block, numbering.pieces), chunk), 1, window);
  return numbering;
}

/// Before anything is under way: an exception amid a collective would leave the members at odds.
void check_summable(DType dtype) {
  if (dtype == DType::f32 || dtype == DType::bf16) return;
  throw UsageError("a sum over ranks is asked for in " + std::string(name_of(dtype)) + "; only f32 and bf16 can be summed");
}

/// The transfers at one position of a schedule: bytes to send to the next member, and to receive from the previous one.
struct Move {
  const std::byte* send;
  std::size_t send_bytes;
  std::byte* receive;
  std::size_t receive_bytes;
};

}  // namespace

PointToPoint::~PointToPoint() = default;

RingCommunicator::RingCommunicator(std::unique_ptr<PointToPoint> links, std::size_t chunk_bytes)
    : links_(std::move(links)),
      rank_(links_->rank()),
      size_(links_->size()),
      next_((rank_ + 1) % size_),
      previous_((rank_ + size_ - 1) % size_),
      chunk_bytes_(std::max<std::size_t>(std::min(chunk_bytes, links_->best_largest_message()) / 64 * 64, 64)),
      scratch_(size_ > 1 ? slots * chunk_bytes_ : 0),
      sent_to_(static_cast<std::size_t>(size_), 0),
      received_from_(static_cast<std::size_t>(size_), 0) {
  static_assert(slots + 2 * window + 1 <= PointToPoint::max_posted);
}

RingCommunicator::~RingCommunicator() = default;

std::size_t RingCommunicator::checked(std::int64_t count) {
  if (count < 0) throw ProgramError("a collective is started with a count of " + std::to_string(count));
  return static_cast<std::size_t>(count);
}

RingCommunicator::CallHead RingCommunicator::head_of(Call call, std::uint64_t number, std::int64_t count, DType dtype,
                                                     int root) const {
  return {.number = number,
          .count = count,
          .chunk_bytes = chunk_bytes_,
          .root = root,
          .call = call,
          .dtype = static_cast<std::uint8_t>(dtype)};
}

std::string RingCommunicator::text_of(const CallHead& head) {
  static constexpr const char* names[] = {"?",         "all_reduce", "reduce_scatter", "all_gather",
                                          "broadcast", "message",    "all_to_all"};
  const auto call = static_cast<std::size_t>(head.call);
  return std::string(names[call < std::size(names) ? call : 0]) + " of " + std::to_string(head.count) + " " +
         std::string(name_of(static_cast<DType>(head.dtype))) + " in chunks of " + std::to_string(head.chunk_bytes) + " bytes" +
         (head.call == Call::broadcast ? " from member " + std::to_string(head.root) : "") + ", number " +
         std::to_string(head.number);
}

void RingCommunicator::send_head(int to) {
  links_->post_send(to, &own_, sizeof own_);
  head_bytes_ += static_cast<std::int64_t>(sizeof own_);
}

Ticket RingCommunicator::expect_head(int from) {
  return links_->post_receive(from, &heard_, sizeof heard_);
}

void RingCommunicator::check_head(int from, Ticket ticket, const CallHead& mine) {
  links_->wait_received(from, ticket);
  if (heard_ == mine) return;
  links_->abandon();
  throw ProgramError("the members of group '" + links_->group() + "' are in different calls: " + links_->name(rank_) + " in " +
                     text_of(mine) + "; " + links_->name(from) + " in " + text_of(heard_) +
                     ". Their programs or the transport's options differ");
}

/// Runs through all positions of a ring schedule, a window ahead of the one whose receive is awaited.
template <typename Schedule>
void RingCommunicator::run(const Schedule& schedule) {
  const Numbering numbering = schedule.numbering;
  const std::size_t positions = numbering.positions();
  // A send `chunks` positions ahead needs what is received now, so the posts may run at most that far ahead.
  const std::size_t ahead = std::min(window, numbering.chunks);
  Ticket first_send = 0;
  Ticket first_receive = 0;
  std::size_t posted = 0;
  const Ticket head = expect_head(previous_);
  send_head(next_);
  for (std::size_t position = 0; position < positions; ++position) {
    for (; posted < std::min(positions, position + ahead); ++posted) {
      // The scratch slot of this receive was last used `slots` positions ago, and sent on `chunks` positions after that.
      if (posted >= 2 * window) links_->wait_sent(next_, first_send + posted - 2 * window);
      const Move move = schedule.move(posted);
      const Ticket receive = links_->post_receive(previous_, move.receive, move.receive_bytes);
      const Ticket send = links_->post_send(next_, move.send, move.send_bytes);
      if (posted == 0) {
        first_send = send;
        first_receive = receive;
      }
    }
    if (position == 0) check_head(previous_, head);
    links_->wait_received(previous_, first_receive + position);
    schedule.finish(position);
  }
  if (positions > 0) links_->wait_sent(next_, first_send + positions - 1);
}

void RingCommunicator::all_reduce(void* data, std::int64_t count_, DType dtype, NativeQueue /*queue*/) {
  check_summable(dtype);
  const std::size_t count = checked(count_);
  own_ = head_of(Call::all_reduce, collectives_++, count_, dtype);
  if (size_ == 1 || count == 0) return;
  const std::size_t width = size_of(dtype);
  const auto members = static_cast<std::size_t>(size_);
  struct Schedule {
    RingCommunicator& ring;
    std::byte* data;
    std::size_t count;
    std::size_t width;
    std::size_t members;
    DType dtype;
    Numbering numbering;

    Range range(std::size_t position, std::size_t block) const {
      const Range piece = part_of(count, numbering.pieces, numbering.piece(position));
      return part_of(part_of(piece, members, block), numbering.chunks, numbering.chunk(position));
    }
    /// The block that member rank - back holds first.
    std::size_t block(std::size_t back) const { return (static_cast<std::size_t>(ring.rank_) + 2 * members - back) % members; }
    /// In the first members - 1 steps partial sums travel; after them, in as many steps, the finished blocks.
    bool summing(std::size_t position) const { return numbering.step(position) + 1 < members; }

    Move move(std::size_t position) const {
      const std::size_t step = numbering.step(position);
      const Range out = range(position, block(step));
      const Range in = range(position, block(step + 1));
      // A block that was sent is overwritten only by its final sum, which cannot exist before the next member had what was sent.
      return {data + out.begin * width, out.count * width, summing(position) ? ring.slot(position) : data + in.begin * width,
              in.count * width};
    }
    void finish(std::size_t position) const {
      if (!summing(position)) return;
      const Range in = range(position, block(numbering.step(position) + 1));
      std::byte* const target = data + in.begin * width;
      sum(target, target, ring.slot(position), in.count, dtype);
    }
  };
  run(Schedule{*this, static_cast<std::byte*>(data), count, width, members, dtype,
               number(divide_up(count, members), 2 * (members - 1), chunk_elements(dtype), window)});
}

bool RingCommunicator::copied_alone(const void* input, void* output, std::size_t bytes) const {
  if (size_ == 1 && bytes > 0 && input != output) std::memmove(output, input, bytes);
  return size_ == 1 || bytes == 0;
}

void RingCommunicator::reduce_scatter(const void* input, void* output, std::int64_t count_, DType dtype, NativeQueue /*queue*/) {
  check_summable(dtype);
  const std::size_t count = checked(count_);
  const std::size_t width = size_of(dtype);
  own_ = head_of(Call::reduce_scatter, collectives_++, count_, dtype);
  if (copied_alone(input, output, count * width)) return;
  const auto members = static_cast<std::size_t>(size_);
  struct Schedule {
    RingCommunicator& ring;
    const std::byte* input;
    std::byte* output;
    std::size_t count;
    std::size_t width;
    std::size_t members;
    DType dtype;
    Numbering numbering;

    Range range(std::size_t position) const {
      return part_of(part_of(count, numbering.pieces, numbering.piece(position)), numbering.chunks, numbering.chunk(position));
    }
    const std::byte* own(std::size_t position, std::size_t back) const {
      const std::size_t block = (static_cast<std::size_t>(ring.rank_) + 2 * members - back) % members;
      return input + (block * count + range(position).begin) * width;
    }
    Move move(std::size_t position) const {
      const std::size_t bytes = range(position).count * width;
      // The own block is received last and never sent, so `output` may be that part of `input`.
      const std::byte* const from = numbering.step(position) == 0 ? own(position, 1) : ring.slot(position - numbering.chunks);
      return {from, bytes, ring.slot(position), bytes};
    }
    void finish(std::size_t position) const {
      const std::size_t step = numbering.step(position);
      std::byte* const received = ring.slot(position);
      const Range part = range(position);
      std::byte* const target = step + 2 == members ? output + part.begin * width : received;
      sum(target, received, own(position, step + 2), part.count, dtype);
    }
  };
  run(Schedule{*this, static_cast<const std::byte*>(input), static_cast<std::byte*>(output), count, width, members, dtype,
               number(count, members - 1, chunk_elements(dtype), window)});
}

void RingCommunicator::all_gather(const void* input, void* output, std::int64_t count_, DType dtype, NativeQueue /*queue*/) {
  const std::size_t count = checked(count_);
  const std::size_t width = size_of(dtype);
  own_ = head_of(Call::all_gather, collectives_++, count_, dtype);
  if (copied_alone(input, output, count * width)) return;
  const auto members = static_cast<std::size_t>(size_);
  struct Schedule {
    RingCommunicator& ring;
    const std::byte* input;
    std::byte* output;
    std::size_t count;
    std::size_t width;
    std::size_t members;
    Numbering numbering;

    std::byte* block(std::size_t back) const {
      return output + (static_cast<std::size_t>(ring.rank_) + members - back) % members * count * width;
    }
    Move move(std::size_t position) const {
      const std::size_t step = numbering.step(position);
      const Range part =
          part_of(part_of(count, numbering.pieces, numbering.piece(position)), numbering.chunks, numbering.chunk(position));
      const std::size_t offset = part.begin * width;
      const std::size_t bytes = part.count * width;
      if (step == 0 && input != block(0)) std::memcpy(block(0) + offset, input + offset, bytes);
      return {block(step) + offset, bytes, block(step + 1) + offset, bytes};
    }
    void finish(std::size_t /*position*/) const {}
  };
  run(Schedule{*this, static_cast<const std::byte*>(input), static_cast<std::byte*>(output), count, width, members,
               number(count, members - 1, chunk_elements(dtype), window)});
}

void RingCommunicator::all_to_all(const void* input, std::int64_t input_stride, void* output, std::int64_t output_stride,
                                  std::int64_t count, DType dtype, NativeQueue /*queue*/) {
  const std::size_t bytes = checked(count) * size_of(dtype);
  if (input_stride < count || output_stride < count)
    throw ProgramError("an all_to_all is started with parts of " + std::to_string(count) + " elements that overlap");
  own_ = head_of(Call::all_to_all, collectives_++, count, dtype);
  if (bytes == 0) return;
  const auto* const from = static_cast<const std::byte*>(input);
  auto* const to = static_cast<std::byte*>(output);
  const auto part = [&](int member, std::int64_t stride) { return static_cast<std::size_t>(member * stride) * size_of(dtype); };
  std::memcpy(to + part(rank_, output_stride), from + part(rank_, input_stride), bytes);
  // In step s every member sends to the one that is s further on and receives from the one that is s behind. Whoever is behind
  // finds what it waits for already sent, since sending does not wait for the receiver's step.
  for (int step = 1; step < size_; ++step) {
    const int target = (rank_ + step) % size_, source = (rank_ + size_ - step) % size_;
    const Ticket head = expect_head(source);
    send_head(target);
    Ticket last_send = 0, last_receive = 0;
    std::size_t posted = 0;
    for (std::size_t at = 0; at < bytes; at += chunk_bytes_) {
      if (++posted > window) {
        if (posted == window + 1) check_head(source, head);
        links_->wait_received(source, last_receive + 1 - window);
        links_->wait_sent(target, last_send + 1 - window);
      }
      const std::size_t size = std::min(chunk_bytes_, bytes - at);
      last_receive = links_->post_receive(source, to + part(source, output_stride) + at, size);
      last_send = links_->post_send(target, from + part(target, input_stride) + at, size);
    }
    if (posted <= window) check_head(source, head);
    links_->wait_received(source, last_receive);
    links_->wait_sent(target, last_send);
  }
}

void RingCommunicator::broadcast(void* data, std::int64_t count_, DType dtype, int root, NativeQueue /*queue*/) {
  const std::size_t bytes = checked(count_) * size_of(dtype);
  if (root < 0 || root >= size_) {
    throw ProgramError("a broadcast from member " + std::to_string(root) + " of a group of " + std::to_string(size_));
  }
  own_ = head_of(Call::broadcast, collectives_++, count_, dtype, root);
  if (size_ == 1 || bytes == 0) return;
  // A chain from the root on: every member but the root receives, every member but the last sends on.
  const bool receives = rank_ != root;
  const bool sends = next_ != root;
  auto* const base = static_cast<std::byte*>(data);
  const std::size_t chunks = divide_up(bytes, chunk_bytes_);
  const auto chunk_size = [&](std::size_t i) { return std::min(chunk_bytes_, bytes - i * chunk_bytes_); };
  Ticket first_send = 0;
  Ticket first_receive = 0;
  std::size_t posted = 0;
  const Ticket head = receives ? expect_head(previous_) : 0;
  if (sends) send_head(next_);
  for (std::size_t i = 0; i < chunks; ++i) {
    if (receives) {
      for (; posted < std::min(chunks, i + window); ++posted) {
        const Ticket ticket = links_->post_receive(previous_, base + posted * chunk_bytes_, chunk_size(posted));
        if (posted == 0) first_receive = ticket;
      }
      if (i == 0) check_head(previous_, head);
      links_->wait_received(previous_, first_receive + i);
    }
    if (sends) {
      if (i >= 2 * window) links_->wait_sent(next_, first_send + i - 2 * window);
      const Ticket ticket = links_->post_send(next_, base + i * chunk_bytes_, chunk_size(i));
      if (i == 0) first_send = ticket;
    }
  }
  if (sends) links_->wait_sent(next_, first_send + chunks - 1);
}

std::unique_ptr<Communicator> make_ring_communicator(std::unique_ptr<PointToPoint> links, std::size_t chunk_bytes) {
  return std::make_unique<RingCommunicator>(std::move(links), chunk_bytes);
}

}  // namespace consist
