// Every op works on the parts that its placement rule asks for. Each rank's part of an example is computed by
// itself, and what comes out, put together as shard() says, is what one rank makes of the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "consist/error.h"
#include "tests/conformance/parts/kernel_suite.h"

namespace consist {
namespace {

using testing::filled;
using testing::is_float;
using testing::Joined;
using testing::joined;
using testing::kernel_on;
using testing::Numbers;
using testing::Operand;
using testing::Operands;
using testing::part_of;
using testing::Trial;

class KernelsConformanceOfPlacements : public testing::KernelSuite {
 protected:
  /// The outputs of all ranks, put together.
  std::vector<std::optional<Joined>> run_in_parts(const KernelExample& example, const AxisSharding& rule, int ranks,
                                                  Numbers numbers);
  void expect_rule(const KernelExample& example, const AxisSharding& rule, int ranks, Numbers numbers);
};

std::string text_of(const std::vector<Placement>& placements) {
  std::string text;
  for (const Placement p : placements) {
    text += text.empty() ? "" : ", ";
    text += p.is_replicate() ? "replicate"
            : p.is_partial() ? "partial"
            : p.is_flat()    ? "flat"
                             : "shard(" + std::to_string(p.dim()) + ")";
  }
  return "(" + text + ")";
}

/// Placements that an input could have.
std::vector<Placement> candidates_for(const std::optional<TensorType>& type) {
  std::vector<Placement> candidates;
  if (!type) return candidates;
  for (int d = 0; d < type->shape.rank(); ++d) {
    if (type->shape[d] > 1) candidates.push_back(Placement::shard(d));
  }
  if (is_float(type->dtype)) candidates.push_back(Placement::partial());
  if (type->shape.rank() > 0) candidates.push_back(Placement::flat());
  return candidates;
}

/// Rules for inputs that lie in some way: one divided and the others whole, and all alike.
std::vector<AxisSharding> rules_of(const Op& op, const KernelExample& example) {
  std::vector<std::vector<Placement>> asked;
  const std::size_t count = example.inputs.size();
  for (std::size_t i = 0; i < count; ++i) {
    for (const Placement placement : candidates_for(example.inputs[i])) {
      asked.emplace_back(count);
      asked.back()[i] = placement;
      std::vector<Placement> all(count);
      for (std::size_t j = 0; j < count; ++j) {
        const std::vector<Placement> possible = candidates_for(example.inputs[j]);
        if (std::ranges::find(possible, placement) != possible.end()) all[j] = placement;
      }
      asked.push_back(std::move(all));
    }
  }
  std::vector<AxisSharding> rules;
  for (std::vector<Placement>& inputs : asked) {
    AxisSharding rule{std::move(inputs), {}, 0};
    try {
      op.shard(rule, example.inputs, example.attributes);
    } catch (const Error&) {
      continue;  // it says that it cannot work on these
    }
    const bool known = std::ranges::any_of(
        rules, [&](const AxisSharding& other) { return other.inputs == rule.inputs && other.outputs == rule.outputs; });
    if (!known) rules.push_back(std::move(rule));
  }
  return rules;
}

/// The smallest number of ranks that divides everything that is sharded; 0 if there is none.
int ranks_for(const Types& types, const std::vector<Placement>& placements, std::set<int> possible) {
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (!types[i] || !placements[i].is_shard()) continue;
    std::erase_if(possible, [&](int ranks) { return types[i]->shape[placements[i].dim()] % ranks != 0; });
  }
  return possible.empty() ? 0 : *possible.begin();
}

Types parts_of(const Types& types, const std::vector<Placement>& placements, int ranks) {
  Types parts = types;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Placements on_axis;
    on_axis[0] = placements[i];
    if (parts[i]) parts[i]->shape = local_shape(parts[i]->shape, on_axis, Mesh({{"ranks", ranks}}));
  }
  return parts;
}

std::vector<Origin> origins_of(const Types& types, const std::vector<Placement>& placements, int rank, int ranks) {
  std::vector<Origin> origins;
  for (std::size_t i = 0; i < types.size(); ++i) {
    Placements on_axis;
    on_axis[0] = placements[i];
    origins.push_back(types[i] ? local_part(types[i]->shape, on_axis, Mesh({{"ranks", ranks}}), rank).origin : Origin{});
  }
  return origins;
}

std::vector<std::optional<Joined>> KernelsConformanceOfPlacements::run_in_parts(const KernelExample& example,
                                                                                const AxisSharding& rule, int ranks,
                                                                                Numbers numbers) {
  const Op& op = registry().get(example.op);
  const Types whole = op.infer(example.inputs, example.attributes), in = parts_of(example.inputs, rule.inputs, ranks),
              out = parts_of(whole, rule.outputs, ranks);
  const Operands inputs = filled(example.inputs, 0, numbers);
  std::vector<std::vector<Operand>> parts(whole.size());
  for (int rank = 0; rank < ranks; ++rank) {
    Operands own;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]) {
        own.emplace_back(part_of(*inputs[i], rule.inputs[i], rank, ranks));
      } else {
        own.emplace_back();
      }
    }
    const auto from = origins_of(example.inputs, rule.inputs, rank, ranks), to = origins_of(whole, rule.outputs, rank, ranks);
    Trial trial(device(), kernel_on(device(), device_kind_, op, in, out, example.attributes, from, to), op, in, out);
    const Operands outputs = trial.launch(own, 0x3f).outputs;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (outputs[k]) parts[k].push_back(*outputs[k]);
    }
  }
  std::vector<std::optional<Joined>> made(whole.size());
  for (std::size_t k = 0; k < whole.size(); ++k) {
    if (whole[k]) made[k] = joined(*whole[k], parts[k], rule.outputs[k]);
  }
  return made;
}

