#include "datasets/packing/packed_stream.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "consist/error.h"
#include "datasets/packing/permutation.h"

namespace consist::packing {
namespace {

/// The target of the last id is needed as well, hence one token more than the windows have ids.
std::int64_t windows(const TokenSource& source, std::int64_t sequence) {
  return source.size() < 1 ? 0 : (source.size() - 1) / sequence;
}

void check(const DatasetRequest& request) {
  if (request.sequence_length < 1)
    throw UsageError("the sequence length is " + std::to_string(request.sequence_length) + "; it must be at least 1");
}

[[noreturn]] void too_small(const std::string& what, std::int64_t tokens, std::int64_t sequences, const DatasetRequest& request) {
  throw DataError(what + " has " + std::to_string(tokens) + " tokens; " + std::to_string(sequences) +
                  (sequences == 1 ? " sequence of " : " sequences of ") + std::to_string(request.sequence_length) + " needs " +
                  std::to_string(sequences * request.sequence_length + 1) + ": give more text or a shorter --sequence");
}

}  // namespace

void TokensInMemory::read(std::int64_t first, std::span<std::int32_t> tokens) const {
  std::copy_n(tokens_.begin() + first, tokens.size(), tokens.begin());
}

PackedStream::PackedStream(std::shared_ptr<const TokenSource> tokens, const DatasetRequest& request, double eval_fraction,
                           const std::string& what)
    : train_(tokens), eval_(std::move(tokens)), request_(request) {
  check(request);
  const std::int64_t all = windows(*train_, request.sequence_length);
  if (eval_fraction > 0) eval_windows_ = std::max<std::int64_t>(1, std::llround(eval_fraction * static_cast<double>(all)));
  train_windows_ = first_eval_ = all - eval_windows_;
  if (train_windows_ < 1) too_small(what, train_->size(), eval_windows_ + 1, request);
}

PackedStream::PackedStream(std::shared_ptr<const TokenSource> train, std::shared_ptr<const TokenSource> eval,
                           const DatasetRequest& request, const std::string& what, const std::string& eval_what)
    : train_(std::move(train)), eval_(std::move(eval)), request_(request) {
  check(request);
  train_windows_ = windows(*train_, request.sequence_length);
  eval_windows_ = windows(*eval_, request.sequence_length);
  if (train_windows_ < 1) too_small(what, train_->size(), 1, request);
  if (eval_windows_ < 1) too_small(eval_what, eval_->size(), 1, request);
}

std::int64_t PackedStream::train_position(std::int64_t index) const {
  if (index < 0) throw Error("training sequence " + std::to_string(index) + " was asked for");
  return place_in_stream(index, train_windows_, request_.seed) * request_.sequence_length;
}

std::int64_t PackedStream::eval_position(std::int64_t index) const {
  if (index < 0 || index >= eval_windows_) {
    throw Error("evaluation sequence " + std::to_string(index) + " of " + std::to_string(eval_windows_) + " was asked for");
  }
  return (first_eval_ + index) * request_.sequence_length;
}

void PackedStream::read_train(std::int64_t index, std::span<std::int32_t> tokens) const {
  read(*train_, train_position(index), tokens);
}

void PackedStream::read_eval(std::int64_t index, std::span<std::int32_t> tokens) const {
  read(*eval_, eval_position(index), tokens);
}

void PackedStream::read(const TokenSource& source, std::int64_t first, std::span<std::int32_t> tokens) const {
  if (static_cast<std::int64_t>(tokens.size()) != request_.sequence_length + 1) {
    throw Error("room for " + std::to_string(tokens.size()) + " tokens was given; a sequence has " +
                std::to_string(request_.sequence_length + 1));
  }
  source.read(first, tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= request_.vocabulary) {
      throw DataError("token " + std::to_string(first + static_cast<std::int64_t>(i)) + " of the dataset is " +
                      std::to_string(tokens[i]) + ", but the model's vocabulary has " + std::to_string(request_.vocabulary) +
                      ": the tokens were made for another model, or the file is damaged");
    }
  }
}

}  // namespace consist::packing
