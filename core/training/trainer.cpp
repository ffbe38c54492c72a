#include "core/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "consist/error.h"
#include "core/experts/room_for_rows.h"
#include "core/plugin/plugin_faults.h"
#include "core/program/own_metrics.h"
#include "core/record/metrics.h"
#include "core/training/batches.h"
#include "core/training/step_reader.h"

namespace consist {

namespace {

using Clock = std::chrono::steady_clock;

/// Wishes that the ranks sum up in each step: to end it as a run that is complete, less, to stop it, and least, to pause it: of
/// 65,536 ranks no sum of one makes another.
constexpr float wish_to_end = 1 << 20, wish_to_stop = 1, wish_to_pause = 1.0F / (1 << 17);

float wish_of(TrainerEvents& events) {
  if (events.end_wanted()) return wish_to_end;
  return events.stop_requested() ? wish_to_stop : events.pause_requested() ? wish_to_pause : 0;
}

bool due(std::int64_t step, std::int64_t every) {
  return every > 0 && step % every == 0;
}

double rate_of(const TrainerSettings& settings, std::int64_t step) {
  if (settings.schedule == nullptr) return settings.learning_rate;
  return settings.schedule->rate(step - 1, settings.steps, settings.learning_rate);
}

/// Writes the scalars that the optimizers need in step `step`, counted from 1. `scalars` has room for those of each.
void write_scalars(TrainingState& state, const TrainerSettings& settings, std::int64_t step, double rate,
                   std::vector<float>& scalars) {
  for (const OptimizerUse& use : settings.optimizers) {
    const std::span<float> own = std::span(scalars).first(use.optimizer->scalar_count());
    use.optimizer->write_scalars(step, rate * use.rule.rate_factor, own);
    state.write_input(state.step(), use.scalars, own.data(), static_cast<std::int64_t>(own.size_bytes()));
  }
}

/// True if `program` ran as it should; false if rows exceeded the capacity of their experts and the programs now have more.
/// `before_the_end`: called if they cannot have more, upon which this throws.
template <typename BeforeTheEnd>
bool had_room(TrainingState& state, PreparedProgram& program, std::int64_t step, const char* what, TrainerEvents& events,
              const BeforeTheEnd& before_the_end) {
  const double missing = state.has_metric(program, "overflow") ? state.read_metric(program, "overflow") : 0;
  if (missing == 0) return true;
  const std::string text = overflow_text(program.program(), missing);  // of the program as it was
  std::string why;
  try {
    if (events.make_room(step, missing)) return false;
  } catch (const TooLarge& error) {
    why = std::string(". With a larger capacity ") + error.what();
  }
  before_the_end();
  throw Error(what + std::to_string(step) + " " + text + why);
}

/// Runs step `step`, again where rows had no room, and returns when it began the last time.
template <typename WriteInputs, typename BeforeTheEnd>
std::chrono::system_clock::time_point run_step(TrainingState& state, std::int64_t step, TrainerEvents& events,
                                               const WriteInputs& write_inputs, const BeforeTheEnd& before_the_end) {
  std::chrono::system_clock::time_point began;
  do {
    write_inputs();
    began = std::chrono::system_clock::now();
    events.begins(Activity::running, step, 0);
    state.step().executable().run();
    state.step().executable().wait();
    events.begins(Activity::recording, step, 0);
  } while (!had_room(state, state.step(), step, "in step ", events, before_the_end));
  return began;
}

/// Reads the number of choices that fell on each expert in the step that has run; none if the program has no routers.
std::vector<float> read_choices(TrainingState& state) {
  return state.has_metric(state.step(), "expert_choices") ? state.read_metrics(state.step(), "expert_choices")
                                                          : std::vector<float>();
}

std::vector<OwnMetricValue> read_own_metrics(TrainingState& state) {
  OwnMetricSums own(state.step().program());
  own.add([&](std::string_view name) { return state.read_metric(state.step(), name); });
  return own.values();
}

EvaluationReport evaluate(TrainingState& state, Batches& batches, std::int64_t step, TrainerEvents& events) {
  const Clock::time_point start = Clock::now();
  const std::int64_t rounds = batches.evaluation_rounds();
  state.restore_constants(evaluate_program);
  const bool masked = state.has_input(*state.evaluation(), "loss_count");
  double sum = 0, counted = 0;
  OwnMetricSums own(state.evaluation()->program());
  for (std::int64_t round = 0; round < rounds; ++round) {
    do {
      events.begins(Activity::evaluating, step, round);
      {
        const PluginsAwaited awaited;
        batches.write_evaluation(round);
      }
      state.evaluation()->executable().run();
      state.evaluation()->executable().wait();
      events.begins(Activity::recording, step, 0);
    } while (!had_room(state, *state.evaluation(), step, "in the evaluation after step ", events, [] {}));
    PreparedProgram& program = *state.evaluation();
    const double count = masked ? state.read_metric(program, "loss_count") : 1;
    sum += count * state.read_metric(program, "loss");
    counted += count;
    own.add([&](std::string_view name) { return state.read_metric(program, name); });
  }
  return {.step = step,
          .loss = !masked       ? batches.evaluation_mean(sum)
                  : counted > 0 ? sum / counted
                                : 0,
          .sequences = batches.evaluation_sequences(),
          .seconds = std::chrono::duration<double>(Clock::now() - start).count(),
          .targets = masked ? counted : static_cast<double>(batches.evaluation_sequences() * batches.sequence()),
          .metrics = own.values()};
}

}  // namespace

EvaluationReport evaluate(TrainingState& state, const Dataset& dataset, const Layout& layout, int rank,
                          const TrainerSettings& settings, TrainerEvents& events) {
  Batches batches(dataset, layout, rank, settings, state);
  return evaluate(state, batches, settings.first_step, events);
}

TrainerResult train(TrainingState& state, const Dataset& dataset, const Layout& layout, int rank, const TrainerSettings& settings,
                    TrainerEvents& events) {
  Batches batches(dataset, layout, rank, settings, state);
  StepReader reader(batches, settings.first_step, settings.steps);
  std::vector<float> scalars(settings.optimizers.most_scalars());
  for (std::int64_t step = settings.first_step + 1; step <= settings.steps; ++step) {
    const float wish = wish_of(events);
    const Clock::time_point asked = Clock::now();
    events.begins(Activity::reading, step, 0);
    const StepTokens& tokens = reader.take(step - 1);
    const Clock::time_point start = Clock::now();
    const double rate = rate_of(settings, step);
    const bool saves = settings.checkpoint_every > 0 || settings.checkpoint_each_epoch;
    const auto write_inputs = [&] {
      batches.write_step(tokens);
      write_scalars(state, settings, step, rate, scalars);
      state.write_input(state.step(), "stop_requests", &wish, sizeof wish);
    };
    // Saves what was trained before a step that cannot run.
    const auto save_before = [&] {
      if (saves && step - 1 > settings.first_step && !due(step - 1, settings.checkpoint_every)) events.checkpoint(step - 1);
      events.finish_saving();
    };
    const auto began = run_step(state, step, events, write_inputs, save_before);
    const std::chrono::duration<double> taken = Clock::now() - start;
    const std::vector<float> choices = read_choices(state);
    events.step_finished({.step = step,
                          .loss = state.read_metric(state.step(), "loss"),
                          .grad_norm = state.read_metric(state.step(), "grad_norm"),
                          .auxiliary_loss = state.has_metric(state.step(), "aux_loss")
                                                ? std::optional<double>(state.read_metric(state.step(), "aux_loss"))
                                                : std::nullopt,
                          .expert_choices = choices,
                          .targets = state.has_metric(state.step(), "loss_count")
                                         ? std::optional<double>(state.read_metric(state.step(), "loss_count"))
                                         : std::nullopt,
                          .metrics = read_own_metrics(state),
                          .expert_load = largest_load(choices, state.step().program().routers),
                          .learning_rate = rate,
                          .seconds = taken.count(),
                          .data_seconds = std::chrono::duration<double>(start - asked).count(),
                          .sequences = batches.sequences_per_step(),
                          .tokens = batches.tokens_per_step(),
                          .began = began});
    const float wishes = state.read_metric(state.step(), "stop");
    const bool last = wishes >= wish_to_end || step == settings.steps;
    const bool stop = wishes >= wish_to_stop && !(wishes >= wish_to_end);
    const bool pause = wishes > 0 && !stop && !last;
    if (state.evaluation() != nullptr && (due(step, settings.evaluate_every) || last)) {
      events.evaluated(evaluate(state, batches, step, events));
    }
    if (due(step, settings.sample_every)) events.sample(step);
    if (due(step, settings.checkpoint_every) || (settings.checkpoint_each_epoch && batches.ends_epoch(step - 1)) ||
        (saves && (stop || last))) {
      events.begins(Activity::saving, step, 0);
      events.checkpoint(step);
    } else if (due(step, settings.snapshot_every) && !last && !stop && !pause) {
      events.begins(Activity::saving, step, 0);
      events.snapshot(step);
    }
    if (stop) return TrainerResult::stopped;
    if (last) return TrainerResult::finished;
    if (!pause) continue;
    events.begins(Activity::saving, step, 0);
    events.snapshot_before_pause(step);
    return TrainerResult::paused;
  }
  return TrainerResult::finished;
}

}  // namespace consist
