// Attention of ranks that hold a part of the queries is rated on GPUs as the calls that it is made of.
#include "core/cost/attention_calls.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "consist/attention_blocks.h"
#include "consist/cost.h"
#include "consist/op.h"
#include "consist/token_order.h"
#include "tests/cost/plain_machine.h"

namespace consist {
namespace {

using test::plain_machine;
using test::shared;

constexpr std::int64_t batch = 2, sequence = 96, heads = 4, kv_heads = 2, dim = 8;

/// One attention, or its gradient, over `ranks` ranks in zigzag order; keys of all tokens unless `op` is one of a part.
struct Attention {
  Program program;

  Attention(std::string_view op, int ranks, Attributes attributes = {}) {
    if (ranks > 1) program.mesh = Mesh({{"context", ranks}});
    attributes.set("head_dim", dim);
    attributes.set("zigzag", std::int64_t{ranks});
    const bool part = op.find("part") != op.npos, backward = op.find("grad") != op.npos;
    const TensorId q = add(heads * dim, ranks, true), k = add(kv_heads * dim, ranks, part), v = add(kv_heads * dim, ranks, part),
                   o = add(heads * dim, ranks, true), lse = add_lse(ranks);
    Instruction i{.op = &registry().get(op), .attributes = attributes};
    i.inputs = backward ? std::vector<TensorId>{o, q, k, v, o, lse} : std::vector<TensorId>{q, k, v};
    i.outputs = backward ? std::vector<TensorId>{q, k, v} : std::vector<TensorId>{o, lse};
    program.instructions.push_back(i);
  }
  const Instruction& instruction() const { return program.instructions[0]; }
  double seconds(const Machine& machine) const {
    return CostModel(shared(machine), program.mesh).seconds(program, instruction());
  }
  std::int64_t scratch(const Machine& machine) const {
    return CostModel(shared(machine), program.mesh).scratch_bytes(program, instruction());
  }

