// Datasets: a deterministic stream of token sequences with random access, so that any rank can read its share and a run can
// resume at any position.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

struct DatasetRequest {
  std::int64_t sequence_length = 0;  ///< tokens per sequence; reads return one more, so that targets are ids shifted by one
  std::int64_t vocabulary = 0;       ///< of the model. ERRORS: a token id outside of it is a DataError
  std::uint64_t seed = 0;            ///< fixes the order
};

/// Memory for one field of one sequence: sequence_length numbers, owned by the caller.
struct FieldValues {
  Field field;
  void* data = nullptr;  ///< std::int32_t or float, as field.dtype has it
};

/// The plugin kind "dataset". THREADS: after open() the read functions may be called from several threads at a time.
class CONSIST_API Dataset {
 public:
  virtual ~Dataset();
  /// Reads what is needed to serve sequences. Throws UsageError, DataError or SystemError naming the file.
  virtual void open(const DatasetRequest& request) = 0;
  /// Sequences in one pass over the training part (at least 1) and in the evaluation part (0: none).
  virtual std::int64_t train_sequences() const = 0;
  virtual std::int64_t eval_sequences() const = 0;
  /// Training sequence `index` >= 0 of the endless stream: index / train_sequences() is the epoch, whose order is fixed by seed
  /// and epoch. `tokens` has sequence_length + 1 elements.
  virtual void read_train(std::int64_t index, std::span<std::int32_t> tokens) const = 0;
  /// Evaluation sequence `index` < eval_sequences(), in a fixed order.
  virtual void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const = 0;
  /// The fields that it has for each token beside ids and targets; constant from construction on. A model that asks for a field
  /// (Builder::field) gets it as an input. Names that the models of this project ask for:
  ///   "loss_mask" i32: 0 if the token's target does not count; the loss is the mean over the targets of a step that count;
  ///   "document_start" i32: the position in the sequence, from 0, at which the token's document starts; attention sees nothing
  ///   before.
  /// The default has none.
  virtual std::vector<Field> fields() const;
  /// Write the fields that the model uses into `values`, for a sequence of read_train() or read_eval(). The defaults throw
  /// ProgramError.
  virtual void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const;
  virtual void read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const;
  /// One line for the log and the archive: files, documents, tokens.
  virtual std::string describe() const = 0;
  /// The tokenizer.json that the ids come from, which goes with an exported model; empty: not known. Constant from
  /// construction on.
  virtual std::string tokenizer() const;
  /// Likely mistakes in these data with this model, one text each; rank 0 prints them. REQUIRES: open() was called.
  virtual std::vector<std::string> warnings() const;
  /// The program in Jinja by which conversations become text (transformers' chat_template), which goes with an exported model and
  /// writes prompts; empty: none. Constant from construction on. Throws UsageError or DataError if it cannot be read.
  virtual std::string chat_template() const;
};

}  // namespace consist
