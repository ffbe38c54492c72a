#include "core/passes/freeze.h"

#include <algorithm>
#include <set>
#include <utility>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/op.h"
#include "consist/rewrite.h"

namespace consist {
namespace {

double flops_of(Program program) {
  differentiate(program, DType::f32);
  double flops = 0;
  for (const Instruction& i : program.instructions) flops += i.op->cost(program, i).flops;
  return flops;
}

/// Biases that routers add for their choices alone: no gradient reaches them, so that nothing can train them.
std::set<TensorId> untrainable(const Program& program) {
  static const Op* const route = &registry().get("moe_route");
  constexpr std::size_t bias = 3;
  std::set<TensorId> biases;
  for (const Instruction& i : program.instructions) {
    if (i.op == route && i.inputs.size() > bias) biases.insert(i.inputs[bias]);
  }
  return biases;
}

/// True for such a bias, and for a parameter of a loss's frozen model.
bool stays(const Parameter& p, const std::set<TensorId>& biases) {
  return biases.contains(p.tensor) || !p.model.empty();
}

}  // namespace

FreezeRequest parse_freeze(const std::string& frozen, const std::string& trained) {
  if (!frozen.empty() && !trained.empty())
    throw UsageError("--freeze and --train-only are both given; state what is frozen or what is trained, not both");
  return {parse_patterns("--freeze", frozen), parse_patterns("--train-only", trained)};
}

void freeze(Program& program, const FreezeRequest& request) {
  if (!request.any()) return;
  require_matches(program, "--freeze", request.frozen);
  require_matches(program, "--train-only", request.trained);
  bool trains = false;
  const std::set<TensorId> biases = untrainable(program);
  for (Parameter& p : program.parameters) {
    const auto in = [&](const std::vector<std::string>& patterns) { return matches_any(patterns, p.name); };
    p.trainable =
        request.trained.empty() ? p.trainable && !in(request.frozen) : !stays(p, biases) && in(request.trained);
    trains = trains || p.trainable;
  }
  if (!trains && !request.trained.empty())
    throw UsageError("--train-only '" + patterns_text(request.trained) +
                     "' names only biases of routers, which decide choices and get no gradient; name weights that are trained");
  if (!trains)
    throw UsageError("--freeze '" + patterns_text(request.frozen) + "' matches all " + std::to_string(program.parameters.size()) +
                     " parameters; nothing would be trained");
}

Program whole_model(const Architecture& architecture, const FreezeRequest& request) {
  Program program;
  Builder builder(program);
  const TensorId ids = builder.input("ids", DType::i32, {1, 1}), targets = builder.input("targets", DType::i32, {1, 1});
  architecture.build(builder, ids, targets, 1);
  freeze(program, request);
  return program;
}

double trained_share_of_flops(const Architecture& architecture, std::int64_t sequence, const FreezeRequest& request) {
  Program program;
  Builder builder(program);
  const TensorId ids = builder.input("ids", DType::i32, {1, sequence}),
                 targets = builder.input("targets", DType::i32, {1, sequence});
  program.loss = architecture.build(builder, ids, targets, 1);
  freeze(program, request);
  const std::set<TensorId> biases = untrainable(program);
  if (std::ranges::all_of(program.parameters, [&](const Parameter& p) { return p.trainable || stays(p, biases); })) return 1;
  Program all = program;
  for (Parameter& p : all.parameters) p.trainable = !stays(p, biases);
  return flops_of(std::move(program)) / flops_of(std::move(all));
}

}  // namespace consist
