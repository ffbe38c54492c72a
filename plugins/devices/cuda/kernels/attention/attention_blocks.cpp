// attention and attention_grad of a rank's queries to the keys of all tokens in zigzag order, where nothing but the order hides
// keys: a causal block of the rank's own keys, and blocks of which queries see all (consist/attention_blocks.h), by the kernels
// that whole sequences have. cuDNN's gradient of queries against twice or three times as many keys, aligned at the last, takes up
// to a third longer. No two blocks have the same keys, so their gradients need no sum.
#include "consist/attention_blocks.h"

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
#include "plugins/devices/cuda/kernels/moe/token_rows.h"

namespace consist::cuda {
namespace {

class AttentionOfBlocks : public Kernel {
 public:
  std::int64_t workspace_bytes() const override { return scratch_.bytes(); }

 protected:
  /// One block. Keys that do not lie one behind the other are brought together in scratch.
  struct Call {
    std::int64_t first_query, first_key;  // rows
    bool causal, together;
    Made kernel;
    std::int64_t result_at = 0, lse_at = 0;  // of all but the causal one
  };

  /// Queries are input `q` of the request, keys and values those behind them.
  AttentionOfBlocks(const KernelRequest& r, std::size_t q, Direction direction, const KernelSettings& s)
      : direction_(direction),
        type_(r.inputs[q].dtype),
        size_(static_cast<std::int64_t>(size_of(type_))),
        scores_(attention_scores(r.attributes)) {
    require_values_as_keys(r);
    const Buffer &queries = r.inputs[q], &keys = r.inputs[q + 1], &values = r.inputs[q + 2];
    const std::int64_t dim = r.attributes.integer("head_dim"), ranks = r.attributes.integer("zigzag");
    queries_ = {queries.shape[0], queries.shape[1], queries.shape[2], 0, queries.shape[1]};
    heads_ = queries.shape[2] / dim;
    chunk_ = keys.shape[1] / (2 * ranks);
    read_ = {queries.leading_dimension(), keys.leading_dimension(), values.leading_dimension()};
    if (direction == Direction::backward)
      written_ = {r.outputs[0].leading_dimension(), r.outputs[1].leading_dimension(), r.outputs[2].leading_dimension()};
    rows_ = {queries.shape[0], keys.shape[1], 0, keys.shape[2], ranks};
    const std::int64_t first = r.input_origins.empty() ? 0 : r.input_origins[q][1];
    for (const AttentionBlock& block : attention_blocks(ranks, first / queries_.rows)) add_call(block, s);
    reserve();
  }

  Buffer queries_of(const Buffer& whole, const Call& call, std::int64_t stride) const {
    return tokens_from(whole, call.first_query, stride, size_);
  }
  Buffer keys_of(const Buffer& whole, const Call& call, std::int64_t stride, std::int64_t scratch_at, void* workspace) const {
    return call.together ? buffer_at(part_of(workspace, scratch_at)) : tokens_from(whole, call.first_key, stride, size_);
  }
  /// o or dq of a block; its rows are those of the rank's queries, which are not there in front of the first.
  Buffer result_of(const Call& call, void* workspace) const {
    return buffer_at(part_of(workspace, call.result_at) - call.first_query * queries_.columns * size_);
  }
  /// Brings keys and values together for the blocks that need it; before any of them runs.
  void bring_keys(const Buffer& keys, const Buffer& values, void* workspace, cudaStream_t stream) const {
    if (rows_.kept == 0) return;
    rows_by_position(type_, rows_, keys.data, read_.k, part_of(workspace, keys_at_), stream);
    rows_by_position(type_, rows_, values.data, read_.v, part_of(workspace, values_at_), stream);
  }
  void others(OtherBlock (&blocks)[most_other_blocks], void* workspace) const {
    std::size_t count = 0;
    for (const Call& call : calls_) {
      if (call.causal) continue;
      blocks[count++] = {result_of(call, workspace).data, buffer_at(part_of(workspace, call.lse_at)).as<float>(),
                         call.first_query};
    }
  }

 private:
  void add_call(const AttentionBlock& block, const KernelSettings& s) {
    const std::int64_t dim = queries_.columns / heads_, count = block.keys * chunk_;
    const bool together = block.key_step > 1;
    AttentionShape shape{queries_.batch, block.queries * chunk_, count, heads_, rows_.columns / dim, dim, dim, read_, scores_};
    shape.query_tokens = queries_.rows;
    shape.key_tokens = together ? count : rows_.length;
    if (!block.causal) shape.shift = count;
    if (together) shape.read.k = shape.read.v = rows_.columns;
    if (direction_ == Direction::backward) {
      shape.written = written_;
      if (!block.causal) shape.written.q = queries_.columns;
      if (together) shape.written.k = shape.written.v = rows_.columns;
    }
    Made kernel = make_attention_of(type_, shape, direction_, s);
    if (!kernel) throw ProgramError("attention of " + std::string(name_of(type_)) + " has no kernel");
    calls_.push_back({block.first_query * chunk_, block.first_key * chunk_, block.causal, together, std::move(kernel)});
    if (together) rows_.kept = count;  // the first chunks of earlier ranks are the first positions
  }

