#include "core/passes/offload_activations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "consist/error.h"
#include "consist/op.h"
#include "core/lower/memory_plan.h"
#include "core/plan/machine_choice.h"
#include "core/program/printer.h"
#include "tests/golden_text.h"
#include "tests/passes/tiny_case.h"
#include "tests/program/plan_checks.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

constexpr int layers = 12;
constexpr std::int64_t batch = 64;  // so that activations are most of the memory
constexpr test::TinyShape shape{.layers = layers};

struct Asked {
  std::string offload = "all", recompute = "none", machine = "h200";
  int accumulation = 1;
  bool pack = false;
};

Program step(const Asked& asked) {
  test::Case c(1, asked.accumulation, true, shape);
  c.request.micro_batch = batch;
  c.request.offload = parse_offload(asked.offload);
  c.request.recompute = parse_recompute(asked.recompute, "");
  c.request.machine = std::make_shared<Machine>(parse_machine(asked.machine));
  c.request.pack_linears = asked.pack;
  return c.step();
}

bool is_inserted(const Instruction& i) {
  return std::string_view(i.tag.inserted_by) == offload_name;
}

/// Bytes of the inserted copies on a queue, by layer.
std::map<int, std::int64_t> copied(const Program& p, Queue queue) {
  std::map<int, std::int64_t> bytes;
  for (const Instruction& i : p.instructions) {
    if (is_inserted(i) && i.queue == queue) bytes[i.tag.layer] += p.bytes(i.outputs[0]);
  }
  return bytes;
}

std::int64_t sum_of(const std::map<int, std::int64_t>& by_layer) {
  std::int64_t sum = 0;
  for (const auto& [layer, bytes] : by_layer) sum += bytes;
  return sum;
}

std::int64_t peak(const Program& p, int space = 0) {
  return plan_memory(p, {}).live_peak.at(static_cast<std::size_t>(space));
}

/// Bytes that a layer of the tiny model leaves to backward, f32, without the norms' and attention's statistics, which are small.
std::int64_t kept_of_a_layer() {
  const std::int64_t tokens = batch * 4, q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  const auto bytes = [&](std::int64_t channels) { return tokens * channels * 4; };
  return 4 * bytes(shape.hidden) + 2 * bytes(q) + 2 * bytes(kv) + 3 * bytes(shape.ffn);
}
/// The statistics: a number for each token of two norms and for each token and head.
std::int64_t statistics_of_a_layer() {
  return batch * 4 * 4 * (2 + shape.heads);
}

TEST(Golden, OffloadActivations) {
  test::Case c(1, 1, true, {.layers = 4});
  c.request.offload = parse_offload("1");
  test::expect_golden("offload_activations", to_text(test::planned(c.step())));
}

TEST(OffloadActivations, NoneChangesNothing) {
  test::Case untouched(1, 1, true, shape);
  untouched.request.micro_batch = batch;
  EXPECT_EQ(to_text(step({.offload = "none"})), to_text(untouched.step()));
}

TEST(OffloadActivations, CopiesWhatALayerKeepsAndBringsItBackOnce) {
  const Program p = step({});
  const std::map<int, std::int64_t> out = copied(p, Queue::device_to_host()), back = copied(p, Queue::host_to_device());
  EXPECT_EQ(sum_of(out), sum_of(back));
  for (int layer = 1; layer < layers - 3; ++layer) {
    ASSERT_EQ(back.count(layer), 1U) << layer;
    // But for a norm's statistics, which are less than 1% of it.
    EXPECT_EQ(back.at(layer), kept_of_a_layer() + statistics_of_a_layer() - batch * 4 * 4) << layer;
  }
  EXPECT_EQ(back.count(layers - 1), 0U) << "the last layer's backward part comes at once";
  EXPECT_EQ(back.count(-1), 0U) << "what belongs to no layer stays";
}

TEST(OffloadActivations, NothingElseIsChanged) {
  const auto without = [](const Program& p) {
    std::vector<std::string> ops;
    for (const Instruction& i : p.instructions) {
      if (is_inserted(i)) continue;
      std::string op(i.op->name());
      for (TensorId id : i.inputs) op += id == no_tensor ? " _" : " " + p[id].name + "/" + std::to_string(p[id].row_stride);
      for (TensorId id : i.outputs) op += id == no_tensor ? " _" : " " + p[id].name + "/" + std::to_string(p[id].row_stride);
      ops.push_back(op);
    }
    return ops;
  };
  for (const bool pack : {false, true})
    EXPECT_EQ(without(step({.pack = pack})), without(step({.offload = "none", .pack = pack}))) << pack;
}

TEST(OffloadActivations, MemoryOfTheDeviceIsThatOfAFewLayers) {
  const std::int64_t none = peak(step({.offload = "none"})), all = peak(step({})), kept = kept_of_a_layer();
  EXPECT_LT(all, none - (layers - 5) * kept);
  EXPECT_GT(peak(step({}), 1), (layers - 5) * kept) << "what left is on the host";
  const std::int64_t half = peak(step({.offload = "0-5"}));
  EXPECT_LT(half, none - 5 * kept);
  EXPECT_GT(half, all);
}

