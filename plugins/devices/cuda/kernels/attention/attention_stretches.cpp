// attention and attention_grad where the queries are a part of the sequence: in zigzag order a rank has two stretches of
// positions. Keys and values are brought into order of position in scratch; then each stretch is causal attention to the keys up
// to its own end, by the kernels that whole sequences have.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/token_order.h"
#include "plugins/devices/cuda/kernels/attention/attention.h"
#include "plugins/devices/cuda/kernels/attention/attention_rows.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/scratch.h"
#include "plugins/devices/cuda/kernels/moe/token_rows.h"

namespace consist::cuda {
namespace {

/// Queries whose positions are consecutive.
struct Stretch {
  std::int64_t first_row, count, keys;  ///< keys: that the last of them sees
};

std::vector<Stretch> stretches_of(std::int64_t first, std::int64_t queries, std::int64_t length, std::int64_t zigzag) {
  std::vector<Stretch> stretches;
  for (std::int64_t row = 0; row < queries; ++row) {
    const std::int64_t position = position_of(first + row, length, zigzag);
    if (stretches.empty() || stretches.back().keys != position) stretches.push_back({row, 0, position});
    ++stretches.back().count;
    ++stretches.back().keys;
  }
  return stretches;
}

class AttentionOfStretches : public Kernel {
 public:
  std::int64_t workspace_bytes() const override { return scratch_.bytes(); }

 protected:
  /// Queries are input `q` of the request, keys and values those behind them.
  AttentionOfStretches(const KernelRequest& r, std::size_t q, Direction direction, const KernelSettings& s)
      : type_(r.inputs[q].dtype), size_(static_cast<std::int64_t>(size_of(type_))), dim_(r.attributes.integer("head_dim")) {
    require_values_as_keys(r);
    const Buffer &queries = r.inputs[q], &keys = r.inputs[q + 1], &values = r.inputs[q + 2];
    queries_ = queries.shape[1];
    heads_ = queries.shape[2] / dim_;
    read_ = {queries.leading_dimension(), keys.leading_dimension(), values.leading_dimension()};
    documents_ = !kernels::at(r.inputs, direction == Direction::forward ? 3 : 6).absent();
    const std::int64_t zigzag = r.attributes.integer_or("zigzag", 0), first = r.input_origins.empty() ? 0 : r.input_origins[q][1];
    stretches_ = stretches_of(first, queries_, keys.shape[1], zigzag);
    if (stretches_.size() > most_summands) {
      throw UsageError("attention of queries of " + std::to_string(stretches_.size()) +
                       " stretches of positions: the cuda device takes at most " + std::to_string(most_summands) +
                       ", as each rank of --strategy cp has; use --device cpu");
    }
    rows_ = {queries.shape[0], keys.shape[1], 0, keys.shape[2], zigzag};
    std::int64_t longest = 0;
    for (const Stretch& stretch : stretches_) {
      rows_.kept = std::max(rows_.kept, stretch.keys);
      longest = std::max(longest, stretch.count);
    }
    const std::int64_t key_bytes = rows_.batch * rows_.kept * rows_.columns * size_;
    keys_at_ = scratch_.reserve(key_bytes);
    values_at_ = scratch_.reserve(key_bytes);
    lse_at_ = scratch_.reserve(rows_.batch * heads_ * longest * 4);
    if (direction == Direction::backward) {
      for (std::size_t n = 0; n < stretches_.size(); ++n) {
        dkeys_at_.push_back(scratch_.reserve(key_bytes));
        dvalues_at_.push_back(scratch_.reserve(key_bytes));
      }
    }
    std::int64_t inner = 0;
    for (const Stretch& stretch : stretches_) {
      AttentionShape shape{rows_.batch,
                           stretch.count,
                           stretch.keys,
                           heads_,
                           rows_.columns / dim_,
                           dim_,
                           dim_,
                           {read_.q, rows_.columns, rows_.columns},
                           attention_scores(r.attributes)};
      if (direction == Direction::backward) shape.written = {r.outputs[0].leading_dimension(), rows_.columns, rows_.columns};
      shape.query_tokens = queries_;
      shape.key_tokens = rows_.kept;
      const std::int64_t window = r.attributes.integer_or("window", 0);
      shape.window = window < stretch.keys ? window : 0;
      shape.documents = documents_;
      kernels_.push_back(make_attention_of(type_, shape, direction, s));
      if (!kernels_.back()) throw ProgramError("attention of " + std::string(name_of(type_)) + " has no kernel");
      inner = std::max(inner, kernels_.back()->workspace_bytes());
    }
    inner_at_ = scratch_.reserve(inner);
  }

