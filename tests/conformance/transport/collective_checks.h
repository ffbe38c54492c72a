// Checks of every communicator. Each function is called by all members at the same time, on their own threads or processes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "consist/bfloat16.h"
#include "consist/transport.h"
#include "tests/conformance/transport/memory.h"

namespace consist::testing {

/// Elements of one dtype, seen as floats on the host, with a copy in the memory that collectives work on. A guard after the end
/// shows writes beyond it.
class Elements {
 public:
  Elements(Memory& memory, DType dtype, std::size_t count)
      : memory_(memory),
        dtype_(dtype),
        count_(count),
        bytes_(count * size_of(dtype) + guard, std::byte{0xA5}),
        block_(memory, bytes_.size()) {}
  /// In the memory; its contents are those of the last push() and of collectives since.
  void* data() { return block_.data(); }
  void push() { memory_.upload(block_.data(), bytes_.data(), bytes_.size()); }
  void pull() { memory_.download(bytes_.data(), block_.data(), bytes_.size()); }
  std::size_t size() const { return count_; }
  float get(std::size_t i) const {
    if (dtype_ == DType::f32) return reinterpret_cast<const float*>(bytes_.data())[i];
    return from_bfloat16(reinterpret_cast<const std::uint16_t*>(bytes_.data())[i]);
  }
  void set(std::size_t i, float value) {
    if (dtype_ == DType::f32) {
      reinterpret_cast<float*>(bytes_.data())[i] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(bytes_.data())[i] = to_bfloat16(value);
    }
  }
  std::string bytes() const { return {reinterpret_cast<const char*>(bytes_.data()), count_ * size_of(dtype_)}; }
  void expect_guard_intact() const {
    for (std::size_t i = bytes_.size() - guard; i < bytes_.size(); ++i)
      ASSERT_EQ(bytes_[i], std::byte{0xA5}) << "written past the end";
  }

 private:
  static constexpr std::size_t guard = 64;
  Memory& memory_;
  DType dtype_;
  std::size_t count_;
  std::vector<std::byte> bytes_;
  Block block_;
};

/// A whole number that depends on member and position; sums over 8 members are exact in bf16.
inline float whole(int member, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(member) * 3 + i / 11) % 13);
}
/// A number of any size and sign.
inline float rough(int member, std::size_t i) {
  std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(member) * 40503U + 12345U;
  x ^= x >> 15U;
  x *= 2246822519U;
  x ^= x >> 13U;
  return (static_cast<float>(x >> 8U) / 8388608.0F - 1.0F) * std::exp2(static_cast<float>(x % 9U));
}

/// The sum of what all members fill in for `data`.
inline void all_reduce(Communicator& group, Memory& memory, Elements& data, DType dtype, float (*value)(int, std::size_t)) {
  for (std::size_t i = 0; i < data.size(); ++i) data.set(i, value(group.rank(), i));
  data.push();
  group.all_reduce(data.data(), static_cast<std::int64_t>(data.size()), dtype, memory.queue());
  memory.finish(group);
  data.pull();
}

inline void check_all_reduce(Communicator& group, Memory& memory, std::int64_t count_, DType dtype) {
  const auto count = static_cast<std::size_t>(count_);
  Elements data(memory, dtype, count);
  all_reduce(group, memory, data, dtype, whole);
  for (std::size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int member = 0; member < group.size(); ++member) expected += whole(member, i);
    ASSERT_EQ(data.get(i), expected) << "element " << i << " of " << count;
  }
  data.expect_guard_intact();
}

/// Rounded sums: close to the true ones, and bitwise equal on all members.
inline void check_all_reduce_is_bitwise_equal(Communicator& group, Memory& memory, std::int64_t count_, DType dtype) {
  const auto count = static_cast<std::size_t>(count_);
  Elements data(memory, dtype, count);
  all_reduce(group, memory, data, dtype, rough);
  const double unit = dtype == DType::f32 ? 0x1p-24 : 0x1p-8;
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    double magnitude = 0;
    for (int member = 0; member < group.size(); ++member) {
      const float term = dtype == DType::f32 ? rough(member, i) : from_bfloat16(to_bfloat16(rough(member, i)));
      sum += term;
      magnitude += std::abs(term);
    }
    ASSERT_NEAR(data.get(i), sum, magnitude * unit * group.size()) << "element " << i;
  }
  const std::string own = data.bytes();
  if (own.empty()) return;
  std::vector<char> all(own.size() * static_cast<std::size_t>(group.size()));
  Block gathered(memory, all.size());
  group.all_gather(data.data(), gathered.data(), count_, dtype, memory.queue());
  memory.finish(group);
  memory.download(all.data(), gathered.data(), all.size());
  for (int member = 0; member < group.size(); ++member) {
    ASSERT_EQ(std::memcmp(all.data() + static_cast<std::size_t>(member) * own.size(), own.data(), own.size()), 0)
        << "members " << group.rank() << " and " << member << " hold different sums";
  }
}