  void reserve() {
    std::int64_t inner = 0;
    for (Call& call : calls_) {
      inner = std::max(inner, call.kernel->workspace_bytes());
      if (call.causal) continue;
      call.result_at = scratch_.reserve((queries_.batch * queries_.rows - call.first_query) * queries_.columns * size_);
      call.lse_at = scratch_.reserve(queries_.batch * heads_ * (queries_.rows - call.first_query) * 4);
    }
    inner_at_ = scratch_.reserve(inner);
    const std::int64_t key_bytes = rows_.batch * rows_.kept * rows_.columns * size_;
    for (std::int64_t* at : {&keys_at_, &values_at_}) *at = scratch_.reserve(key_bytes);
    if (direction_ == Direction::forward) return;
    for (std::int64_t* at : {&dkeys_at_, &dvalues_at_}) *at = scratch_.reserve(key_bytes);
  }

  Direction direction_;

 protected:
  DType type_;
  std::int64_t size_, heads_ = 0, chunk_ = 0;
  AttentionScores scores_;
  PartRows queries_{};
  TokenStrides read_{}, written_{};
  TokenRows rows_{};  // of keys and values; kept: those that are brought together
  std::vector<Call> calls_;
  Scratch scratch_;
  std::int64_t keys_at_ = 0, values_at_ = 0, dkeys_at_ = 0, dvalues_at_ = 0, inner_at_ = 0;
};

class BlocksForward final : public AttentionOfBlocks {
 public:
  BlocksForward(const KernelRequest& r, const KernelSettings& s) : AttentionOfBlocks(r, 0, Direction::forward, s) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const cudaStream_t stream = stream_of(queue);
    bring_keys(in[1], in[2], workspace, stream);
    for (const Call& call : calls_) {
      const Buffer inputs[] = {queries_of(in[0], call, read_.q), keys_of(in[1], call, read_.k, keys_at_, workspace),
                               keys_of(in[2], call, read_.v, values_at_, workspace), Buffer{}};
      const Buffer o = call.causal ? out[0] : result_of(call, workspace);
      const Buffer outputs[] = {queries_of(o, call, queries_.columns),
                                call.causal ? out[1] : buffer_at(part_of(workspace, call.lse_at))};
      call.kernel->launch(inputs, outputs, part_of(workspace, inner_at_), queue);
    }
    if (calls_.size() == 1) return;
    OtherBlock blocks[most_other_blocks]{};
    others(blocks, workspace);
    merge_attention_blocks(type_, queries_, heads_, blocks, out[0].data, out[1].as<float>(), stream);
  }
};

class BlocksBackward final : public AttentionOfBlocks {
 public:
  BlocksBackward(const KernelRequest& r, const KernelSettings& s) : AttentionOfBlocks(r, 1, Direction::backward, s) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const cudaStream_t stream = stream_of(queue);
    bring_keys(in[2], in[3], workspace, stream);
    // First those whose keys' gradients are written to their places, and zeros to all others.
    for (const bool together : {true, false}) {
      for (const Call& call : calls_) {
        if (call.together == together) attend(call, in, out, workspace, queue);
      }
      if (together && rows_.kept > 0) {
        const auto put = [&](std::int64_t from, const Buffer& to, std::int64_t stride) {
          const std::array summands{Summand{part_of(workspace, from), rows_.kept}};
          sum_from_positions(type_, rows_, summands, to.data, stride, stream);
        };
        put(dkeys_at_, out[1], written_.k);
        put(dvalues_at_, out[2], written_.v);
      }
    }
    if (calls_.size() == 1) return;
    OtherBlock blocks[most_other_blocks]{};
    others(blocks, workspace);
    add_attention_blocks(type_, queries_, blocks, out[0].data, written_.q, stream);
  }

 private:
  void attend(const Call& call, std::span<const Buffer> in, std::span<const Buffer> out, void* workspace,
              NativeQueue queue) const {
    Buffer lse = in[5];
    if (call.first_query > 0) {
      lse = buffer_at(part_of(workspace, call.lse_at));
      const LseTokens tokens{queries_.batch * heads_, queries_.rows, call.first_query, queries_.rows - call.first_query};
      tokens.copy_out(in[5].as<float>(), lse.as<float>(), stream_of(queue));
    }
    const Buffer inputs[] = {queries_of(in[0], call, queries_.columns),
                             queries_of(in[1], call, read_.q),
                             keys_of(in[2], call, read_.k, keys_at_, workspace),
                             keys_of(in[3], call, read_.v, values_at_, workspace),
                             queries_of(in[4], call, queries_.columns),
                             lse,
                             Buffer{}};
    const Buffer dq =
        call.causal ? queries_of(out[0], call, written_.q) : queries_of(result_of(call, workspace), call, queries_.columns);
    const Buffer outputs[] = {dq, keys_of(out[1], call, written_.k, dkeys_at_, workspace),
                              keys_of(out[2], call, written_.v, dvalues_at_, workspace)};
    call.kernel->launch(inputs, outputs, part_of(workspace, inner_at_), queue);
  }
};

}  // namespace

bool has_blocks(const KernelRequest& r, const AttentionShape& shape, std::size_t queries) {
  const std::int64_t ranks = r.attributes.integer_or("zigzag", 0);
  if (ranks == 0 || shape.documents || shape.window > 0 || shape.sequence * ranks != shape.keys) return false;
  return r.input_origins.empty() || r.input_origins[queries][1] % shape.sequence == 0;
}

Made make_attention_of_blocks(const KernelRequest& r, Direction direction, const KernelSettings& s) {
  if (direction == Direction::forward) return std::make_unique<BlocksForward>(r, s);
  return std::make_unique<BlocksBackward>(r, s);
}

}  // namespace consist::cuda