void KernelsConformanceOfPlacements::expect_rule(const KernelExample& example, const AxisSharding& rule, int ranks,
                                                 Numbers numbers) {
  const Operands expected = trial_of(example).launch(filled(example.inputs, 0, numbers), 0x3f).outputs;
  const auto made = run_in_parts(example, rule, ranks, numbers);
  for (std::size_t k = 0; k < expected.size(); ++k) {
    if (!expected[k] || !made[k]) continue;
    if (!is_float(expected[k]->type.dtype)) {
      EXPECT_EQ(made[k]->whole.bytes, expected[k]->bytes) << "output " << k;
      EXPECT_EQ(made[k]->disagreement, 0) << "output " << k << " is not the same on all ranks";
      continue;
    }
    double largest = 1, off = 0;
    for (std::int64_t e = 0; e < expected[k]->type.shape.elements(); ++e) {
      largest = std::max(largest, std::abs(number_at(*expected[k], e)));
      off = std::max(off, std::abs(number_at(*expected[k], e) - number_at(made[k]->whole, e)));
    }
    const double tolerance = largest * (expected[k]->type.dtype == DType::bf16 ? 0.03 : 1e-4);
    EXPECT_LE(off, tolerance) << "output " << k
                              << ", put together from the ranks' parts, is not what one rank makes of the whole";
    EXPECT_LE(made[k]->disagreement, tolerance) << "output " << k << " is not the same on all ranks";
  }
}

/// Expects the rule to name a placement for everything, and dimensions that are there.
void expect_well_formed(const KernelExample& example, const AxisSharding& rule, const Types& outputs) {
  ASSERT_EQ(rule.inputs.size(), example.inputs.size()) << "shard() changed the number of inputs";
  ASSERT_EQ(rule.outputs.size(), outputs.size())
      << "shard() left placements of " << rule.outputs.size() << " outputs; the op has " << outputs.size();
  const Op& op = registry().get(example.op);
  for (const bool of_inputs : {true, false}) {
    const std::vector<Placement>& placements = of_inputs ? rule.inputs : rule.outputs;
    const Types& types = of_inputs ? example.inputs : outputs;
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (types[i] && placements[i].is_shard()) {
        ASSERT_LT(placements[i].dim(), types[i]->shape.rank())
            << (of_inputs ? "input " : "output ") << i << " has no such dimension";
      }
    }
  }
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const int updated = op.updates_in_place(static_cast<int>(k));
    if (!outputs[k] || updated < 0 || static_cast<std::size_t>(updated) >= example.inputs.size()) continue;
    const auto input = static_cast<std::size_t>(updated);
    if (!example.inputs[input]) continue;
    ASSERT_EQ(rule.outputs[k], rule.inputs[input])
        << "output " << k << " updates input " << input << " in place and lies elsewhere";
  }
}

TEST_P(KernelsConformanceOfPlacements, PartsMakeWhatOneRankMakes) {
  if (const std::string reason = open_device(); !reason.empty()) GTEST_SKIP() << reason;
  for (const KernelExample& example : examples()) {
    const Op& op = registry().get(example.op);
    // Ops that move data between ranks do not follow shard(), and those that have an axis are tied to the ranks along it.
    if (op.is_collective() || op.changes_placement() || example.attributes.has("axis")) continue;
    const Numbers numbers = numbers_for(example);
    const Types outputs = op.infer(example.inputs, example.attributes);
    for (const AxisSharding& rule : rules_of(op, example)) {
      SCOPED_TRACE(example.op + ": shard() says that it works on " + text_of(rule.inputs) + " and makes " +
                   text_of(rule.outputs));
      expect_well_formed(example, rule, outputs);
      if (HasFatalFailure()) return;
      // Attention takes parts of the sequence in an order that the program states.
      if (op.attends() && rule.inputs[0].is_shard(1)) continue;
      int ranks = ranks_for(example.inputs, rule.inputs, {2, 3, 5, 7});
      if (ranks > 0) ranks = ranks_for(outputs, rule.outputs, {ranks});
      if (ranks == 0) continue;  // nothing divides the example so
      expect_rule(example, rule, ranks, numbers);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelsConformanceOfPlacements,
                         ::testing::ValuesIn(testing::candidates("kernels", "CONSIST_CONFORMANCE_KERNELS")),
                         [](const auto& info) { return testing::test_name(info); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KernelsConformanceOfPlacements);

}  // namespace
}  // namespace consist
