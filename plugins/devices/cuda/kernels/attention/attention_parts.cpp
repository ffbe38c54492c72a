// attention_part and attention_part_grad: of the 2·n chunks of a sequence in zigzag order a rank's queries are chunks r and 2n −
// 1 − r, the keys at hand chunks p and 2n − 1 − p. Of the rank's own part (p = r) both lie in order of position: causal
// attention. Of an earlier part (p < r) all queries see the first chunk whole and none sees the second; of a later one only the
// second chunk of queries sees keys, and sees all. So each part is one call of a kernel that whole sequences have, merged in f32.
// Where windows or documents hide keys, each pair of a chunk of queries and one of keys has its own.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "consist/error.h"
#include "plugins/devices/cuda/kernels/attention/attention.h"
#include "plugins/devices/cuda/kernels/attention/attention_merge.h"
#include "plugins/devices/cuda/kernels/attention/attention_rows.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/scratch.h"

namespace consist::cuda {
namespace {

class AttentionToPart : public Kernel {
 public:
  std::int64_t workspace_bytes() const override { return scratch_.bytes(); }

 protected:
  /// Attention of some of the queries to some of the keys.
  struct Call {
    PartRows queries, keys;
    Made kernel;
  };

  /// Queries are input `q` of the request, keys and values those behind them.
  AttentionToPart(const KernelRequest& r, Direction direction, const KernelSettings& s)
      : q_(direction == Direction::forward ? 0 : 1),
        starts_(direction == Direction::forward ? 3 : 6),
        direction_(direction),
        type_(r.inputs[q_].dtype),
        size_(static_cast<std::int64_t>(size_of(type_))),
        heads_(r.inputs[q_].shape[2] / r.attributes.integer("head_dim")),
        scores_(attention_scores(r.attributes)),
        documents_(!kernels::at(r.inputs, starts_).absent()) {
    require_values_as_keys(r);
    const Buffer &queries = r.inputs[q_], &keys = r.inputs[q_ + 1], &values = r.inputs[q_ + 2];
    const std::int64_t held = queries.shape[1];
    queries_ = {queries.shape[0], held, queries.shape[2], 0, 0};
    keys_ = {keys.shape[0], held, keys.shape[2], 0, 0};
    read_ = {queries.leading_dimension(), keys.leading_dimension(), values.leading_dimension()};
    const std::int64_t parts = r.attributes.integer("zigzag"), rank = r.input_origins.empty() ? 0 : r.input_origins[q_][1] / held;
    add_calls(rank, (rank + parts - r.attributes.integer("shift")) % parts, parts, r.attributes.integer_or("window", 0), s);

    std::int64_t inner = 0, longest = 0;
    for (const Call& call : calls_) {
      inner = std::max(inner, call.kernel->workspace_bytes());
      longest = std::max(longest, call.queries.count);
    }
    inner_at_ = scratch_.reserve(inner);
    lse_at_ = scratch_.reserve(queries_.batch * heads_ * longest * 4);
    result_at_ = scratch_.reserve(bytes_of(queries_));  // o or dq
  }

  std::int64_t bytes_of(const PartRows& rows) const { return rows.batch * rows.rows * rows.columns * size_; }
  /// Rows of a call in a tensor whose tokens lie `stride` elements apart.
  Buffer rows(const Buffer& whole, const PartRows& of, std::int64_t stride) const {
    return tokens_from(whole, of.first, stride, size_);
  }
  Buffer result(void* workspace) const { return buffer_at(part_of(workspace, result_at_)); }
  Buffer starts(std::span<const Buffer> in, const Call& call) const {
    return starts_from(in, starts_, documents_, call.queries.first);
  }

 private:
  void add_calls(std::int64_t rank, std::int64_t part, std::int64_t parts, std::int64_t window, const KernelSettings& s) {
    const std::int64_t held = queries_.rows, chunk = held / 2;
    if (!documents_ && (window == 0 || window >= held * parts)) {
      AttentionShape shape = shape_of(part > rank ? chunk : held, part < rank ? chunk : held);
      if (part != rank) shape.shift = shape.keys;
      return add_call(part > rank ? chunk : 0, 0, shape, s);
    }
    const std::array own{rank * chunk, (2 * parts - 1 - rank) * chunk}, there{part * chunk, (2 * parts - 1 - part) * chunk};
    for (std::size_t q = 0; q < own.size(); ++q) {
      for (std::size_t k = 0; k < there.size(); ++k) {
        AttentionShape shape = shape_of(chunk, chunk);
        shape.shift = own[q] - there[k];
        if (shape.shift < 0 || (window > 0 && shape.shift - chunk + 1 >= window)) continue;  // no query sees any of the keys
        shape.window = shape.shift + chunk > window ? window : 0;
        shape.documents = documents_;
        shape.first_position = there[k];
        add_call(static_cast<std::int64_t>(q) * chunk, static_cast<std::int64_t>(k) * chunk, shape, s);
      }
    }
  }
  AttentionShape shape_of(std::int64_t queries, std::int64_t keys) const {
    const std::int64_t dim = queries_.columns / heads_;
    AttentionShape shape{queries_.batch, queries, keys, heads_, keys_.columns / dim, dim, dim, read_, scores_};
    shape.written = {queries_.columns, keys_.columns, keys_.columns};
    shape.query_tokens = shape.key_tokens = queries_.rows;
    return shape;
  }
  void add_call(std::int64_t first_query, std::int64_t first_key, const AttentionShape& shape, const KernelSettings& s) {
    Call call{queries_, keys_, make_attention_of(type_, shape, direction_, s)};
    if (!call.kernel) throw ProgramError("attention of " + std::string(name_of(type_)) + " has no kernel");
    call.queries.first = first_query;
    call.queries.count = shape.sequence;
    call.keys.first = first_key;
    call.keys.count = shape.keys;
    calls_.push_back(std::move(call));
  }

