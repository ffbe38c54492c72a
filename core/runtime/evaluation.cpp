#include "core/runtime/evaluation.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "consist/error.h"
#include "consist/log.h"
#include "consist/text.h"
#include "core/plan/machine_choice.h"
#include "core/runtime/agreement.h"
#include "core/runtime/communicators.h"
#include "core/runtime/device_options.h"
#include "core/runtime/host_memory.h"
#include "core/runtime/last_resort.h"
#include "core/runtime/loaded_weights.h"
#include "core/runtime/run_setup.h"
#include "core/runtime/trainer.h"

namespace consist {
namespace {

/// Nothing happens besides, but that experts get more room.
class Events final : public TrainerEvents {
 public:
  explicit Events(std::function<void()> grow) : grow_(std::move(grow)) {}
  void step_finished(const StepReport& /*report*/) override {}
  void evaluated(const EvaluationReport& /*report*/) override {}
  void checkpoint(std::int64_t /*step*/) override {}
  bool make_room(std::int64_t /*step*/, double /*missing*/) override {
    grow_();
    return true;
  }
  bool stop_requested() override { return false; }

 private:
  std::function<void()> grow_;
};

EvaluationResult evaluate_in(Plan& plan, JoinedJob& job) {
  RunConfig& config = plan.config();
  Parts& parts = plan.parts();
  agree_on_options(job, config);
  open_device(parts, config, plan.host(), job);
  const MachineChoice machine = agree_on_machine(job, parts.device->info(), config.machine);
  plan.set_target({parts.device, std::make_shared<Machine>(machine.machine)});
  add_dataset(parts, config, plan.host());
  if (job.rank() == 0) {
    for (const std::string& warning : parts.dataset->warnings()) log::warn(warning);
  }
  Program program = plan.evaluation(job.rank()).value();
  std::vector<const Program*> programs{&program};
  agree_on_programs(job, "collectives", programs);
  const Communicators communicators(plan.layout().mesh, job, *parts.device,
                                    make_transports(config, plan.host(), plan.layout(), parts.device->info().kind), programs);
  TrainingState state = make_state(plan, std::move(program), std::nullopt, communicators, job.rank(), nullptr);
  state.evaluate_by_step();
  programs = {&state.step().program()};
  agree_on_programs(job, "planned collectives", programs);
  check_host_memory(job, state.planned_host_bytes(), config.host_memory_limit);
  state.allocate(false);
  EvaluationResult result{.weights = load_trained_weights(state, config, parts, job),
                          .dataset = parts.dataset->describe(),
                          .device = parts.device->info().name};
  Events events([&] {
    constexpr double growth = 1.5;
    plan.set_room(plan.room() * growth);
    state.replace_programs(plan.evaluation(job.rank()).value(), std::nullopt, communicators.by_queue(), false);
  });
  const TrainerSettings settings{.micro_batch = config.batch,
                                 .sequence = config.sequence,
                                 .evaluate_every = 1,
                                 .evaluate_sequences = config.evaluate_sequences,
                                 .dataset = config.dataset};
  const EvaluationReport report = evaluate(state, *parts.dataset, plan.layout(), job.rank(), settings, events);
  if (!std::isfinite(report.loss)) throw Error("the loss is not finite: the weights of " + result.weights + " are damaged");
  result.loss = report.loss;
  result.tokens = static_cast<std::int64_t>(report.targets);
  result.sequences = report.sequences;
  result.seconds = report.seconds;
  job.leave(job.timeout());
  return result;
}

}  // namespace

double EvaluationResult::perplexity() const {
  return std::exp(loss);
}

EvaluationResult run_evaluation(Plan plan, JoinedJob& job) {
  const LastResort last_resort(job, [](const std::string& /*reason*/) {});
  try {
    return evaluate_in(plan, job);
  } catch (const std::exception& error) {
    job.fail(error.what());
    throw;
  }
}

}  // namespace consist
