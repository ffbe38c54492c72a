#include "core/training/evaluation.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "consist/error.h"
#include "consist/log.h"
#include "consist/text.h"
#include "core/archive/archive.h"
#include "core/archive/own_metric_values.h"
#include "core/connect/agreement.h"
#include "core/connect/last_resort.h"
#include "core/experts/room_for_rows.h"
#include "core/lower/program_summary.h"
#include "core/plan/parts.h"
#include "core/program/own_metrics.h"
#include "core/record/job_memory.h"
#include "core/record/recorder.h"
#include "core/record/run_description.h"
#include "core/state/loaded_weights.h"
#include "core/training/session.h"
#include "core/training/trainer.h"

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

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The archive's /evaluation.
std::string evaluation_json(const EvaluationResult& result) {
  using Json = nlohmann::ordered_json;
  const Json json{{"weights", result.weights},     {"step", result.step > 0 ? Json(result.step) : Json()},
                  {"dataset", result.dataset},     {"loss", result.loss},
                  {"loss_unit", result.loss_unit}, {"perplexity", result.perplexity ? Json(*result.perplexity) : Json()},
                  {"tokens", result.tokens},       {"sequences", result.sequences},
                  {"seconds", result.seconds},     {"tokens_per_second", static_cast<double>(result.tokens) / result.seconds},
                  {"device", result.device},       {"metrics", json_of(result.metrics)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

/// Writes the texts by which a training run describes itself, as far as an evaluation has them.
void describe(Archive& archive, const JoinedJob& job, Session& session, const PlannedMemory& planned) {
  const Plan& plan = session.plan();
  RunConfig recorded = plan.config();
  recorded.evaluate_every = 0;  // an option of training, by which the plan knows that it evaluates
  archive.text("/config", recorded.to_json());
  archive.text("/environment", environment_json(job, session.device(), session.machine(), session.communicators(), plan.host()));
  archive.text("/topology", topology_json(plan, session.communicators()));
  archive.text("/program", program_json(summarize(session.state().step()), planned));
}

/// Names the frozen models of the loss that are the very weights that a folder holds: those of a run's start are in its
/// checkpoints alone.
std::string reference_note(const Plan& plan) {
  if (plan.parts().loss == nullptr) return {};
  for (const FoundFrozen& model : plan.parts().loss->frozen()) {
    if (!model.is_trained_model) continue;
    return "the '" + model.name + "' of --loss " + plan.config().loss +
           " is the model at its start, and of a folder that is the folder's model itself: the loss compares the model with "
           "itself. Give --checkpoint, which has the weights of the run's start, to compare with those";
  }
  return {};
}

NamedPrograms evaluation_of(const Plan& plan, int rank) {
  NamedPrograms programs;
  programs.push_back({evaluate_program, plan.evaluation(rank).value()});
  return programs;
}

EvaluationResult evaluate_in(const Plan& planned, JoinedJob& job, std::optional<Archive>& archive) {
  agree_on_options(job, planned.config());
  Session session(planned, job);
  const Plan& plan = session.plan();
  const RunConfig& config = plan.config();
  const std::shared_ptr<Dataset> dataset = open_dataset(plan.parts(), config, plan.host()).dataset;
  if (job.rank() == 0) {
    for (const std::string& warning : dataset->warnings()) log::warn(warning);
  }
  if (job.rank() == 0 && config.checkpoint.empty()) {
    if (const std::string note = reference_note(plan); !note.empty()) log::warn(note);
  }
  session.prepare(evaluation_of(plan, job.rank()));
  TrainingState& state = session.state();
  state.allocate(false);
  const TrainedWeights weights = load_trained_weights(state, config, plan.parts(), job);
  EvaluationResult result{
      .weights = weights.text, .step = weights.step, .dataset = dataset->describe(), .device = session.device().info().name};
  tell_bytes(job, "planned", state.planned_bytes());
  tell_bytes(job, "planned_host", state.planned_host_bytes());
  if (!config.archive.empty()) {
    archive.emplace(config.archive, config.overwrite);
    const PlannedMemory memory{largest_bytes(job, "planned", state.planned_bytes()),
                               largest_bytes(job, "planned_host", state.planned_host_bytes())};
    describe(*archive, job, session, memory);
  }
  Events events([&] {
    const Plan roomier = plan.with_room(plan.room() * room_growth);
    session.replace(roomier, evaluation_of(roomier, job.rank()), false);
  });
  const TrainerSettings settings{.micro_batch = config.batch,
                                 .sequence = config.sequence,
                                 .evaluate_every = 1,
                                 .evaluate_sequences = config.evaluate_sequences,
                                 .dataset = config.dataset};
  const EvaluationReport report = evaluate(state, *dataset, plan.layout(), job.rank(), settings, events);
  if (!std::isfinite(report.loss)) throw Error("the loss is not finite: the weights of " + result.weights + " are damaged");
  result.loss = report.loss;
  result.loss_unit = plan.parts().loss_unit();
  if (config.loss == next_token) result.perplexity = std::exp(report.loss);
  result.tokens = static_cast<std::int64_t>(report.targets);
  result.sequences = report.sequences;
  result.seconds = report.seconds;
  result.metrics = report.metrics;
  if (archive) {
    archive->define_evaluations(columns_of(own_metrics(state.evaluation()->program())), result.loss_unit);
    archive->evaluation({.step = result.step,
                         .loss = result.loss,
                         .sequences = result.sequences,
                         .seconds = result.seconds,
                         .time = now(),
                         .metrics = result.metrics});
    archive->text("/evaluation", evaluation_json(result));
    archive->finish("finished", "");
  }
  job.leave(job.timeout());
  return result;
}

}  // namespace

EvaluationResult run_evaluation(const Plan& plan, JoinedJob& job) {
  const LastResort last_resort(job, [](const std::string& /*reason*/) {});
  const RunConfig& config = plan.config();
  std::optional<Archive> archive;
  try {
    if (!config.archive.empty()) check_archive_path(config.archive, config.overwrite);
    return evaluate_in(plan, job, archive);
  } catch (const std::exception& error) {
    job.fail(error.what());
    try {
      if (archive) archive->finish("failed", error.what());
    } catch (const std::exception&) {
      // The archive itself failed: the first error is the one to report.
    }
    throw;
  }
}

}  // namespace consist
