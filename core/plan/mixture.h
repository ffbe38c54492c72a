// Several datasets as one: which sequence comes from which part follows from its number alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "consist/dataset.h"
#include "consist/export.h"
#include "core/config/dataset_choices.h"

namespace consist {

/// In which order parts take turns. Of any first n sequences a part with share w has n·w, less or more by less than one
/// (Tijdeman's assignment, 1980), so of any n in a row by less than two; each `period()` sequences have exactly their weights.
/// Immutable.
class CONSIST_API TurnsOfParts {
 public:
  explicit TurnsOfParts(std::vector<std::int64_t> weights);

  struct Place {
    std::size_t part = 0;
    std::int64_t index = 0;  ///< within the part's own stream
  };
  /// Returns the part that sequence `index` >= 0 comes from, and its index there.
  Place operator()(std::int64_t index) const;
  /// Number of each part's sequences among the first `count`.
  std::vector<std::int64_t> of_first(std::int64_t count) const;
  /// Number of sequences of the whole until `part` has had `count` >= 1.
  std::int64_t until(std::size_t part, std::int64_t count) const;
  std::int64_t period() const noexcept { return static_cast<std::int64_t>(turns_.size()); }

 private:
  struct Turn {
    std::uint32_t part, index;
  };
  std::vector<std::int64_t> weights_;
  std::vector<Turn> turns_;                          // of one period
  std::vector<std::vector<std::uint32_t>> of_part_;  // by part: its turns, in order
};

/// Each part reads what it would read alone: its k-th sequence in the mixture is the k-th of its own stream. A pass ends once
/// every part has been read to its end; shorter ones begin anew meanwhile. The evaluation part takes turns in the same way and
/// ends before the first part that has no more. Fields are those of all parts; a part without `loss_mask` counts all targets, one
/// without `document_start` is one document per sequence.
class CONSIST_API Mixture final : public Dataset {
 public:
  struct Part {
    DatasetChoice choice;
    std::shared_ptr<Dataset> dataset;
  };
  /// `parts` are not open yet, or have been opened. Throws UsageError for a field that the others cannot do without.
  explicit Mixture(std::vector<Part> parts);

  void open(const DatasetRequest& request) override;
  std::int64_t train_sequences() const override;
  std::int64_t eval_sequences() const override { return eval_sequences_; }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override;
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override;
  std::vector<Field> fields() const override { return fields_; }
  void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const override;
  void read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const override;
  std::string describe() const override;
  std::string tokenizer() const override;
  std::vector<std::string> warnings() const override;
  std::string chat_template() const override;

  /// Lists what the first `sequences` of the stream consist of: "text 14 sequences, 7168 tokens (70.0%), jsonl ...".
  std::string text_of_first(std::int64_t sequences) const;

 private:
  std::vector<FieldValues> fill_others(std::size_t part, std::span<const FieldValues> values) const;

  std::vector<Part> parts_;
  TurnsOfParts turns_;
  std::vector<Field> fields_;
  std::vector<std::vector<Field>> fields_of_part_;
  std::int64_t sequence_ = 0, eval_sequences_ = 0;
};

}  // namespace consist
