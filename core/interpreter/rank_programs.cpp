#include "core/interpreter/rank_programs.h"

#include <utility>

#include "core/program/verifier.h"

namespace consist::interpreter {
namespace {

void add_rank(RankPrograms& made, Program step, Program evaluation, std::int64_t workspace) {
  made.steps.push_back(planned(std::move(step), workspace));
  const Planned& planned_step = made.steps.back();
  const auto states = state_addresses(planned_step.program, planned_step.plan);
  made.evaluations.push_back(planned(std::move(evaluation), workspace, &states));
  verify(planned_step.program);
  verify(made.evaluations.back().program);
}

}  // namespace

std::unique_ptr<RankPrograms> compile(const Plan& plan, std::int64_t workspace) {
  auto made = std::make_unique<RankPrograms>();
  made->config = plan.config();
  made->parts = plan.parts();
  made->layout = plan.layout();
  for (int rank = 0; rank < made->config.ranks; ++rank)
    add_rank(*made, plan.step(rank), plan.evaluation(rank).value(), workspace);
  return made;
}

std::unique_ptr<RankPrograms> compile(RunConfig config, Parts parts, std::int64_t workspace) {
  auto made = std::make_unique<RankPrograms>();
  made->layout = lay_out(parts.uses, config.ranks);
  CompileRequest request = parts.compile_request(config);
  for (int rank = 0; rank < config.ranks; ++rank) {
    request.verify_each_pass = rank == 0;  // of the others what comes out: their passes are the same
    add_rank(*made, compile_step(request, made->layout, rank), compile_evaluation(request, made->layout, rank), workspace);
  }
  made->parts = std::move(parts);
  made->config = std::move(config);
  return made;
}

}  // namespace consist::interpreter
