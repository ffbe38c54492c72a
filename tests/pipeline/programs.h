// Programs of pipelines, alone and combined with other strategies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/compile/compile.h"
#include "core/cost/collective_stream.h"
#include "core/lower/memory_plan.h"
#include "core/lower/waits.h"
#include "core/plugin/host.h"
#include "core/program/verifier.h"
#include "tests/program/plain_precision.h"
#include "tests/program/tiny_model.h"

namespace consist::test {

/// A pipeline with other strategies around it.
struct Configuration {
  std::string schedule = "1f1b";
  int stages = 2, data = 1, chunks = 2, micro_batches = 4;
  TinyShape shape = {};
  std::string cut = "layers";
  std::string over_data = "ddp";  ///< the strategy of the axis `data`
  int tensor = 1;                 ///< ranks of tp-sp
  std::string recompute = "none";
  bool send_first = true;
  bool sequence_parallel = true;
  std::int64_t sequence = 4;
  std::string rank_speeds;
  std::string text() const {
    return schedule + " over " + std::to_string(stages) + " ranks x " + over_data + "=" + std::to_string(data) +
           " x tp-sp=" + std::to_string(tensor) + ", " + std::to_string(micro_batches) + " micro-batches, " +
           std::to_string(shape.layers) + " layers" + (shape.tied ? ", tied" : "");
  }
};

/// The planned programs of all ranks, or of one position on the other axes.
inline std::vector<Program> compile(PluginHost& host, const Architecture& model, const Configuration& configuration,
                                    bool evaluation = false) {
  const PlainPrecision precision;
  const auto pipeline = host.make<ParallelStrategy>("strategy", "pipeline",
                                                    {{"schedule", configuration.schedule},
                                                     {"chunks", std::to_string(configuration.chunks)},
                                                     {"cut", configuration.cut},
                                                     {"send-first", configuration.send_first ? "true" : "false"},
                                                     {"rank-speeds", configuration.rank_speeds}});
  const auto data = host.make<ParallelStrategy>("strategy", configuration.over_data, {});
  const auto tensor = host.make<ParallelStrategy>("strategy", "tp-sp",
                                                  {{"sequence-parallel", configuration.sequence_parallel ? "true" : "false"}});
  const int ranks = configuration.stages * configuration.data * configuration.tensor;
  const CompileRequest request{.architecture = &model,
                               .precision = &precision,
                               .strategies = {{configuration.over_data, data.get(), 0},
                                              {"tp-sp", tensor.get(), configuration.tensor},
                                              {"pipeline", pipeline.get(), configuration.stages}},
                               .ranks = ranks,
                               .micro_batch = 2,
                               .sequence = configuration.sequence,
                               .accumulation = configuration.micro_batches,
                               .recompute = parse_recompute(configuration.recompute, ""),
                               .machine = std::make_shared<Machine>(*find_machine("a100"))};  // one rate for all sizes: programs are tiny
  const Layout layout = lay_out(request.strategies, ranks);
  std::vector<Program> programs;
  for (int rank = 0; rank < ranks; ++rank) {
    programs.push_back(evaluation ? compile_evaluation(request, layout, rank) : compile_step(request, layout, rank));
    insert_waits(programs.back(), plan_memory(programs.back(), {}), {});
    verify(programs.back());
  }
  return programs;
}

/// The same of a tiny model.
inline std::vector<Program> compile(PluginHost& host, const Configuration& configuration, bool evaluation = false) {
  return compile(host, TinyModel(configuration.shape), configuration, evaluation);
}

inline std::vector<const Program*> pointers(const std::vector<Program>& programs) {
  std::vector<const Program*> result;
  for (const Program& p : programs) result.push_back(&p);
  return result;
}

/// Throws ProgramError if the ranks would block each other.
inline void verify_collectives_of(const std::vector<Program>& programs) {
  verify_collectives(pointers(programs));
}

}  // namespace consist::test