 private:
  TensorId add(std::int64_t channels, int ranks, bool divided) {
    return add(Tensor{.shape = {batch, sequence, channels}}, ranks, divided, 1);
  }
  TensorId add_lse(int ranks) { return add(Tensor{.shape = {batch, heads, sequence}}, ranks, true, 2); }
  TensorId add(Tensor tensor, int ranks, bool divided, int dimension) {
    const auto id = static_cast<TensorId>(program.tensors.size());
    tensor.storage = id;
    tensor.dtype = DType::f32;
    if (ranks > 1 && divided) tensor.placements[0] = Placement::shard(dimension);
    program.tensors.push_back(tensor);
    return id;
  }
};

Machine gpu() {
  Machine machine = plain_machine();
  machine.device_kind = "cuda";
  return machine;
}

TEST(AttentionBlocks, HaveEveryVisiblePairOnce) {
  for (const std::int64_t ranks : {1, 2, 3, 5}) {
    const std::int64_t chunks = 2 * ranks;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      std::int64_t pairs_of_rank = 0;  // in halves of a chunk's
      std::vector<std::vector<int>> seen(2, std::vector<int>(static_cast<std::size_t>(chunks)));
      for (const AttentionBlock& block : attention_blocks(ranks, rank)) {
        for (std::int64_t q = block.first_query; q < block.first_query + block.queries; ++q) {
          for (std::int64_t n = 0; n < block.keys; ++n) {
            const std::int64_t index = block.first_key + n * block.key_step, own = position_of(2 * rank + q, chunks, ranks),
                               key = position_of(index, chunks, ranks);
            if (block.causal && key > own) continue;
            seen.at(static_cast<std::size_t>(q)).at(static_cast<std::size_t>(key)) += 1;
            pairs_of_rank += key == own ? 1 : 2;
          }
        }
      }
      for (std::int64_t q = 0; q < 2; ++q) {
        const std::int64_t own = position_of(2 * rank + q, chunks, ranks);
        for (std::int64_t key = 0; key < chunks; ++key)
          EXPECT_EQ(seen[static_cast<std::size_t>(q)][static_cast<std::size_t>(key)], key <= own ? 1 : 0)
              << "rank " << rank << " of " << ranks << ", chunk of queries " << own << ", of keys " << key;
      }
      EXPECT_EQ(pairs_of_rank, 4 * ranks) << "rank " << rank << " of " << ranks;
    }
  }
}

TEST(AttentionCalls, OfOneRankAreOneCallWithNothingAround) {
  for (const std::string_view op : {"attention", "attention_grad"}) {
    const Attention attention(op, 1);
    const auto ranks = attention_calls(attention.program, attention.instruction());
    ASSERT_EQ(ranks.size(), 1U);
    ASSERT_EQ(ranks[0].calls.size(), 1U);
    const Cost cost = attention.instruction().op->cost(attention.program, attention.instruction());
    EXPECT_EQ(ranks[0].calls[0].flops, cost.flops);
    EXPECT_EQ(ranks[0].calls[0].bytes, cost.bytes);
    EXPECT_EQ(ranks[0].scratch, 0);
    EXPECT_EQ(ranks[0].moved, 0);
    EXPECT_EQ(attention.seconds(gpu()), attention.seconds(plain_machine()));
  }
}

TEST(AttentionCalls, HaveTheOperationsOfTheInstructionOnEachRank) {
  for (const std::string_view op : {"attention", "attention_grad"}) {
    for (const int ranks : {2, 3, 4}) {
      const Attention attention(op, ranks);
      const Cost cost = attention.instruction().op->cost(attention.program, attention.instruction());
      for (const AttentionCalls& of_rank : attention_calls(attention.program, attention.instruction())) {
        double flops = 0;
        for (const AttentionCall& call : of_rank.calls) flops += call.flops;
        EXPECT_NEAR(flops, cost.flops, 1e-9 * cost.flops) << op << " over " << ranks;
      }
    }
  }
}

// The rank waits for the other, so the slower one's calls count, and what is merged around them.
TEST(AttentionCalls, TheSlowestRankIsRatedByWhatItsCallsTook) {
  const Attention attention("attention", 2);
  const auto ranks = attention_calls(attention.program, attention.instruction());
  ASSERT_EQ(ranks.size(), 2U);
  ASSERT_EQ(ranks[0].calls.size(), 2U);
  ASSERT_EQ(ranks[1].calls.size(), 2U);
  const AttentionCall &causal = ranks[0].calls[0], &later = ranks[0].calls[1], &earlier = ranks[1].calls[1];
  EXPECT_EQ(later.flops, earlier.flops);
  EXPECT_NE(later.bytes, earlier.bytes) << "a chunk of queries and two of keys, and the other way round";
  // The first rank's own results are read and written, those of its second chunk to later keys are read.
  const double q = batch * sequence / 2 * heads * dim * 4;
  EXPECT_EQ(ranks[0].moved, 2.5 * q);
  const auto expect_slowest = [&](std::size_t rank, double of_later, double of_earlier) {
    Machine machine = gpu();
    machine.device.times = {
        {.op = "attention",
         .dtype = DType::f32,
         .depth = dim,
         .points = {
             {causal.flops, causal.bytes, 5}, {later.flops, later.bytes, of_later}, {earlier.flops, earlier.bytes, of_earlier}}}};
    const double around = ranks[rank].moved / machine.device.memory_rate.value + machine.device.kernel_seconds.value;
    EXPECT_NEAR(attention.seconds(machine), 5 + std::max(of_later, of_earlier) + around, 1e-9);
  };
  expect_slowest(0, 7, 3);
  expect_slowest(1, 3, 7);
}

TEST(AttentionCalls, ScratchIsResultsThatAreMergedAndKeysThatAreBroughtTogether) {
  const std::int64_t q = batch * sequence / 2 * heads * dim * 4, k = batch * sequence / 2 * kv_heads * dim * 4,
                     lse = batch * sequence / 2 * heads * 4;
  // The last of two ranks: results of both its chunks, keys and values of one chunk, in backward their gradients as well.
  EXPECT_EQ(Attention("attention", 2).scratch(gpu()), q + lse + 2 * (k / 2));
  EXPECT_EQ(Attention("attention_grad", 2).scratch(gpu()), q + lse + 4 * (k / 2));
  EXPECT_EQ(Attention("attention", 2).scratch(plain_machine()), 0) << "none on processors";
  // A part of the keys: what it gives before that is merged.
  const Attributes own{{"shift", std::int64_t{0}}};
  EXPECT_EQ(Attention("attention_part", 2, own).scratch(gpu()), q + lse);
  EXPECT_EQ(Attention("attention_part_grad", 2, own).scratch(gpu()), q + lse + 2 * k);
}

TEST(AttentionCalls, WindowsAreRatedAsOneCall) {
  const Attention attention("attention", 2, {{"window", std::int64_t{8}}});
  const auto ranks = attention_calls(attention.program, attention.instruction());
  ASSERT_EQ(ranks.size(), 1U);
  ASSERT_EQ(ranks[0].calls.size(), 1U);
  EXPECT_EQ(ranks[0].calls[0].flops, attention.instruction().op->cost(attention.program, attention.instruction()).flops);
}

}  // namespace
}  // namespace consist
