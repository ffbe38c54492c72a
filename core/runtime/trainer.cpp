#include "core/runtime/trainer.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "consist/error.h"
#include "core/passes/room_for_rows.h"
#include "core/runtime/batches.h"
#include "core/runtime/step_reader.h"

namespace consist {

TrainerEvents::~TrainerEvents() = default;

namespace {

using Clock = std::chrono::steady_clock;

bool due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

double rate_of(const TrainerSettings& settings, std::int64_t step) {
  if (settings.schedule == nullptr) return settings.learning_rate;
  return settings.schedule->rate(step - 1, settings.steps, settings.learning_rate);
}

/// What the optimizer needs of step `step`, counted from 1.
void write_scalars(TrainingState& state, const TrainerSettings& settings, std::int64_t step, double rate,
                   std::vector<float>& scalars) {
  settings.optimizer->write_scalars(step, rate, scalars);
  state.write_input(state.step(), "optimizer_scalars", scalars.data(), static_cast<std::int64_t>(scalars.size() * sizeof(float)));
}

/// Throws if rows of tokens had no room at their experts in what `program` just ran.
void check_room(TrainingState& state, PreparedProgram& program, const std::string& what, const std::string& hint) {
  const double missing = state.has_metric(program, "overflow") ? state.read_metric(program, "overflow") : 0;
  if (missing == 0) return;
  throw Error("in " + what + " " + overflow_text(program.program(), missing) + "." + hint);
}

EvaluationReport evaluate(TrainingState& state, Batches& batches, std::int64_t step, TrainerEvents& events) {
  const Clock::time_point start = Clock::now();
  PreparedProgram& program = *state.evaluation();
  const std::int64_t rounds = batches.evaluation_rounds();
  const bool masked = state.has_input(program, "loss_count");
  double sum = 0, counted = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    events.begins(Activity::evaluating, step, round);
    batches.write_evaluation(round);
    program.executable().run();
    program.executable().wait();
    check_room(state, program, "the evaluation after step " + std::to_string(step), "");
    const double count = masked ? state.read_metric(program, "loss_count") : 1;
    sum += count * state.read_metric(program, "loss");
    counted += count;
  }
  return {.step = step,
          .loss = !masked       ? batches.evaluation_mean(sum)
                  : counted > 0 ? sum / counted
                                : 0,
          .sequences = batches.evaluation_sequences(),
          .seconds = std::chrono::duration<double>(Clock::now() - start).count()};
}

}  // namespace

TrainerResult train(TrainingState& state, const Dataset& dataset, const Layout& layout, int rank, const TrainerSettings& settings,
                    TrainerEvents& events) {
  Batches batches(dataset, layout, rank, settings, state);
  StepReader reader(batches, settings.first_step, settings.steps);
  Executable& step_program = state.step().executable();
  std::vector<float> scalars(settings.optimizer->scalar_count());
  for (std::int64_t step = settings.first_step + 1; step <= settings.steps; ++step) {
    const float stop_request = events.stop_requested() ? 1.0F : 0.0F;
    const Clock::time_point asked = Clock::now();
    events.begins(Activity::reading, step, 0);
    const StepTokens& tokens = reader.take(step - 1);
    const Clock::time_point start = Clock::now();
    batches.write_step(tokens);
    const double rate = rate_of(settings, step);
    write_scalars(state, settings, step, rate, scalars);
    state.write_input(state.step(), "stop_requests", &stop_request, sizeof stop_request);
    const auto began = std::chrono::system_clock::now();
    events.begins(Activity::running, step, 0);
    step_program.run();
    step_program.wait();
    events.begins(Activity::recording, step, 0);
    const std::chrono::duration<double> taken = Clock::now() - start;
    const bool saves = settings.checkpoint_every > 0 || settings.checkpoint_each_epoch;
    if (state.has_metric(state.step(), "overflow") && state.read_metric(state.step(), "overflow") != 0) {
      // The step has changed nothing: what was trained before it is not lost.
      const bool saved = step - 1 == settings.first_step || due(step - 1, settings.checkpoint_every);
      if (saves && !saved) events.checkpoint(step - 1);
      check_room(state, state.step(), "step " + std::to_string(step),
                 saves && step > 1 ? " --resume goes on with step " + std::to_string(step) + "." : "");
    }

    events.step_finished({.step = step,
                          .loss = state.read_metric(state.step(), "loss"),
                          .grad_norm = state.read_metric(state.step(), "grad_norm"),
                          .auxiliary_loss = state.has_metric(state.step(), "aux_loss")
                                                ? std::optional<double>(state.read_metric(state.step(), "aux_loss"))
                                                : std::nullopt,
                          .learning_rate = rate,
                          .seconds = taken.count(),
                          .data_seconds = std::chrono::duration<double>(start - asked).count(),
                          .sequences = batches.sequences_per_step(),
                          .tokens = batches.tokens_per_step(),
                          .began = began});
    const bool stop = state.read_metric(state.step(), "stop") > 0;
    if (state.evaluation() != nullptr && (due(step, settings.evaluate_every) || step == settings.steps)) {
      events.evaluated(evaluate(state, batches, step, events));
    }
    if (due(step, settings.checkpoint_every) || (settings.checkpoint_each_epoch && batches.ends_epoch(step - 1)) ||
        (saves && (stop || step == settings.steps))) {
      events.begins(Activity::saving, step, 0);
      events.checkpoint(step);
    }
    if (stop) return TrainerResult::stopped;
  }
  return TrainerResult::finished;
}

}  // namespace consist
