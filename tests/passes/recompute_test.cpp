#include "core/passes/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "consist/error.h"
#include "core/lower/memory_plan.h"
#include "core/program/printer.h"
#include "tests/golden_text.h"
#include "tests/passes/tiny_case.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

constexpr int repeated_layers = 4;
constexpr std::int64_t large_batch = 64;  // so that activations are most of the memory

Program step(const std::string& what, const std::string& range = "", int accumulation = 1) {
  test::Case c(1, accumulation, true, {.layers = repeated_layers});
  c.request.micro_batch = large_batch;
  c.request.recompute = parse_recompute(what, range);
  return c.step();
}

bool is_repeated(const Instruction& i) {
  return std::string_view(i.tag.inserted_by) == recompute_name;
}

/// Activations that forward leaves to backward (or to a repeated instruction): by layer, the names.
std::map<int, std::multiset<std::string>> kept(const Program& p) {
  std::map<TensorId, int> layer_of;
  std::set<TensorId> counted;
  std::map<int, std::multiset<std::string>> names;
  for (const Instruction& i : p.instructions) {
    for (TensorId input : i.inputs) {
      if (i.tag.phase != Phase::backward || input == no_tensor) continue;
      const TensorId storage = p[input].storage;
      auto made = layer_of.find(storage);
      if (made != layer_of.end() && counted.insert(storage).second) names[made->second].insert(p[input].name);
    }
    if (i.tag.phase != Phase::forward) continue;
    for (TensorId output : i.outputs) {
      if (output != no_tensor) layer_of[p[output].storage] = i.tag.layer;
    }
  }
  return names;
}

std::map<std::string, int> repeated_ops(const Program& p, int layer) {
  std::map<std::string, int> ops;
  for (const Instruction& i : p.instructions) {
    if (is_repeated(i) && i.tag.layer == layer) ++ops[std::string(i.op->name())];
  }
  return ops;
}

std::int64_t peak_of_device(const Program& p) {
  return plan_memory(p, {}).live_peak[0];
}

TEST(Golden, RecomputeFull) {
  test::Case c(2, 1, true, {.layers = 1});
  c.request.recompute = parse_recompute("full", "");
  test::expect_golden("recompute_full", to_text(test::planned(c.step())));
}

TEST(Golden, RecomputeSwigluAndNorms) {
  test::Case c(1, 1, true, {.layers = 2});
  c.request.recompute = parse_recompute("swiglu,rms_norm", "1");
  test::expect_golden("recompute_swiglu_rms_norm", to_text(test::planned(c.step())));
}

TEST(Recompute, NoneChangesNothing) {
  test::Case untouched(1, 1, true, {.layers = repeated_layers});
  untouched.request.micro_batch = large_batch;
  EXPECT_EQ(to_text(step("none")), to_text(untouched.step()));
}

TEST(Recompute, FullKeepsOnlyTheInputOfEachLayer) {
  const Program p = step("full");
  const auto names = kept(p);
  for (int layer = 1; layer < repeated_layers; ++layer) {
    ASSERT_EQ(names.count(layer), 1u);
    EXPECT_EQ(names.at(layer).size(), 1u) << ::testing::PrintToString(names.at(layer));
    EXPECT_THAT(*names.at(layer).begin(), HasSubstr("norm1"));
  }
  EXPECT_EQ(names.count(0), 0u) << "layer 0 begins with the embedding's output";
  for (int layer = 0; layer < repeated_layers; ++layer) {
    // All but the last product, whose result only the next layer needs.
    const std::map<std::string, int> expected{{"rms_norm", 2}, {"linear", 6}, {"rope", 2}, {"attention", 1}, {"swiglu", 1}};
    EXPECT_EQ(repeated_ops(p, layer), expected) << "layer " << layer;
  }
}

TEST(Recompute, FullMakesALayerAgainBeforeItsBackwardAndNotEarlier) {
  const Program p = step("full");
  int current = repeated_layers;
  for (const Instruction& i : p.instructions) {
    if (i.tag.phase != Phase::backward || i.tag.layer < 0) continue;
    EXPECT_LE(i.tag.layer, current) << "instructions of a later layer come back";
    if (i.tag.layer < current) {
      EXPECT_TRUE(is_repeated(i)) << "layer " << i.tag.layer << " must begin with what is repeated";
    }
    current = i.tag.layer;
  }
  EXPECT_EQ(current, 0);
}