inline void check_reduce_scatter(Communicator& group, Memory& memory, std::int64_t count_, DType dtype, bool in_place) {
  const auto count = static_cast<std::size_t>(count_);
  const auto members = static_cast<std::size_t>(group.size());
  const auto own = static_cast<std::size_t>(group.rank()) * count;
  Elements input(memory, dtype, count * members);
  Elements apart(memory, dtype, count);
  for (std::size_t i = 0; i < input.size(); ++i) input.set(i, whole(group.rank(), i));
  void* const part = static_cast<char*>(input.data()) + own * size_of(dtype);
  input.push();
  apart.push();
  group.reduce_scatter(input.data(), in_place ? part : apart.data(), count_, dtype, memory.queue());
  memory.finish(group);
  input.pull();
  apart.pull();
  for (std::size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int member = 0; member < group.size(); ++member) expected += whole(member, own + i);
    ASSERT_EQ(in_place ? input.get(own + i) : apart.get(i), expected) << "element " << i << " of " << count;
  }
  for (std::size_t i = 0; i < input.size(); ++i) {
    if (in_place && i >= own && i < own + count) continue;
    ASSERT_EQ(input.get(i), whole(group.rank(), i)) << "the input changed at " << i;
  }
  input.expect_guard_intact();
  apart.expect_guard_intact();
}

inline void check_all_gather(Communicator& group, Memory& memory, std::int64_t count_, DType dtype, bool in_place) {
  const auto count = static_cast<std::size_t>(count_);
  const auto members = static_cast<std::size_t>(group.size());
  const auto own = static_cast<std::size_t>(group.rank()) * count;
  Elements output(memory, dtype, count * members);
  Elements apart(memory, dtype, count);
  for (std::size_t i = 0; i < count; ++i) {
    apart.set(i, whole(group.rank(), i));
    if (in_place) output.set(own + i, whole(group.rank(), i));
  }
  const void* const part = static_cast<char*>(output.data()) + own * size_of(dtype);
  apart.push();
  output.push();
  group.all_gather(in_place ? part : apart.data(), output.data(), count_, dtype, memory.queue());
  memory.finish(group);
  output.pull();
  for (int member = 0; member < group.size(); ++member) {
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(output.get(static_cast<std::size_t>(member) * count + i), whole(member, i))
          << "part " << member << " element " << i;
    }
  }
  output.expect_guard_intact();
}

/// Parts that lie `gap` elements further apart than they are long, on either side by itself.
inline void check_all_to_all(Communicator& group, Memory& memory, std::int64_t count_, DType dtype, std::int64_t input_gap,
                             std::int64_t output_gap) {
  const auto count = static_cast<std::size_t>(count_);
  const auto members = static_cast<std::size_t>(group.size());
  const auto input_stride = count + static_cast<std::size_t>(input_gap),
             output_stride = count + static_cast<std::size_t>(output_gap);
  const auto value = [](int from, int to, std::size_t i) { return whole(from * 5 + to, i); };
  constexpr float untouched = 7;
  Elements input(memory, dtype, input_stride * members);
  Elements output(memory, dtype, output_stride * members);
  for (std::size_t i = 0; i < input.size(); ++i)
    input.set(i,
              i % input_stride < count ? value(group.rank(), static_cast<int>(i / input_stride), i % input_stride) : untouched);
  for (std::size_t i = 0; i < output.size(); ++i) output.set(i, untouched);
  input.push();
  output.push();
  group.all_to_all(input.data(), static_cast<std::int64_t>(input_stride), output.data(), static_cast<std::int64_t>(output_stride),
                   count_, dtype, memory.queue());
  memory.finish(group);
  output.pull();
  for (std::size_t i = 0; i < output.size(); ++i) {
    const std::size_t at = i % output_stride;
    ASSERT_EQ(output.get(i), at < count ? value(static_cast<int>(i / output_stride), group.rank(), at) : untouched)
        << "part " << i / output_stride << " element " << at << " of " << count;
  }
  output.expect_guard_intact();
}

