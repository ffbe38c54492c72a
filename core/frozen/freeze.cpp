#include "core/frozen/freeze.h"

#include <algorithm>
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
  for (Parameter& p : program.parameters) {
    const auto in = [&](const std::vector<std::string>& patterns) { return matches_any(patterns, p.name); };
    p.trainable = request.trained.empty() ? p.trainable && !in(request.frozen) : !p.fixed && in(request.trained);
    trains = trains || p.trainable;
  }
  if (!trains && !request.trained.empty())
    throw UsageError(
        "--train-only '" + patterns_text(request.trained) +
        "' names only biases of routers, which decide choices and get no gradient, or weights of frozen models; name "
        "weights that are trained");
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
  if (std::ranges::all_of(program.parameters, [](const Parameter& p) { return p.trainable || p.fixed; })) return 1;
  Program all = program;
  for (Parameter& p : all.parameters) p.trainable = !p.fixed;
  return flops_of(std::move(program)) / flops_of(std::move(all));
}

}  // namespace consist
