#include "core/passes/pack_linears.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "consist/edit.h"
#include "consist/error.h"
#include "consist/places.h"
#include "core/lower/memory_plan.h"
#include "core/program/printer.h"
#include "core/program/verifier.h"
#include "tests/golden_text.h"
#include "tests/passes/tiny_case.h"
#include "tests/program/plan_checks.h"

namespace consist {
namespace {

using ::testing::HasSubstr;

constexpr int packed_layers = 2;

Program packed(test::Case c) {
  c.request.pack_linears = true;
  return c.step();
}

std::map<std::string, int> ops(const Program& p) {
  std::map<std::string, int> count;
  for (const Instruction& i : p.instructions) ++count[std::string(i.op->name())];
  return count;
}

std::vector<const Instruction*> all_of(const Program& p, std::string_view op) {
  std::vector<const Instruction*> found;
  for (const Instruction& i : p.instructions) {
    if (i.op->name() == op) found.push_back(&i);
  }
  return found;
}

/// A program before the pass, of one layer.
Program unpacked(int ranks = 1, int accumulation = 1, bool bucket = false) {
  return test::Case(ranks, accumulation, bucket, {.layers = 1}).step();
}

TEST(Golden, Packed) {
  test::expect_golden("packed", to_text(test::planned(packed(test::Case(1, 2, true, {.layers = 1})))));
}

TEST(PackLinears, EveryLayerHasTwoProductsInEachDirection) {
  for (const int accumulation : {1, 3}) {
    const auto count = ops(packed(test::Case(1, accumulation, true, {.layers = packed_layers})));
    const int each = packed_layers * accumulation;
    for (const char* op : {"packed_linear", "packed_linear_input_grad", "packed_linear_weight_grad"})
      EXPECT_EQ(count.at(op), 2 * each) << op;
    // o and down.
    for (const char* op : {"linear", "linear_input_grad", "linear_weight_grad"}) EXPECT_EQ(count.at(op), 2 * each) << op;
  }
}

TEST(PackLinears, CostsAreThoseOfTheLinears) {
  double flops[2] = {};
  for (const bool pack : {false, true}) {
    test::Case c(1, 2);
    c.request.pack_linears = pack;
    const Program p = c.step();
    for (const Instruction& i : p.instructions) flops[pack] += i.op->cost(p, i).flops;
  }
  EXPECT_GT(flops[0], 0);
  EXPECT_DOUBLE_EQ(flops[0], flops[1]);
}

TEST(PackLinears, PackedTensorsLieSideBySideInPlannedMemory) {
  MemoryPlan plan;
  const Program p = test::planned(packed(test::Case(1, 2)), &plan);
  test::expect_no_two_live_tensors_overlap(p, plan);
  const auto address = [&](TensorId id) { return plan.address.at(static_cast<std::size_t>(id)); };
  const std::vector<const Instruction*> products = all_of(p, "packed_linear");
  ASSERT_FALSE(products.empty());
  for (const Instruction* i : products) {
    for (std::size_t k = 3; k < i->inputs.size(); k += 2)
      EXPECT_EQ(address(i->inputs[k]), address(i->inputs[k - 2]) + p.bytes(i->inputs[k - 2])) << "weights";
    for (std::size_t k = 1; k < i->outputs.size(); ++k)
      EXPECT_EQ(address(i->outputs[k]), address(i->outputs[k - 1]) + p.local(i->outputs[k - 1]).last() * 4) << "columns";
    std::int64_t width = 0;
    for (TensorId y : i->outputs) width += p.local(y).last();
    for (TensorId y : i->outputs) EXPECT_EQ(p[y].row_stride, width);
  }
  for (const Instruction* i : all_of(p, "packed_linear_weight_grad")) {
    for (std::size_t k = 1; k < i->outputs.size(); ++k)
      EXPECT_EQ(address(i->outputs[k]), address(i->outputs[k - 1]) + p.bytes(i->outputs[k - 1])) << "gradients";
  }
}

TEST(PackLinears, ParametersKeepTheirNamesAndPlacesForEvaluation) {
  test::Case c(1);
  c.request.pack_linears = true;
  const Program step = c.step();
  MemoryPlan plan;
  test::planned(step, &plan);
  const auto states = state_addresses(step, plan);
  const Program evaluation = compile_evaluation(c.request, c.layout);
  const MemoryPlan beside = plan_memory(evaluation, {}, &states);
  ASSERT_EQ(step.parameters.size(), evaluation.parameters.size());
  for (std::size_t k = 0; k < step.parameters.size(); ++k) {
    EXPECT_EQ(step.parameters[k].name, evaluation.parameters[k].name);
    EXPECT_EQ(plan.address[static_cast<std::size_t>(step.parameters[k].tensor)],
              beside.address[static_cast<std::size_t>(evaluation.parameters[k].tensor)]);
  }
}

TEST(PackLinears, RotationsAreInPlaceAndKeepNothingAlive) {
  const auto peak = [](bool pack) {
    test::Case c(1, 1, true, {.layers = 8});
    c.request.pack_linears = pack;
    c.request.micro_batch = 64;
    return plan_memory(c.step(), {}).live_peak[0];
  };
  EXPECT_LE(peak(true), peak(false) * 1.01);
  const Program p = packed(test::Case(1));
  for (const char* op : {"rope", "rope_grad"}) {
    for (const Instruction* i : all_of(p, op)) {
      const Tensor &from = p[i->inputs[0]], &to = p[i->outputs[0]];
      EXPECT_NE(to.row_stride, 0);
      EXPECT_EQ(from.storage, to.storage) << op;
      EXPECT_EQ(from.offset, to.offset) << op;
    }
  }
}

TEST(PackLinears, GradientsInBucketsArePackedWhereTheBucketHasThemInOrder) {
  // One bucket of all gradients in the order of the parameters, q before k before v: backward comes to v first.
  const auto in_order = ops(packed(test::Case(2, 1, true, {.layers = 1})));
  EXPECT_EQ(in_order.count("packed_linear_weight_grad"), 0U) << "another order than that of the columns";
  EXPECT_EQ(in_order.at("packed_linear_input_grad"), 2);
  EXPECT_EQ(in_order.at("packed_linear"), 2);
  EXPECT_EQ(ops(packed(test::Case(2, 1, false, {.layers = 1}))).at("packed_linear_weight_grad"), 2);
}

TEST(PackLinears, LeavesWhatWouldHaveGaps) {
  // No weight has bytes (width · 10 · 4) that are a multiple of 256, and columns of k and v are 24 bytes.
  const auto count = ops(packed(test::Case(1, 1, true, {.layers = 1, .hidden = 10, .heads = 2, .kv_heads = 1, .head_dim = 6})));
  EXPECT_EQ(count.count("packed_linear"), 0U);
  EXPECT_EQ(count.count("packed_linear_input_grad"), 0U);
  EXPECT_EQ(count.count("packed_linear_weight_grad"), 0U);
}

TEST(PackLinears, LeavesWhatOthersReadAsDense) {
  Program p = unpacked();
  const Instruction gate = *all_of(p, "linear").at(4);
  Inserter inserter(p);
  const auto at =
      std::find_if(p.instructions.begin(), p.instructions.end(), [&](const Instruction& i) { return i.op->name() == "swiglu"; }) -
      p.instructions.begin();
  inserter.after(static_cast<InstructionId>(at), [&](Builder& b) {
    b.emit_one("cast", {gate.outputs[0]}, {{"dtype", std::string("f32")}}, "copy");
  });
  inserter.apply();
  pack_linears(p);
  verify(p);
  EXPECT_EQ(ops(p).at("packed_linear"), 1) << "q, k and v";
  EXPECT_EQ(ops(p).at("packed_linear_input_grad"), 2);
}

TEST(PackLinears, LeavesWhatIsNeededBeforeTheLastOfThem) {
  Program p = unpacked();
  auto gate = std::find_if(p.instructions.begin(), p.instructions.end(), [&](const Instruction& i) {
    return i.op->name() == "linear" && p[i.inputs[1]].name.find("gate") != std::string::npos;
  });
  // Something between gate and up that reads gate, and takes a strided view.
  Inserter inserter(p);
  const TensorId y = gate->outputs[0];
  inserter.after(static_cast<InstructionId>(gate - p.instructions.begin()), [&](Builder& b) {
    b.emit_one("swiglu", {y, y}, {}, "early");
  });
  inserter.apply();
  pack_linears(p);
  verify(p);
  EXPECT_EQ(ops(p).at("packed_linear"), 1) << "q, k and v";
}

TEST(PackLinears, LeavesGradientsOfWeightsBetweenWhichACollectiveStands) {
  Program p = unpacked(2);
  const auto up = std::find_if(p.instructions.begin(), p.instructions.end(), [&](const Instruction& i) {
    return i.op->name() == "linear_weight_grad" && p[i.outputs[0]].name.find("up") != std::string::npos;
  });
  Inserter inserter(p);
  inserter.after(static_cast<InstructionId>(up - p.instructions.begin()), [&](Builder& b) {
    const TensorId one = b.constant("one", {}, [](std::span<float> out) { out[0] = 1; });
    const TensorId sum = b.emit_one("cast", {one}, {{"dtype", std::string("f32")}}, "sum");
    b.program()[sum].placements[0] = Placement::partial();
    b.all_reduce({sum}, 0);
  });
  inserter.apply();
  pack_linears(p);
  EXPECT_EQ(ops(p).at("packed_linear_weight_grad"), 1) << "q, k and v";
  EXPECT_EQ(ops(p).at("packed_linear_input_grad"), 2);
}

TEST(Verifier, RefusesColumnsWhereAnOpTakesNone) {
  Program p = packed(test::Case(1, 1, true, {.layers = 1}));
  for (Instruction& i : p.instructions) {
    if (i.op->name() == "rms_norm" && i.tag.layer == 0) p[i.outputs[0]].row_stride = p.local(i.outputs[0]).last() + 4;
  }
  try {
    verify(p);
    FAIL() << "a strided view went unnoticed";
  } catch (const ProgramError& error) {
    EXPECT_THAT(error.what(), HasSubstr("strided view"));
  }
}

TEST(Verifier, RefusesPackedWeightsThatAreApart) {
  Program p = packed(test::Case(1, 1, true, {.layers = 1}));
  Instruction& i = const_cast<Instruction&>(*all_of(p, "packed_linear").front());
  std::swap(i.inputs[1], i.inputs[3]);
  std::swap(i.outputs[0], i.outputs[1]);
  try {
    verify(p);
    FAIL() << "weights in another order went unnoticed";
  } catch (const ProgramError& error) {
    EXPECT_THAT(error.what(), HasSubstr("must"));
  }
}

}  // namespace
}  // namespace consist
