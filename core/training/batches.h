// Chooses the sequences that a rank reads in each micro-batch, and copies them into the program's inputs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "consist/dataset.h"
#include "consist/export.h"
#include "core/compile/compile.h"
#include "core/state/training_state.h"

namespace consist {

struct TrainerSettings;

/// Tokens that a rank reads for one step: ids, targets and the dataset's fields of all its micro-batches, [accumulation,
/// micro_batch, sequence] each.
struct StepTokens {
  std::vector<std::int32_t> ids, targets;
  std::vector<std::vector<std::int32_t>> fields;  ///< in the order of Batches::fields(); those of f32 bit by bit
};

/// Step s consumes the sequences [s·G, (s+1)·G) of the dataset's stream, G being the global batch, whatever the layout;
/// micro-batch m of batch rank r takes the r-th part of the m-th part. Ranks that share sequences each read them whole and write
/// their part, in the program's order (Program::zigzag). The position is the step alone, so a resumed run reads on
/// where it stopped. Steps are counted from 0 here.
///
/// An evaluation reads the sequences [0, evaluation_sequences()) of the evaluation part, each once over all ranks, whatever the
/// layout. Where they do not fill the last round, its other rows have targets of -1, which count nothing in the loss
/// (docs/ops.md).
///
/// Exceptions of the dataset are thrown on, with their type if it is one of Consist's. The dataset's name and what was read are
/// put before their text.
class CONSIST_API Batches {
 public:
  /// The arguments must outlive it.
  Batches(const Dataset& dataset, const Layout& layout, int rank, const TrainerSettings& settings, TrainingState& state);

  /// Reads the tokens of step `step` into `tokens`, which is as large as room() gives; nothing where this rank's program has no
  /// such inputs (a stage in the middle of a pipeline). Ends early, without meaning, once `stop` is set. Allocates nothing.
  /// Callable from one thread beside the trainer's.
  void read_step(std::int64_t step, StepTokens& tokens, const std::atomic<bool>& stop);
  StepTokens room() const;
  /// Writes "ids.<m>", "targets.<m>" and "<field>.<m>".
  void write_step(const StepTokens& tokens);

  /// Reads and writes round `round` of an evaluation. In the trainer's thread.
  void write_evaluation(std::int64_t round);
  /// Sequences that an evaluation reads over all ranks: `evaluate_sequences` of the settings, or as many as there are.
  std::int64_t evaluation_sequences() const;
  std::int64_t evaluation_rounds() const;
  /// Mean loss over evaluation_sequences(), given the sum of the rounds' losses, each of which is a mean over whole rounds. (With a
  /// loss mask a round's loss is the mean over what it counts, and the trainer weighs the rounds.)
  double evaluation_mean(double sum_of_rounds) const;

  std::int64_t sequence() const noexcept { return sequence_; }  ///< tokens of a sequence
  std::int64_t sequences_per_step() const noexcept { return micro_batch_ * accumulation_ * ranks_; }
  std::int64_t tokens_per_step() const noexcept { return sequences_per_step() * sequence_; }
  /// True if step `step` reads the last sequence of a pass through the dataset.
  bool ends_epoch(std::int64_t step) const;

 private:
  /// Splits sequence_length + 1 tokens into ids and the targets one position later.
  static void split(std::span<const std::int32_t> tokens, std::int32_t* ids, std::int32_t* targets);
  /// Returns the tokens of the micro-batch `tokens`, [micro_batch, sequence] in order of position, that `part` of an input holds;
  /// valid until the next call.
  std::span<const std::int32_t> of_part(const std::int32_t* tokens, const LocalPart& part, int zigzag);
  /// Writes the micro-batch that begins at element `at` to "ids<suffix>", "targets<suffix>" and "<field><suffix>", as far as the
  /// program has them.
  void write(PreparedProgram& program, const std::string& suffix, const StepTokens& tokens, std::int64_t at);
  /// Where the fields of the sequence that begins at element `at` go.
  const std::vector<FieldValues>& places(StepTokens& tokens, std::vector<FieldValues>& values, std::int64_t at) const;
  bool reads_tokens(PreparedProgram& program, const std::string& suffix);

  const Dataset& dataset_;
  TrainingState& state_;
  std::string name_;  // of the dataset's plugin
  std::int64_t ranks_, index_, micro_batch_, sequence_, evaluate_sequences_;
  int accumulation_;
  std::vector<Field> fields_;                                  // that programs have as inputs
  std::vector<FieldValues> step_values_, evaluation_values_;   // room for one sequence's, by the thread that reads
  std::vector<bool> reads_;                                    // by micro-batch
  std::vector<std::int32_t> step_tokens_, evaluation_tokens_;  // of one sequence, by the thread that reads
  StepTokens round_;                                           // of an evaluation: one micro-batch
  std::vector<std::int32_t> part_;                             // of a micro-batch: what of_part() gives
};

}  // namespace consist