  /// Rows of a stretch in a tensor of the queries whose tokens lie `stride` elements apart.
  Buffer rows(const Buffer& whole, const Stretch& stretch, std::int64_t stride) const {
    return tokens_from(whole, stretch.first_row, stride, size_);
  }
  std::int64_t o_stride() const { return heads_ * dim_; }
  /// Starts of documents of a stretch, where there are any.
  Buffer starts(std::span<const Buffer> in, std::size_t index, const Stretch& stretch) const {
    return starts_from(in, index, documents_, stretch.first_row);
  }

  void bring_keys(const Buffer& keys, const Buffer& values, void* workspace, cudaStream_t stream) const {
    rows_by_position(type_, rows_, keys.data, read_.k, part_of(workspace, keys_at_), stream);
    rows_by_position(type_, rows_, values.data, read_.v, part_of(workspace, values_at_), stream);
  }
  /// The columns of lse [batch, heads, queries] that belong to a stretch.
  LseTokens lse_of(const Stretch& stretch) const { return {rows_.batch * heads_, queries_, stretch.first_row, stretch.count}; }

  DType type_;
  std::int64_t size_, dim_, queries_ = 0, heads_ = 0;
  TokenStrides read_{};
  TokenRows rows_{};  // of keys and values
  bool documents_ = false;
  std::vector<Stretch> stretches_;
  std::vector<Made> kernels_;  // by stretch
  Scratch scratch_;
  std::int64_t keys_at_ = 0, values_at_ = 0, lse_at_ = 0, inner_at_ = 0;
  std::vector<std::int64_t> dkeys_at_, dvalues_at_;  // by stretch
};

class Forward final : public AttentionOfStretches {
 public:
  Forward(const KernelRequest& r, const KernelSettings& s) : AttentionOfStretches(r, 0, Direction::forward, s) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const cudaStream_t stream = stream_of(queue);
    bring_keys(in[1], in[2], workspace, stream);
    const Buffer lse = buffer_at(part_of(workspace, lse_at_));
    for (std::size_t n = 0; n < stretches_.size(); ++n) {
      const Stretch& stretch = stretches_[n];
      const Buffer inputs[] = {rows(in[0], stretch, read_.q), buffer_at(part_of(workspace, keys_at_)),
                               buffer_at(part_of(workspace, values_at_)), starts(in, 3, stretch)};
      const Buffer outputs[] = {rows(out[0], stretch, o_stride()), lse};
      kernels_[n]->launch(inputs, outputs, part_of(workspace, inner_at_), queue);
      lse_of(stretch).copy_back(lse.as<float>(), out[1].as<float>(), stream);
    }
  }
};

class Backward final : public AttentionOfStretches {
 public:
  Backward(const KernelRequest& r, const KernelSettings& s)
      : AttentionOfStretches(r, 1, Direction::backward, s),
        written_{r.outputs[0].leading_dimension(), r.outputs[1].leading_dimension(), r.outputs[2].leading_dimension()} {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const cudaStream_t stream = stream_of(queue);
    bring_keys(in[2], in[3], workspace, stream);
    const Buffer lse = buffer_at(part_of(workspace, lse_at_));
    std::array<Summand, most_summands> dkeys{}, dvalues{};
    for (std::size_t n = 0; n < stretches_.size(); ++n) {
      const Stretch& stretch = stretches_[n];
      lse_of(stretch).copy_out(in[5].as<float>(), lse.as<float>(), stream);
      const Buffer inputs[] = {rows(in[0], stretch, o_stride()),
                               rows(in[1], stretch, read_.q),
                               buffer_at(part_of(workspace, keys_at_)),
                               buffer_at(part_of(workspace, values_at_)),
                               rows(in[4], stretch, o_stride()),
                               lse,
                               starts(in, 6, stretch)};
      const Buffer outputs[] = {rows(out[0], stretch, written_.q), buffer_at(part_of(workspace, dkeys_at_[n])),
                                buffer_at(part_of(workspace, dvalues_at_[n]))};
      kernels_[n]->launch(inputs, outputs, part_of(workspace, inner_at_), queue);
      dkeys[n] = {part_of(workspace, dkeys_at_[n]), stretch.keys};
      dvalues[n] = {part_of(workspace, dvalues_at_[n]), stretch.keys};
    }
    sum_from_positions(type_, rows_, dkeys, out[1].data, written_.k, stream);
    sum_from_positions(type_, rows_, dvalues, out[2].data, written_.v, stream);
  }

 private:
  TokenStrides written_;
};

}  // namespace

Made make_attention_of_stretches(const KernelRequest& r, Direction direction, const KernelSettings& s) {
  if (direction == Direction::forward) return std::make_unique<Forward>(r, s);
  return std::make_unique<Backward>(r, s);
}

}  // namespace consist::cuda
