// attention_part and attention_part_grad: of the 2·n chunks of a sequence in zigzag order a rank's queries are chunks r and 2n −
// 1 − r, the keys at hand chunks p and 2n − 1 − p. Of the rank's own part (p = r) both lie in order of position: causal
// attention. Of an earlier part (p < r) all queries see the first chunk whole and none sees the second; of a later one only the
// second chunk of queries sees keys, and sees all. So each part is one call of a kernel that whole sequences have, merged in f32.
#include <string>

#include "consist/error.h"
#include "plugins/devices/cuda/kernels/attention.h"
#include "plugins/devices/cuda/kernels/attention_merge.h"
#include "plugins/devices/cuda/kernels/launch.h"
#include "plugins/devices/cuda/kernels/scratch.h"

namespace consist::cuda {
namespace {

class AttentionToPart : public Kernel {
 public:
  std::int64_t workspace_bytes() const override { return scratch_.bytes(); }

 protected:
  /// Queries are input `q` of the request, keys and values those behind them.
  AttentionToPart(const KernelRequest& r, std::size_t q, Direction direction, const KernelSettings& s)
      : type_(r.inputs[q].dtype),
        size_(static_cast<std::int64_t>(size_of(type_))),
        heads_(r.inputs[q].shape[2] / r.attributes.integer("head_dim")) {
    const Buffer &queries = r.inputs[q], &keys = r.inputs[q + 1], &values = r.inputs[q + 2];
    const std::int64_t parts = r.attributes.integer("zigzag"), held = queries.shape[1];
    const std::int64_t rank = r.input_origins.empty() ? 0 : r.input_origins[q][1] / held;
    const std::int64_t part = (rank + parts - r.attributes.integer("shift")) % parts;
    const std::int64_t chunk = held / 2;
    queries_ = {queries.shape[0], held, queries.shape[2], part > rank ? chunk : 0, part > rank ? chunk : held};
    keys_ = {keys.shape[0], held, keys.shape[2], 0, part < rank ? chunk : held};
    read_ = {queries.leading_dimension(), keys.leading_dimension(), values.leading_dimension()};

    const std::int64_t dim = queries_.columns / heads_;
    AttentionShape shape{queries_.batch, queries_.count, keys_.count, heads_, keys_.columns / dim, dim, read_};
    shape.written = {queries_.columns, keys_.columns, keys_.columns};
    shape.query_tokens = shape.key_tokens = held;
    shape.causal = part == rank;
    kernel_ = make_attention_of(type_, shape, direction, s);
    if (!kernel_) throw ProgramError("attention of " + std::string(name_of(type_)) + " has no kernel");
    inner_at_ = scratch_.reserve(kernel_->workspace_bytes());
    lse_at_ = scratch_.reserve(queries_.batch * heads_ * queries_.count * 4);
    result_at_ = scratch_.reserve(bytes_of(queries_));  // o or dq
  }

  std::int64_t bytes_of(const PartRows& rows) const { return rows.batch * rows.rows * rows.columns * size_; }
  /// The queries of the part in a tensor whose tokens lie `stride` elements apart.
  Buffer rows(const Buffer& whole, std::int64_t stride) const {
    return buffer_at(whole.as<char>() + queries_.first * stride * size_);
  }
  Buffer result(void* workspace) const { return buffer_at(part_of(workspace, result_at_)); }

  DType type_;
  std::int64_t size_, heads_;
  PartRows queries_{}, keys_{};
  TokenStrides read_{};
  Made kernel_;
  Scratch scratch_;
  std::int64_t inner_at_ = 0, lse_at_ = 0, result_at_ = 0;
};

class PartForward final : public AttentionToPart {
 public:
  PartForward(const KernelRequest& r, const KernelSettings& s)
      : AttentionToPart(r, 0, Direction::forward, s), first_part_(kernels::at(r.inputs, 4).absent()) {}

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const Buffer o = result(workspace), lse = buffer_at(part_of(workspace, lse_at_));
    const Buffer inputs[] = {rows(in[0], read_.q), in[1], in[2]};
    const Buffer outputs[] = {rows(o, queries_.columns), lse};
    kernel_->launch(inputs, outputs, part_of(workspace, inner_at_), queue);
    merge_attention(type_, queries_, heads_, o.data, lse.as<float>(), first_part_, out[0].as<float>(), out[1].as<float>(),
                    stream_of(queue));
  }

 private:
  bool first_part_;
};

class PartBackward final : public AttentionToPart {
 public:
  PartBackward(const KernelRequest& r, const KernelSettings& s)
      : AttentionToPart(r, 1, Direction::backward, s), adds_(!kernels::at(r.inputs, 7).absent()) {
    dkeys_at_ = scratch_.reserve(bytes_of(keys_));
    dvalues_at_ = scratch_.reserve(bytes_of(keys_));
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    const cudaStream_t stream = stream_of(queue);
    const Buffer dq = result(workspace), dkeys = buffer_at(part_of(workspace, dkeys_at_)),
                 dvalues = buffer_at(part_of(workspace, dvalues_at_));
    const Buffer inputs[] = {
        rows(in[0], queries_.columns),        rows(in[1], read_.q), in[2], in[3], rows(in[4], queries_.columns),
        lse_of_rows(in[5], workspace, stream)};
    const Buffer outputs[] = {rows(dq, queries_.columns), dkeys, dvalues};
    kernel_->launch(inputs, outputs, part_of(workspace, inner_at_), queue);
    add_attention_part(type_, queries_, dq.data, adds_, out[0].as<float>(), stream);
    add_attention_part(type_, keys_, dkeys.data, false, out[1].as<float>(), stream);
    add_attention_part(type_, keys_, dvalues.data, false, out[2].as<float>(), stream);
  }

 private:
  /// Of lse [batch, heads, queries] the columns of the part, in one piece.
  Buffer lse_of_rows(const Buffer& lse, void* workspace, cudaStream_t stream) const {
    if (queries_.count == queries_.rows) return lse;
    const Buffer own = buffer_at(part_of(workspace, lse_at_));
    const auto width = static_cast<std::size_t>(queries_.count) * 4, pitch = static_cast<std::size_t>(queries_.rows) * 4;
    cuda::check(cudaMemcpy2DAsync(own.data, width, lse.as<float>() + queries_.first, pitch, width,
                                  static_cast<std::size_t>(queries_.batch * heads_), cudaMemcpyDeviceToDevice, stream),
                "copy attention's statistics");
    return own;
  }

  bool adds_;
  std::int64_t dkeys_at_ = 0, dvalues_at_ = 0;
};

}  // namespace

Made make_attention_part(const KernelRequest& r, const KernelSettings& s) {
  refuse_documents(r, 3);
  refuse_window(r, 0);
  return std::make_unique<PartForward>(r, s);
}

Made make_attention_part_grad(const KernelRequest& r, const KernelSettings& s) {
  refuse_documents(r, 6);
  refuse_window(r, 1);
  return std::make_unique<PartBackward>(r, s);
}

}  // namespace consist::cuda