  std::size_t q_, starts_;  // inputs
  Direction direction_;

 protected:
  DType type_;
  std::int64_t size_, heads_;
  AttentionScores scores_;
  bool documents_;
  PartRows queries_{}, keys_{};  // of none of the rows
  TokenStrides read_{};
  std::vector<Call> calls_;  // none where no query sees any of the keys
  Scratch scratch_;
  std::int64_t inner_at_ = 0, lse_at_ = 0, result_at_ = 0;
};

class PartForward final : public AttentionToPart {
 public:
  PartForward(const KernelRequest& r, const KernelSettings& s)
      : AttentionToPart(r, Direction::forward, s), first_part_(kernels::at(r.inputs, 4).absent()) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const Buffer o = result(workspace), lse = buffer_at(part_of(workspace, lse_at_));
    const auto merge = [&](const PartRows& rows, bool first) {
      merge_attention(type_, rows, heads_, o.data, lse.as<float>(), first, out[0].as<float>(), out[1].as<float>(),
                      stream_of(queue));
    };
    bool first = first_part_;
    for (const Call& call : calls_) {
      const Buffer inputs[] = {rows(in[0], call.queries, read_.q), rows(in[1], call.keys, read_.k),
                               rows(in[2], call.keys, read_.v), starts(in, call)};
      const Buffer outputs[] = {rows(o, call.queries, queries_.columns), lse};
      call.kernel->launch(inputs, outputs, part_of(workspace, inner_at_), queue);
      merge(call.queries, first);
      first = false;
    }
    if (first) merge(queries_, true);
  }

 private:
  bool first_part_;
};

class PartBackward final : public AttentionToPart {
 public:
  PartBackward(const KernelRequest& r, const KernelSettings& s)
      : AttentionToPart(r, Direction::backward, s), adds_(!kernels::at(r.inputs, 7).absent()) {
    dkeys_at_ = scratch_.reserve(bytes_of(keys_));
    dvalues_at_ = scratch_.reserve(bytes_of(keys_));
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const cudaStream_t stream = stream_of(queue);
    const Buffer dq = result(workspace), dkeys = buffer_at(part_of(workspace, dkeys_at_)),
                 dvalues = buffer_at(part_of(workspace, dvalues_at_));
    bool first = true;
    const auto add = [&](const PartRows& of_queries, const PartRows& of_keys) {
      add_attention_part(type_, of_queries, dq.data, adds_ || !first, out[0].as<float>(), stream);
      add_attention_part(type_, of_keys, dkeys.data, !first, out[1].as<float>(), stream);
      add_attention_part(type_, of_keys, dvalues.data, !first, out[2].as<float>(), stream);
      first = false;
    };
    for (const Call& call : calls_) {
      const Buffer inputs[] = {rows(in[0], call.queries, queries_.columns),
                               rows(in[1], call.queries, read_.q),
                               rows(in[2], call.keys, read_.k),
                               rows(in[3], call.keys, read_.v),
                               rows(in[4], call.queries, queries_.columns),
                               lse_of(call, in[5], workspace, stream),
                               starts(in, call)};
      const Buffer outputs[] = {rows(dq, call.queries, queries_.columns), rows(dkeys, call.keys, keys_.columns),
                                rows(dvalues, call.keys, keys_.columns)};
      call.kernel->launch(inputs, outputs, part_of(workspace, inner_at_), queue);
      add(call.queries, call.keys);
    }
    if (first) add(queries_, keys_);
  }

 private:
  /// Returns the call's columns of lse [batch, heads, queries], contiguous.
  Buffer lse_of(const Call& call, const Buffer& lse, void* workspace, cudaStream_t stream) const {
    if (call.queries.count == queries_.rows) return lse;
    const Buffer own = buffer_at(part_of(workspace, lse_at_));
    const LseTokens tokens{queries_.batch * heads_, queries_.rows, call.queries.first, call.queries.count};
    tokens.copy_out(lse.as<float>(), own.as<float>(), stream);
    return own;
  }

  bool adds_;
  std::int64_t dkeys_at_ = 0, dvalues_at_ = 0;
};

Made make_attention_part(const KernelRequest& r, const KernelSettings& s) {
  return std::make_unique<PartForward>(r, s);
}

Made make_attention_part_grad(const KernelRequest& r, const KernelSettings& s) {
  return std::make_unique<PartBackward>(r, s);
}

}  // namespace

CONSIST_KERNEL(attention_part, make_attention_part);
CONSIST_KERNEL(attention_part_grad, make_attention_part_grad);

}  // namespace consist::cuda
