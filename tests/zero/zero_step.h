// Steps of a tiny model under the strategies of ZeRO.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "consist/op.h"
#include "core/compile/compile.h"
#include "core/passes/recompute.h"
#include "core/plan/machine_choice.h"
#include "core/plugin/host.h"
#include "tests/program/plain_precision.h"
#include "tests/program/planned.h"
#include "tests/program/tiny_model.h"

namespace consist::test {

struct ZeroCase {
  std::string strategy = "zero2";
  std::map<std::string, std::string> options;
  int ranks = 2, accumulation = 1;
  int replicas = 1;  ///< of the parts, by ddp: as many groups of ranks, of which `ranks` are all
  TinyShape shape;
  DTypes dtypes;
  bool pack_linears = false;
  std::int64_t micro_batch = 2, sequence = 4;
  std::string recompute = "none";
  FreezeRequest freeze;
  std::string machine = "h200";  ///< that is planned for
};

/// Nothing is kept whole beyond its use: every parameter is gathered for forward and again for backward.
inline const std::map<std::string, std::string> gather_always{{"param-persistence-threshold", "0"},
                                                              {"max-reuse-distance", "0"},
                                                              {"prefetch-bucket-size", "600"},
                                                              {"reduce-bucket-size", "600"}};

inline Program zero_step(const ZeroCase& c) {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  const std::shared_ptr<ParallelStrategy> strategy = host.make<ParallelStrategy>("strategy", c.strategy, c.options);
  const TinyModel model(c.shape);
  const PlainPrecision precision(c.dtypes);
  CompileRequest request;
  request.architecture = &model;
  request.precision = &precision;
  request.strategies = {{c.strategy, strategy.get(), 0}};
  const std::shared_ptr<ParallelStrategy> ddp = host.make<ParallelStrategy>("strategy", "ddp", {});
  if (c.replicas > 1) request.strategies.push_back({"ddp", ddp.get(), c.replicas});
  request.ranks = c.ranks;
  request.micro_batch = c.micro_batch;
  request.sequence = c.sequence;
  request.accumulation = c.accumulation;
  request.pack_linears = c.pack_linears;
  request.freeze = c.freeze;
  request.recompute = parse_recompute(c.recompute, "");
  request.machine = std::make_shared<Machine>(parse_machine(c.machine));
  return compile_step(request, lay_out(request.strategies, c.ranks));
}

}  // namespace consist::test
