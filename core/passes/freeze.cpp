#include "core/passes/freeze.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/op.h"
#include "consist/rewrite.h"
#include "core/base/did_you_mean.h"
#include "core/base/split.h"

namespace consist {
namespace {

std::vector<std::string> patterns_of(const std::string& option, const std::string& text) {
  if (text.empty()) return {};
  std::vector<std::string> patterns;
  for (const std::string_view pattern : split(text, ',')) {
    if (pattern.empty())
      throw UsageError(option + " '" + text + "' has an empty pattern; write for example " + option +
                       " 'model.embed_tokens.*,model.layers.0.*'");
    patterns.emplace_back(pattern);
  }
  return patterns;
}

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

void require_matches(const Program& program, const std::string& option, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (std::any_of(program.parameters.begin(), program.parameters.end(),
                    [&](const Parameter& p) { return matches(pattern, p.name); }))
      continue;
    const std::string word = pattern.substr(0, pattern.find_last_not_of('*') + 1);  // as far as a name could begin like that
    std::set<std::string> names;
    for (const Parameter& p : program.parameters) names.insert(word == pattern ? p.name : p.name.substr(0, word.size()));
    std::vector<KnownName> known;
    for (const std::string& name : names) known.push_back({name});
    throw UsageError(option + " '" + pattern + "' matches no parameter of the model, which has '" +
                     program.parameters.front().name + "' and " + std::to_string(program.parameters.size() - 1) + " more." +
                     did_you_mean(word, known));
  }
}

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
  return {patterns_of("--freeze", frozen), patterns_of("--train-only", trained)};
}

std::string patterns_text(const std::vector<std::string>& patterns) {
  std::string text;
  for (const std::string& pattern : patterns) text += (text.empty() ? "" : ",") + pattern;
  return text;
}

void freeze(Program& program, const FreezeRequest& request) {
  if (!request.any()) return;
  require_matches(program, "--freeze", request.frozen);
  require_matches(program, "--train-only", request.trained);
  bool trains = false;
  for (Parameter& p : program.parameters) {
    const auto in = [&](const std::vector<std::string>& patterns) {
      return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) { return matches(pattern, p.name); });
    };
    p.trainable = request.trained.empty() ? p.trainable && !in(request.frozen) : in(request.trained);
    trains = trains || p.trainable;
  }
  if (!trains)
    throw UsageError("--freeze '" + patterns_text(request.frozen) + "' matches all " + std::to_string(program.parameters.size()) +
                     " parameters; nothing would be trained");
}

double trained_share_of_flops(const Architecture& architecture, std::int64_t sequence, const FreezeRequest& request) {
  Program program;
  Builder builder(program);
  const TensorId ids = builder.input("ids", DType::i32, {1, sequence}),
                 targets = builder.input("targets", DType::i32, {1, sequence});
  program.loss = architecture.build(builder, ids, targets, 1);
  freeze(program, request);
  if (std::ranges::all_of(program.parameters, [](const Parameter& p) { return p.trainable; })) return 1;
  Program all = program;
  for (Parameter& p : all.parameters) p.trainable = true;
  return flops_of(std::move(program)) / flops_of(std::move(all));
}

}  // namespace consist