TEST(OffloadActivations, OnlyOfTheLayersAskedFor) {
  const std::map<int, std::int64_t> back = copied(step({.offload = "2-3"}), Queue::host_to_device());
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back.begin()->first, 2);
  EXPECT_EQ(back.rbegin()->first, 3);
  EXPECT_EQ(step({.offload = "3"}).instructions.size(), step({.offload = "3-3"}).instructions.size());
}

TEST(OffloadActivations, WhatIsRecomputedIsNotCopied) {
  const std::int64_t x = batch * 4 * shape.hidden * 4;
  const std::map<int, std::int64_t> back = copied(step({.recompute = "full"}), Queue::host_to_device());
  for (int layer = 0; layer < layers - 3; ++layer) EXPECT_EQ(back.at(layer), x) << "layer " << layer << " keeps its input alone";
}

TEST(OffloadActivations, EveryMicroBatchMovesItsOwnAndHostMemoryIsUsedAgain) {
  const Program one = step({}), three = step({.accumulation = 3});
  EXPECT_GE(sum_of(copied(three, Queue::device_to_host())), 3 * sum_of(copied(one, Queue::device_to_host())));
  EXPECT_LT(peak(three, 1), 2 * peak(one, 1));
  EXPECT_LT(peak(three), peak(step({.offload = "none", .accumulation = 3})) - (layers - 5) * kept_of_a_layer());
}

// Activations of the last layer are not moved, those of the others as far as the link carries them.
TEST(OffloadActivations, AFasterLinkMovesMore) {
  const auto moved = [](const char* machine) { return sum_of(copied(step({.machine = machine}), Queue::device_to_host())); };
  const std::int64_t slow = moved("h200,host-alone=1e8,host=1e8"), fast = moved("h200,host-alone=50e9,host=50e9");
  EXPECT_LT(slow, fast);
  EXPECT_LE(fast, (layers - 1) * (kept_of_a_layer() + statistics_of_a_layer()));
}

// A link so slow that compute waits for it: what is on its way stays bounded, and so does the device's memory.
TEST(OffloadActivations, ASlowLinkDoesNotFillTheDevice) {
  const Program p = step({.machine = "h200,host-alone=1e8,host=1e8"});
  EXPECT_GT(sum_of(copied(p, Queue::device_to_host())), (layers - 3) * kept_of_a_layer());
  EXPECT_LT(peak(p), peak(step({.offload = "none"})) - (layers - 4) * kept_of_a_layer());
}

TEST(OffloadActivations, CopiesAreOrderedByWaits) {
  for (const char* machine : {"h200", "h200,host-alone=2e9,host=2e9"}) {
    for (const char* recompute : {"none", "full"}) {
      MemoryPlan plan;
      const Program p = test::planned(step({.recompute = recompute, .machine = machine, .accumulation = 2, .pack = true}), &plan);
      test::expect_no_two_live_tensors_overlap(p, plan);
      EXPECT_GT(test::expect_conflicts_are_ordered(p, plan), layers) << recompute;
    }
  }
}

/// Each copy back has compute instructions to overlap, between it and the first reader of what it brings.
TEST(OffloadActivations, CopiesBackBeginBeforeTheirUse) {
  const Program p = step({});
  int ahead = 0, copies = 0;
  for (std::size_t n = 0; n < p.instructions.size(); ++n) {
    const Instruction& copy = p.instructions[n];
    if (!is_inserted(copy) || copy.queue != Queue::host_to_device()) continue;
    ++copies;
    int between = 0;
    for (std::size_t reader = n + 1; reader < p.instructions.size(); ++reader) {
      const Instruction& i = p.instructions[reader];
      if (std::find(i.inputs.begin(), i.inputs.end(), copy.outputs[0]) != i.inputs.end()) break;
      between += i.queue == Queue::compute() && i.op->touches_memory() ? 1 : 0;
    }
    ahead += between > 0 ? 1 : 0;
  }
  EXPECT_GT(copies, layers);
  EXPECT_EQ(ahead, copies);
}

TEST(OffloadActivations, TextsAreReadAndWritten) {
  for (const char* text : {"none", "all", "0-15", "3-3"}) EXPECT_EQ(text_of(parse_offload(text)), text);
  EXPECT_EQ(text_of(parse_offload("3")), "3-3");
  for (const char* text : {"", "some", "x", "1-", "-1", "2-1", "1-2-3", "0,1"}) EXPECT_THROW(parse_offload(text), UsageError);
}

std::string refusal(const Asked& asked) {
  try {
    step(asked);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "it is not refused";
}

TEST(OffloadActivations, RefusesLayersThatAreNotThere) {
  EXPECT_EQ(refusal({.offload = "0-12"}), "--offload-activations 0-12: the model has the layers 0 to 11");
}

TEST(OffloadActivations, RefusesWhatMovesNothing) {
  EXPECT_THAT(refusal({.offload = "11"}), HasSubstr("--offload-activations 11-11: nothing would be moved"));
  EXPECT_THAT(refusal({.offload = "10", .machine = "h200,host-alone=1e5,host=1e5"}),
              HasSubstr("before it could have gone to the host"));
}

}  // namespace
}  // namespace consist
