// Which sequences a rank reads in which micro-batch, and their way into the program's inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/dataset.h"
#include "core/passes/compile.h"
#include "core/runtime/training_state.h"

namespace consist {

struct TrainerSettings;

/// Step s consumes the sequences [s·G, (s+1)·G) of the dataset's stream, G being the global batch, whatever the layout;
/// micro-batch m of batch rank r takes the r-th part of the m-th part. The position is the step alone, so a resumed run reads on
/// where it stopped.
class Batches {
 public:
  Batches(const Dataset& dataset, const Layout& layout, int rank, const TrainerSettings& settings);

  /// Writes "ids.<m>" and "targets.<m>" of step `step` (counted from 0).
  void write_step(TrainingState& state, std::int64_t step);
  void write_evaluation(TrainingState& state, std::int64_t round);

  /// How many rounds of micro_batch sequences per batch rank the evaluation part gives, using at most `sequences` (0: all).
  std::int64_t evaluation_rounds(std::int64_t sequences) const;
  std::int64_t tokens_per_step() const noexcept;
  /// Whether step `step` (counted from 0) reads the last sequence of a pass through the dataset.
  bool ends_epoch(std::int64_t step) const;

 private:
  /// Splits sequence_length + 1 tokens per sequence into ids and the targets one position later.
  void split(std::size_t row);
  /// The sequences from `first` on into the inputs "ids<suffix>" and "targets<suffix>", as far as the program has them.
  template <typename Read>
  void write(TrainingState& state, PreparedProgram& program, const std::string& suffix, std::int64_t first, Read read);

  const Dataset& dataset_;
  std::int64_t ranks_, index_, micro_batch_, sequence_;
  int accumulation_;
  std::vector<std::int32_t> tokens_, ids_, targets_;
};

}  // namespace consist
