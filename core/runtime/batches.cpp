#include "core/runtime/batches.h"

#include <algorithm>
#include <string>

#include "core/runtime/trainer.h"

namespace consist {

Batches::Batches(const Dataset& dataset, const Layout& layout, int rank, const TrainerSettings& settings)
    : dataset_(dataset),
      ranks_(layout.batch_ranks()),
      index_(layout.batch_index(rank)),
      micro_batch_(settings.micro_batch),
      sequence_(settings.sequence),
      accumulation_(settings.accumulation),
      tokens_(static_cast<std::size_t>(sequence_ + 1)),
      ids_(static_cast<std::size_t>(micro_batch_ * sequence_)),
      targets_(ids_.size()) {}

void Batches::split(std::size_t row) {
  const std::size_t length = tokens_.size() - 1;
  std::copy(tokens_.begin(), tokens_.end() - 1, ids_.begin() + static_cast<std::ptrdiff_t>(row * length));
  std::copy(tokens_.begin() + 1, tokens_.end(), targets_.begin() + static_cast<std::ptrdiff_t>(row * length));
}

template <typename Read>
void Batches::write(TrainingState& state, PreparedProgram& program, const std::string& suffix, std::int64_t first, Read read) {
  const auto bytes = static_cast<std::int64_t>(ids_.size() * sizeof(std::int32_t));
  const std::string ids = "ids" + suffix, targets = "targets" + suffix;
  const bool reads_ids = state.has_input(program, ids), reads_targets = state.has_input(program, targets);
  if (!reads_ids && !reads_targets) return;
  for (std::int64_t b = 0; b < micro_batch_; ++b) {
    read(first + b);
    split(static_cast<std::size_t>(b));
  }
  if (reads_ids) state.write_input(program, ids, ids_.data(), bytes);
  if (reads_targets) state.write_input(program, targets, targets_.data(), bytes);
}

void Batches::write_step(TrainingState& state, std::int64_t step) {
  for (int m = 0; m < accumulation_; ++m) {
    const std::int64_t first = ((step * accumulation_ + m) * ranks_ + index_) * micro_batch_;
    write(state, state.step(), "." + std::to_string(m), first, [&](std::int64_t s) { dataset_.read_train(s, tokens_); });
  }
}

void Batches::write_evaluation(TrainingState& state, std::int64_t round) {
  const std::int64_t first = (round * ranks_ + index_) * micro_batch_;
  write(state, *state.evaluation(), "", first, [&](std::int64_t s) { dataset_.read_eval(s, tokens_); });
}

std::int64_t Batches::evaluation_rounds(std::int64_t sequences) const {
  const std::int64_t available = dataset_.eval_sequences();
  const std::int64_t used = sequences > 0 ? std::min(sequences, available) : available;
  return used / (micro_batch_ * ranks_);
}

bool Batches::ends_epoch(std::int64_t step) const {
  const std::int64_t per_step = micro_batch_ * accumulation_ * ranks_, epoch = dataset_.train_sequences();
  return (step + 1) * per_step / epoch > step * per_step / epoch;
}

std::int64_t Batches::tokens_per_step() const noexcept {
  return micro_batch_ * accumulation_ * ranks_ * sequence_;
}

}  // namespace consist
