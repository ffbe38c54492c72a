#include "core/training/batches.h"

#include <algorithm>
#include <string>

#include "consist/error.h"
#include "consist/token_order.h"
#include "core/base/rethrow.h"
#include "core/training/trainer.h"

namespace consist {
namespace {

constexpr std::int32_t no_target = -1;  // counts nothing in the loss

}  // namespace

Batches::Batches(const Dataset& dataset, const Layout& layout, int rank, const TrainerSettings& settings, TrainingState& state)
    : dataset_(dataset),
      state_(state),
      name_(settings.dataset),
      ranks_(layout.batch_ranks()),
      index_(layout.batch_index(rank)),
      micro_batch_(settings.micro_batch),
      sequence_(settings.sequence),
      evaluate_sequences_(settings.evaluate_sequences),
      accumulation_(settings.accumulation),
      step_tokens_(static_cast<std::size_t>(sequence_ + 1)),
      evaluation_tokens_(step_tokens_.size()),
      part_(static_cast<std::size_t>(micro_batch_ * sequence_)) {
  for (const Field& field : dataset.fields()) {
    if (std::find(state.step().program().fields.begin(), state.step().program().fields.end(), field) ==
        state.step().program().fields.end())
      throw UsageError("dataset '" + name_ + "' has a field '" + field.name + "' that it did not have when programs were made");
    bool used = state.evaluation() != nullptr && state_.has_input(*state.evaluation(), field.name);
    for (int m = 0; m < accumulation_; ++m) used = used || state_.has_input(state.step(), field.name + "." + std::to_string(m));
    if (used) fields_.push_back(field);
  }
  for (const Field& field : fields_) step_values_.push_back({field, nullptr});
  evaluation_values_ = step_values_;
  for (int m = 0; m < accumulation_; ++m) reads_.push_back(reads_tokens(state_.step(), "." + std::to_string(m)));
}

bool Batches::reads_tokens(PreparedProgram& program, const std::string& suffix) {
  return state_.has_input(program, "ids" + suffix) || state_.has_input(program, "targets" + suffix) ||
         std::any_of(fields_.begin(), fields_.end(), [&](const Field& field) { return state_.has_input(program, field.name + suffix); });
}

void Batches::split(std::span<const std::int32_t> tokens, std::int32_t* ids, std::int32_t* targets) {
  std::copy(tokens.begin(), tokens.end() - 1, ids);
  std::copy(tokens.begin() + 1, tokens.end(), targets);
}

StepTokens Batches::room() const {
  const auto tokens = static_cast<std::size_t>(accumulation_ * micro_batch_ * sequence_);
  return {std::vector<std::int32_t>(tokens), std::vector<std::int32_t>(tokens),
          std::vector<std::vector<std::int32_t>>(fields_.size(), std::vector<std::int32_t>(tokens))};
}

const std::vector<FieldValues>& Batches::places(StepTokens& tokens, std::vector<FieldValues>& values, std::int64_t at) const {
  for (std::size_t f = 0; f < fields_.size(); ++f) values[f].data = tokens.fields[f].data() + at;
  return values;
}

void Batches::read_step(std::int64_t step, StepTokens& tokens, const std::atomic<bool>& stop) {
  for (int m = 0; m < accumulation_; ++m) {
    if (!reads_[static_cast<std::size_t>(m)]) continue;
    const std::int64_t first = ((step * accumulation_ + m) * ranks_ + index_) * micro_batch_;
    for (std::int64_t row = 0; row < micro_batch_; ++row) {
      if (stop) return;
      const std::int64_t at = (m * micro_batch_ + row) * sequence_;
      try {
        dataset_.read_train(first + row, step_tokens_);
        if (!fields_.empty()) dataset_.read_train_fields(first + row, places(tokens, step_values_, at));
      } catch (...) {
        rethrow_after("dataset '" + name_ + "', reading sequence " + std::to_string(first + row) + " for step " +
                      std::to_string(step + 1) + ": ");
      }
      split(step_tokens_, tokens.ids.data() + at, tokens.targets.data() + at);
    }
  }
}

std::span<const std::int32_t> Batches::of_part(const std::int32_t* tokens, const LocalPart& part, int zigzag) {
  const std::int64_t length = part.shape[1], first = part.origin[1];
  if (length == sequence_ && zigzag == 0) return {tokens, static_cast<std::size_t>(micro_batch_ * sequence_)};
  for (std::int64_t row = 0; row < micro_batch_; ++row) {
    for (std::int64_t i = 0; i < length; ++i)
      part_[static_cast<std::size_t>(row * length + i)] = tokens[row * sequence_ + position_of(first + i, sequence_, zigzag)];
  }
  return std::span(part_).first(static_cast<std::size_t>(micro_batch_ * length));
}

void Batches::write(PreparedProgram& program, const std::string& suffix, const StepTokens& tokens, std::int64_t at) {
  const auto write = [&](const std::string& name, const std::vector<std::int32_t>& values) {
    if (!state_.has_input(program, name + suffix)) return;
    const LocalPart part = state_.input_part(program, name + suffix);
    const std::span<const std::int32_t> tokens_here = of_part(values.data() + at, part, program.program().zigzag);
    state_.write_input(program, name + suffix, tokens_here.data(), static_cast<std::int64_t>(tokens_here.size_bytes()));
  };
  write("ids", tokens.ids);
  write("targets", tokens.targets);
  for (std::size_t f = 0; f < fields_.size(); ++f) write(fields_[f].name, tokens.fields[f]);
}

void Batches::write_step(const StepTokens& tokens) {
  for (int m = 0; m < accumulation_; ++m) {
    if (!reads_[static_cast<std::size_t>(m)]) continue;
    write(state_.step(), "." + std::to_string(m), tokens, m * micro_batch_ * sequence_);
  }
}

void Batches::write_evaluation(std::int64_t round) {
  PreparedProgram& program = *state_.evaluation();
  if (!reads_tokens(program, "")) return;
  round_.ids.resize(static_cast<std::size_t>(micro_batch_ * sequence_));
  round_.targets.resize(round_.ids.size());
  round_.fields.resize(fields_.size());
  for (std::vector<std::int32_t>& values : round_.fields) values.assign(round_.ids.size(), 0);
  const std::int64_t first = (round * ranks_ + index_) * micro_batch_, end = evaluation_sequences();
  for (std::int64_t row = 0; row < micro_batch_; ++row) {
    std::int32_t* const ids = round_.ids.data() + row * sequence_;
    std::int32_t* const targets = round_.targets.data() + row * sequence_;
    if (first + row >= end) {
      std::fill_n(ids, sequence_, 0);
      std::fill_n(targets, sequence_, no_target);
      continue;
    }
    try {
      dataset_.read_eval(first + row, evaluation_tokens_);
      if (!fields_.empty()) dataset_.read_eval_fields(first + row, places(round_, evaluation_values_, row * sequence_));
    } catch (...) {
      rethrow_after("dataset '" + name_ + "', reading evaluation sequence " + std::to_string(first + row) + ": ");
    }
    split(evaluation_tokens_, ids, targets);
  }
  write(program, "", round_, 0);
}

std::int64_t Batches::evaluation_sequences() const {
  const std::int64_t available = dataset_.eval_sequences();
  return evaluate_sequences_ > 0 ? std::min(evaluate_sequences_, available) : available;
}

std::int64_t Batches::evaluation_rounds() const {
  const std::int64_t per_round = micro_batch_ * ranks_;
  return (evaluation_sequences() + per_round - 1) / per_round;
}

double Batches::evaluation_mean(double sum_of_rounds) const {
  return sum_of_rounds * static_cast<double>(micro_batch_ * ranks_) / static_cast<double>(evaluation_sequences());
}

bool Batches::ends_epoch(std::int64_t step) const {
  const std::int64_t per_step = sequences_per_step(), epoch = dataset_.train_sequences();
  return (step + 1) * per_step / epoch > step * per_step / epoch;
}

}  // namespace consist
