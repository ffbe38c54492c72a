#include "core/runtime/batches.h"

#include <algorithm>
#include <string>

#include "consist/error.h"
#include "core/runtime/trainer.h"

namespace consist {
namespace {

constexpr std::int32_t no_target = -1;  // counts nothing in the loss

/// Throws what is being handled again, with what was done before its text.
[[noreturn]] void rethrow_after(const std::string& done) {
  try {
    throw;
  } catch (const DataError& error) {
    throw DataError(done + error.what());
  } catch (const SystemError& error) {
    throw SystemError(done + error.what());
  } catch (const UsageError& error) {
    throw UsageError(done + error.what());
  } catch (const std::exception& error) {
    throw Error(done + error.what());
  } catch (...) {
    throw Error(done + "it threw something that is no std::exception");
  }
}

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
      evaluation_tokens_(step_tokens_.size()) {
  for (int m = 0; m < accumulation_; ++m) reads_.push_back(reads_tokens(state_.step(), "." + std::to_string(m)));
}

bool Batches::reads_tokens(PreparedProgram& program, const std::string& suffix) {
  return state_.has_input(program, "ids" + suffix) || state_.has_input(program, "targets" + suffix);
}

void Batches::split(std::span<const std::int32_t> tokens, std::int32_t* ids, std::int32_t* targets) {
  std::copy(tokens.begin(), tokens.end() - 1, ids);
  std::copy(tokens.begin() + 1, tokens.end(), targets);
}

StepTokens Batches::room() const {
  const auto tokens = static_cast<std::size_t>(accumulation_ * micro_batch_ * sequence_);
  return {std::vector<std::int32_t>(tokens), std::vector<std::int32_t>(tokens)};
}

void Batches::read_step(std::int64_t step, StepTokens& tokens, const std::atomic<bool>& stop) {
  for (int m = 0; m < accumulation_; ++m) {
    if (!reads_[static_cast<std::size_t>(m)]) continue;
    const std::int64_t first = ((step * accumulation_ + m) * ranks_ + index_) * micro_batch_;
    for (std::int64_t row = 0; row < micro_batch_; ++row) {
      if (stop) return;
      try {
        dataset_.read_train(first + row, step_tokens_);
      } catch (...) {
        rethrow_after("dataset '" + name_ + "', reading sequence " + std::to_string(first + row) + " for step " +
                      std::to_string(step + 1) + ": ");
      }
      const std::int64_t at = (m * micro_batch_ + row) * sequence_;
      split(step_tokens_, tokens.ids.data() + at, tokens.targets.data() + at);
    }
  }
}

void Batches::write(PreparedProgram& program, const std::string& suffix, const std::int32_t* ids, const std::int32_t* targets) {
  const std::int64_t bytes = micro_batch_ * sequence_ * static_cast<std::int64_t>(sizeof(std::int32_t));
  const std::string ids_name = "ids" + suffix, targets_name = "targets" + suffix;
  if (state_.has_input(program, ids_name)) state_.write_input(program, ids_name, ids, bytes);
  if (state_.has_input(program, targets_name)) state_.write_input(program, targets_name, targets, bytes);
}

void Batches::write_step(const StepTokens& tokens) {
  for (int m = 0; m < accumulation_; ++m) {
    if (!reads_[static_cast<std::size_t>(m)]) continue;
    const std::int64_t at = m * micro_batch_ * sequence_;
    write(state_.step(), "." + std::to_string(m), tokens.ids.data() + at, tokens.targets.data() + at);
  }
}

void Batches::write_evaluation(std::int64_t round) {
  PreparedProgram& program = *state_.evaluation();
  if (!reads_tokens(program, "")) return;
  round_.ids.resize(static_cast<std::size_t>(micro_batch_ * sequence_));
  round_.targets.resize(round_.ids.size());
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
    } catch (...) {
      rethrow_after("dataset '" + name_ + "', reading evaluation sequence " + std::to_string(first + row) + ": ");
    }
    split(evaluation_tokens_, ids, targets);
  }
  write(program, "", round_.ids.data(), round_.targets.data());
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
