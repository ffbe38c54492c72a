// Memory of each rank: optimizer states and gradients fall as 1/N, in stage 3 parameters too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/zero/zero_step.h"

namespace consist {
namespace {

using test::zero_step;
using test::ZeroCase;

constexpr test::TinyShape shape{
    .layers = 4, .hidden = 128, .heads = 4, .kv_heads = 2, .head_dim = 32, .ffn = 256, .vocabulary = 512};

/// Bytes of each role at the fullest moment, as `consist explain --summary` states them.
std::map<std::string, double> planned_roles(const ZeroCase& c) {
  const Program program = zero_step(c);
  const MemoryPlan plan = plan_memory(program, {});
  std::map<std::string, double> roles;
  for (const MemoryShare& share : memory_by_role(program, plan, {})) roles[share.what] = static_cast<double>(share.bytes);
  return roles;
}

double parameter_bytes(const ZeroCase& c) {
  const Program program = zero_step(c);
  double bytes = 0;
  for (const Parameter& p : program.parameters)
    bytes += static_cast<double>(program[p.tensor].shape.elements()) * static_cast<double>(size_of(program[p.tensor].dtype));
  return bytes;
}

constexpr double alignment = 0.03;  // of parts to 256 bytes, with their padding

TEST(Memory, OptimizerStatesFallAsOneOverN) {
  for (const char* strategy : {"zero2", "zero3-offload"}) {
    const double whole =
        3 * 2 * parameter_bytes({.ranks = 1, .shape = shape, .dtypes = test::mixed_bf16});  // master and two moments, f32
    for (const int ranks : {1, 2, 4, 8}) {
      const auto roles = planned_roles({.strategy = strategy, .ranks = ranks, .shape = shape, .dtypes = test::mixed_bf16});
      EXPECT_NEAR(roles.at("optimizer_state") / (whole / ranks), 1, alignment) << strategy << " on " << ranks << " ranks";
    }
  }
}

TEST(Memory, Stage2KeepsGradientsInPartsAndStage1DoesNot) {
  const ZeroCase stage2{.options = {{"reduce-bucket-size", "20000"}}, .ranks = 8, .accumulation = 2, .shape = shape};
  ZeroCase stage1 = stage2;
  stage1.options["stage"] = "1";
  const double whole = parameter_bytes(stage2), two_buckets = 2 * 4.0 * 65536;  // the table is larger than a bucket
  EXPECT_GE(planned_roles(stage1).at("gradient"), whole);
  EXPECT_LE(planned_roles(stage2).at("gradient"), 2 * whole / 8 + two_buckets);
}

TEST(Memory, Stage3HoldsItsPartsAndTwoBucketsOfParameters) {
  for (const int ranks : {2, 4, 8}) {
    const ZeroCase c{.strategy = "zero3-offload",
                     .options = {{"param-persistence-threshold", "0"},
                                 {"max-reuse-distance", "0"},
                                 {"prefetch-bucket-size", "40000"},
                                 {"reduce-bucket-size", "40000"}},
                     .ranks = ranks,
                     .shape = shape};
    const double whole = parameter_bytes(c), table = 4.0 * 512 * 128, bucket = 4.0 * 40000;
    EXPECT_LE(planned_roles(c).at("parameter"), whole / ranks * (1 + alignment) + table + bucket) << ranks << " ranks";
  }
}

/// Bytes of states in a space, on each rank.
double state_bytes(const Program& program, Role role, MemorySpace space) {
  double bytes = 0;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    const bool counts =
        tensor.state && tensor.storage == static_cast<TensorId>(t) && tensor.role == role && tensor.space == space;
    if (counts) bytes += static_cast<double>(program.bytes(static_cast<TensorId>(t)));
  }
  return bytes;
}

TEST(Memory, OffloadedStatesLieOnTheHost) {
  ZeroCase c{.strategy = "zero3-offload",
             .options = {{"param-persistence-threshold", "200"}, {"sub-group-size", "8192"}},
             .ranks = 4,
             .shape = shape,
             .dtypes = test::mixed_bf16};
  const Program on_device = zero_step(c);
  const double states = state_bytes(on_device, Role::optimizer_state, MemorySpace::device);
  EXPECT_EQ(state_bytes(on_device, Role::optimizer_state, MemorySpace::host), 0);

  c.options["offload-optimizer.device"] = "cpu";
  for (const double ratio : {0.0, 0.5, 1.0}) {
    c.options["offload-optimizer.ratio"] = std::to_string(ratio);
    const Program program = zero_step(c);
    const double there = state_bytes(program, Role::optimizer_state, MemorySpace::host);
    EXPECT_EQ(there + state_bytes(program, Role::optimizer_state, MemorySpace::device), states);
    EXPECT_NEAR(there / states, ratio, 0.2) << "whole parameters only";
    if (ratio == 0) EXPECT_EQ(there, 0);
  }
  // Three groups are on the device at once, the largest being the table's part.
  const double group = 12.0 * 512 * 128 / 4;
  EXPECT_LE(planned_roles(c)["optimizer_state"], 3 * group);

  c.options["offload-param.device"] = "cpu";
  const Program program = zero_step(c);
  double small = 0;
  for (const Parameter& p : program.parameters) {
    if (program[p.tensor].shape.elements() < 200) small += static_cast<double>(program.bytes(p.tensor));
  }
  EXPECT_EQ(state_bytes(program, Role::parameter, MemorySpace::device), small);
  EXPECT_GT(state_bytes(program, Role::parameter, MemorySpace::host), 10 * small);
}

}  // namespace
}  // namespace consist
