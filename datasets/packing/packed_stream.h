// A stream of tokens cut into sequences of equal length: what the datasets `text` and `tokens` have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "consist/dataset.h"

namespace consist::packing {

/// Tokens by position. read() may be called from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t size() const noexcept = 0;
  /// Tokens [first, first + tokens.size()), which exist. Throws DataError or SystemError naming the file.
  virtual void read(std::int64_t first, std::span<std::int32_t> tokens) const = 0;
};

/// Tokens held in memory.
class TokensInMemory final : public TokenSource {
 public:
  explicit TokensInMemory(std::vector<std::int32_t> tokens) : tokens_(std::move(tokens)) {}
  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(tokens_.size()); }
  void read(std::int64_t first, std::span<std::int32_t> tokens) const override;

 private:
  std::vector<std::int32_t> tokens_;
};

/// Documents stand one behind the other; window w holds the tokens [w·L, w·L + L], so that neighbours share one token, which is
/// the last target of the one and the first id of the other. Each epoch takes every training window once, in an order that
/// follows from seed and epoch alone: the position in the stream is all that a resumed run needs. Immutable; may be used from
/// several threads.
class PackedStream {
 public:
  /// The last `eval_fraction` in [0, 1) of the windows (rounded to the nearest, but at least one if it is positive) is the
  /// evaluation part. Throws DataError, saying what `what` has and needs, if there is no window left for training.
  PackedStream(std::shared_ptr<const TokenSource> tokens, const DatasetRequest& request, double eval_fraction,
               const std::string& what);
  /// Evaluation windows from tokens of their own.
  PackedStream(std::shared_ptr<const TokenSource> train, std::shared_ptr<const TokenSource> eval, const DatasetRequest& request,
               const std::string& what, const std::string& eval_what);

  std::int64_t train_sequences() const noexcept { return train_windows_; }
  std::int64_t eval_sequences() const noexcept { return eval_windows_; }
  /// As Dataset's functions of the same names. Throws DataError for a token that is not in the vocabulary.
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const;
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const;
  /// The number of the first token that they read, in the source that they read from.
  std::int64_t train_position(std::int64_t index) const;
  std::int64_t eval_position(std::int64_t index) const;

 private:
  void read(const TokenSource& source, std::int64_t first, std::span<std::int32_t> tokens) const;

  std::shared_ptr<const TokenSource> train_, eval_;
  DatasetRequest request_;
  std::int64_t train_windows_ = 0, eval_windows_ = 0, first_eval_ = 0;
};

}  // namespace consist::packing
