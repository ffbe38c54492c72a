// A run as a command line states it, of the golden models and the plugins of this build.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/interpreter/rank_programs.h"
#include "core/plugin/host.h"

namespace consist::interpreter {

/// A golden model (a folder of tests/golden/hf) with some fields of its config.json replaced, as JSON: "{}" for none.
struct ModelChoice {
  std::string golden;
  std::string changes = "{}";
  bool operator<(const ModelChoice& other) const { return std::tie(golden, changes) < std::tie(other.golden, other.changes); }
};

/// The folder of such a model, made once per process.
const std::string& model_folder(const ModelChoice& model);

/// The plugins of this build.
PluginHost& plugin_host();

/// `words` as `consist train` takes them: --ranks, --strategy, --precision, --accumulation, --global-batch, --sequence,
/// --recompute, --recompute-layers, --offload-activations, --freeze, --train-only, --frozen-weights, --adapter, --pack,
/// --optimizer, --weight-decay, --max-norm and --<plugin>.<option>, each with "=". What is not said: one rank of ddp in fp32 with
/// AdamW, 8 sequences of 8 tokens a step. Throws UsageError.
RunConfig config_of(const ModelChoice& model, const std::vector<std::string>& words);

/// As compile() of core/interpreter, with the plugins of this build.
std::unique_ptr<RankPrograms> compile(RunConfig config, std::int64_t workspace);

}  // namespace consist::interpreter