TEST(Recompute, PlannedMemoryFallsByWhatIsNoLongerKept) {
  // Bytes that forward leaves to backward per layer and token, f32, at the tiny shapes.
  const test::TinyShape s{.layers = repeated_layers};
  const std::int64_t tokens = large_batch * 4, q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  auto bytes = [&](std::int64_t channels) { return (tokens * channels * 4 + 255) / 256 * 256; };
  const std::int64_t h = bytes(s.ffn), x = bytes(s.hidden);
  const std::int64_t all = 4 * x + 2 * bytes(1) + 2 * bytes(q) + 2 * bytes(kv) + bytes(s.heads) + 3 * h;
  const auto kept_bytes = [](const Program& p) {
    std::set<TensorId> storages;
    std::set<TensorId> made;
    for (const Instruction& i : p.instructions) {
      for (TensorId input : i.inputs) {
        if (i.tag.phase == Phase::backward && input != no_tensor && made.count(p[input].storage) != 0)
          storages.insert(p[input].storage);
      }
      for (TensorId output : i.outputs) {
        if (i.tag.phase == Phase::forward && i.tag.layer == 1 && output != no_tensor) made.insert(p[output].storage);
      }
    }
    std::int64_t sum = 0;
    for (TensorId storage : storages) sum += (p.bytes(storage) + 255) / 256 * 256;
    return sum;
  };
  EXPECT_EQ(kept_bytes(step("none")), all);
  EXPECT_EQ(kept_bytes(step("swiglu")), all - h);
  EXPECT_EQ(kept_bytes(step("swiglu,rms_norm")), all - h - 2 * x - 2 * bytes(1));
  EXPECT_EQ(kept_bytes(step("full")), x);
  EXPECT_LT(peak_of_device(step("full")), peak_of_device(step("swiglu,rms_norm")));
  EXPECT_LT(peak_of_device(step("swiglu,rms_norm")), peak_of_device(step("swiglu")));
  EXPECT_LT(peak_of_device(step("swiglu")), peak_of_device(step("none")));
  // The peak falls by all layers but the one that is made again at that time.
  EXPECT_EQ(peak_of_device(step("none")) - peak_of_device(step("full")), (repeated_layers - 1) * (all - x));
}

TEST(Recompute, OnlyInTheLayersAskedFor) {
  const Program p = step("full", "1-2");
  EXPECT_TRUE(repeated_ops(p, 0).empty());
  EXPECT_FALSE(repeated_ops(p, 1).empty());
  EXPECT_FALSE(repeated_ops(p, 2).empty());
  EXPECT_TRUE(repeated_ops(p, 3).empty());
  EXPECT_EQ(repeated_ops(step("full", "2"), 1).size(), 0u);
}

TEST(Recompute, EveryMicroBatchRepeatsItsOwn) {
  const Program one = step("full"), three = step("full", "", 3);
  const auto count = [](const Program& p) {
    return std::count_if(p.instructions.begin(), p.instructions.end(), [](const Instruction& i) { return is_repeated(i); });
  };
  EXPECT_EQ(count(three), 3 * count(one));
}

TEST(Recompute, RefusesWhatIsNotThere) {
  EXPECT_THROW(parse_recompute("full,swiglu", ""), UsageError);
  EXPECT_THROW(parse_recompute("", ""), UsageError);
  EXPECT_THROW(parse_recompute("swiglu,", ""), UsageError);
  EXPECT_THROW(parse_recompute("none", "0-1"), UsageError);
  for (const char* range : {"x", "1-", "-1", "2-1", "1-2-3", "0,1"}) EXPECT_THROW(parse_recompute("full", range), UsageError);
  EXPECT_THROW(step("full", "0-4"), UsageError);
  try {
    step("swiglu,gelu");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'gelu'"));
    EXPECT_THAT(error.what(), HasSubstr("swiglu"));
  }
}

}  // namespace
}  // namespace consist