inline void check_broadcast(Communicator& group, Memory& memory, std::int64_t count_, DType dtype) {
  const auto count = static_cast<std::size_t>(count_);
  for (int root = 0; root < group.size(); ++root) {
    Elements data(memory, dtype, count);
    for (std::size_t i = 0; i < count; ++i) data.set(i, whole(group.rank(), i));
    data.push();
    group.broadcast(data.data(), count_, dtype, root, memory.queue());
    memory.finish(group);
    data.pull();
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(data.get(i), whole(root, i)) << "from " << root << " element " << i;
    data.expect_guard_intact();
  }
}

/// Every member to every other one, smaller index first.
inline void check_send_receive(Communicator& group, Memory& memory, std::int64_t count_, DType dtype) {
  const auto count = static_cast<std::size_t>(count_);
  for (int from = 0; from < group.size(); ++from) {
    for (int to = 0; to < group.size(); ++to) {
      if (from == to) continue;
      Elements data(memory, dtype, count);
      if (group.rank() == from) {
        for (std::size_t i = 0; i < count; ++i) data.set(i, whole(from * 5 + to, i));
        data.push();
        group.send(data.data(), count_, dtype, to, memory.queue());
        memory.finish(group);
      } else if (group.rank() == to) {
        data.push();
        group.receive(data.data(), count_, dtype, from, memory.queue());
        memory.finish(group);
        data.pull();
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(data.get(i), whole(from * 5 + to, i)) << from << " to " << to << " element " << i;
        data.expect_guard_intact();
      }
    }
  }
}

/// In one group every member sends to the next one and receives from the one before: none waits for another to receive first. Two
/// tensors, of different lengths.
inline void check_shift(Communicator& group, Memory& memory, std::int64_t count_, DType dtype) {
  if (group.size() == 1) return;
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  const auto count = static_cast<std::size_t>(count_), half = count / 2;
  Elements out(memory, dtype, count), in(memory, dtype, count), short_out(memory, dtype, half), short_in(memory, dtype, half);
  for (std::size_t i = 0; i < count; ++i) out.set(i, whole(group.rank(), i));
  for (std::size_t i = 0; i < half; ++i) short_out.set(i, whole(group.rank() + 7, i));
  for (Elements* elements : {&out, &in, &short_out, &short_in}) elements->push();
  group.group_begin(memory.queue());
  group.send(out.data(), count_, dtype, next, memory.queue());
  group.receive(in.data(), count_, dtype, previous, memory.queue());
  group.send(short_out.data(), static_cast<std::int64_t>(half), dtype, next, memory.queue());
  group.receive(short_in.data(), static_cast<std::int64_t>(half), dtype, previous, memory.queue());
  group.group_end(memory.queue());
  memory.finish(group);
  in.pull();
  short_in.pull();
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(in.get(i), whole(previous, i)) << "element " << i;
  for (std::size_t i = 0; i < half; ++i) ASSERT_EQ(short_in.get(i), whole(previous + 7, i)) << "element " << i;
  in.expect_guard_intact();
  short_in.expect_guard_intact();
}

/// All of the above for one dtype and a list of counts.
inline void check_communicator(Communicator& group, Memory& memory, const std::vector<std::int64_t>& counts, DType dtype) {
  for (const std::int64_t count : counts) {
    SCOPED_TRACE("count " + std::to_string(count) + " of " + std::string(name_of(dtype)) + " on member " +
                 std::to_string(group.rank()) + " of " + std::to_string(group.size()));
    check_all_reduce(group, memory, count, dtype);
    check_all_reduce_is_bitwise_equal(group, memory, count, dtype);
    check_reduce_scatter(group, memory, count, dtype, false);
    check_reduce_scatter(group, memory, count, dtype, true);
    check_all_gather(group, memory, count, dtype, false);
    check_all_gather(group, memory, count, dtype, true);
    check_all_to_all(group, memory, count, dtype, 0, 0);
    check_all_to_all(group, memory, count, dtype, 3, 130);
    check_broadcast(group, memory, count, dtype);
    check_send_receive(group, memory, count, dtype);
    check_shift(group, memory, count, dtype);
  }
}

}  // namespace consist::testing
