// attention and attention_grad: cuDNN's fused kernels through its frontend for bf16, our own for f32 (attention_tiles.cu) and for
// what cuDNN has no kernel for (attention_mma.cu): windows are a second diagonal to it, documents and soft-caps nothing that it
// knows. Where it refuses a shape, the log says why, once per shape.
#include "plugins/devices/cuda/kernels/attention/attention.h"

#include <cudnn_frontend.h>

#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "consist/error.h"
#include "consist/log.h"
#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {
namespace {

namespace fe = cudnn_frontend;

void check_cudnn(cudnnStatus_t status, const char* asked) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw SystemError(std::string(asked) + ": cuDNN " + std::to_string(cudnnGetVersion()) + " says " + cudnnGetErrorString(status));
}

/// Tensors of a graph, named by numbers that we choose.
enum Uid : std::int64_t { uid_q = 1, uid_k, uid_v, uid_o, uid_stats, uid_do, uid_dq, uid_dk, uid_dv };

/// One built graph and the kernel that cuDNN chose for it. Shared by the instructions of the same shape: a model has one
/// attention per layer.
struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;  ///< null if cuDNN refused
  std::int64_t workspace_bytes = 0;
  std::string refusal;
};

/// cuDNN on one device: its handle and the plans that are in use.
class CudnnDevice {
 public:
  CudnnDevice() { check_cudnn(cudnnCreate(&handle_), "start cuDNN"); }
  ~CudnnDevice() { cudnnDestroy(handle_); }
  CudnnDevice(const CudnnDevice&) = delete;
  CudnnDevice& operator=(const CudnnDevice&) = delete;

  /// The one of the current CUDA device; lives as long as a kernel uses it. Creating it takes some 100 ms.
  static std::shared_ptr<CudnnDevice> get(int device) {
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<CudnnDevice>> devices;
    const std::lock_guard lock(mutex);
    std::shared_ptr<CudnnDevice> found = devices[device].lock();
    if (!found) devices[device] = found = std::make_shared<CudnnDevice>();
    return found;
  }

  cudnnHandle_t handle() const { return handle_; }

  std::shared_ptr<const Plan> plan(const AttentionShape& s, Direction direction, bool deterministic) {
    const std::lock_guard lock(mutex_);
    const Key key{s.batch,
                  s.sequence,
                  s.keys,
                  s.heads,
                  s.kv_heads,
                  s.dim,
                  s.value_dim,
                  s.read.q,
                  s.read.k,
                  s.read.v,
                  s.written.q,
                  s.written.k,
                  s.written.v,
                  s.query_tokens,
                  s.key_tokens,
                  s.shift,
                  s.window,
                  std::bit_cast<std::int64_t>(s.scores.scale),
                  direction == Direction::forward ? 0 : 1 + deterministic};
    std::shared_ptr<const Plan> found = plans_[key].lock();
    if (!found) {
      found = std::make_shared<const Plan>(build(s, direction, deterministic));
      plans_[key] = found;
      if (found->graph == nullptr) {
        log::info("attention of head_dim " + std::to_string(s.dim) + ", sequence " + std::to_string(s.keys) +
                  " in bf16 runs on Consist's own kernel, not cuDNN's: " + found->refusal);
      }
    }
    return found;
  }

 private:
  using Key = std::array<std::int64_t, 19>;

  Plan build(const AttentionShape& s, Direction direction, bool deterministic) const {
    Plan plan;
    plan.graph = std::make_shared<fe::graph::Graph>();
    fe::graph::Graph& graph = *plan.graph;
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (direction == Direction::forward)
      forward(graph, s);
    else
      backward(graph, s, deterministic);
    fe::error_t error = graph.validate();
    if (error.is_good()) error = graph.build_operation_graph(handle_);
    if (error.is_good()) error = graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
    if (error.is_good()) error = graph.check_support();
    if (error.is_good()) error = graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
    if (error.is_good()) error = graph.get_workspace_size(plan.workspace_bytes);
    if (error.is_bad()) return {nullptr, 0, error.get_message()};
    return plan;
  }

  using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
  using Extents = std::vector<std::int64_t>;

  /// A [batch, tokens, n, dim] tensor of ours, whose tokens lie `row` elements apart, as cuDNN's [batch, n, tokens, dim] with
  /// strides: nothing is copied.
  struct Layout {
    Extents extents, strides;
  };
  static Layout of_queries(const AttentionShape& s, std::int64_t row, std::int64_t dim) {
    return {{s.batch, s.heads, s.sequence, dim}, {s.query_tokens * row, dim, row, 1}};
  }
  static Layout of_keys(const AttentionShape& s, std::int64_t row, std::int64_t dim) {
    return {{s.batch, s.kv_heads, s.keys, dim}, {s.key_tokens * row, dim, row, 1}};
  }
  static Tensor heads(fe::graph::Graph& graph, Uid uid, const char* name, const Layout& layout) {
    return graph.tensor(
        fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_dim(layout.extents).set_stride(layout.strides));
  }
  static void describe(const Tensor& output, Uid uid, const Layout& layout) {
    output->set_output(true).set_uid(uid).set_dim(layout.extents).set_stride(layout.strides);
  }
  /// Attributes of either direction that say which keys queries see.
  template <typename Sdpa>
  static Sdpa seeing(const AttentionShape& s) {
    Sdpa sdpa;
    if (s.sees_all()) return sdpa;
    sdpa.set_diagonal_alignment(s.keys == s.sequence ? fe::DiagonalAlignment_t::TOP_LEFT : fe::DiagonalAlignment_t::BOTTOM_RIGHT)
        .set_diagonal_band_right_bound(0);
    if (s.window > 0) sdpa.set_diagonal_band_left_bound(static_cast<int>(s.window));
    return sdpa;
  }
  static Extents stats_extents(const AttentionShape& s) { return {s.batch, s.heads, s.sequence, 1}; }
  static Extents stats_strides(const AttentionShape& s) { return {s.heads * s.sequence, s.sequence, 1, 1}; }

  static void forward(fe::graph::Graph& graph, const AttentionShape& s) {
    const Tensor q = heads(graph, uid_q, "q", of_queries(s, s.read.q, s.dim)),
                 k = heads(graph, uid_k, "k", of_keys(s, s.read.k, s.dim)),
                 v = heads(graph, uid_v, "v", of_keys(s, s.read.v, s.value_dim));
    auto [o, stats] = graph.sdpa(q, k, v,
                                 seeing<fe::graph::SDPA_attributes>(s)
                                     .set_name("attention")
                                     .set_generate_stats(true)
                                     .set_attn_scale(static_cast<float>(s.scores.scale)));
    describe(o, uid_o, of_queries(s, s.heads * s.value_dim, s.value_dim));
    stats->set_output(true)
        .set_uid(uid_stats)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim(stats_extents(s))
        .set_stride(stats_strides(s));
  }

  static void backward(fe::graph::Graph& graph, const AttentionShape& s, bool deterministic) {
    const Layout of_o = of_queries(s, s.heads * s.value_dim, s.value_dim);
    const Tensor q = heads(graph, uid_q, "q", of_queries(s, s.read.q, s.dim)),
                 k = heads(graph, uid_k, "k", of_keys(s, s.read.k, s.dim)),
                 v = heads(graph, uid_v, "v", of_keys(s, s.read.v, s.value_dim)), o = heads(graph, uid_o, "o", of_o),
                 dout = heads(graph, uid_do, "do", of_o);
    const Tensor stats = graph.tensor(fe::graph::Tensor_attributes()
                                          .set_name("stats")
                                          .set_uid(uid_stats)
                                          .set_data_type(fe::DataType_t::FLOAT)
                                          .set_dim(stats_extents(s))
                                          .set_stride(stats_strides(s)));
    auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, o, dout, stats,
                                            seeing<fe::graph::SDPA_backward_attributes>(s)
                                                .set_name("attention_grad")
                                                .set_attn_scale(static_cast<float>(s.scores.scale))
                                                .set_deterministic_algorithm(deterministic));
    describe(dq, uid_dq, of_queries(s, s.written.q, s.dim));
    describe(dk, uid_dk, of_keys(s, s.written.k, s.dim));
    describe(dv, uid_dv, of_keys(s, s.written.v, s.value_dim));
  }

  cudnnHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<const Plan>> plans_;
};

/// Binds the tensors of a launch to a plan.
class CudnnAttention final : public Kernel {
 public:
  struct Binding {
    Uid uid;
    bool output;
    std::size_t index;
  };
  CudnnAttention(std::shared_ptr<CudnnDevice> device, std::shared_ptr<const Plan> plan, std::vector<Binding> bindings)
      : device_(std::move(device)), plan_(std::move(plan)), bindings_(std::move(bindings)) {}

  std::int64_t workspace_bytes() const override { return plan_->workspace_bytes; }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    for (const Binding& b : bindings_) pointers_[b.uid] = (b.output ? out : in)[b.index].data;
    check_cudnn(cudnnSetStream(device_->handle(), stream_of(queue)), "give cuDNN a stream");
    fe::error_t error = plan_->graph->execute(device_->handle(), pointers_, workspace);
    if (error.is_bad()) throw SystemError("attention by cuDNN: " + error.get_message());
  }

 private:
  std::shared_ptr<CudnnDevice> device_;
  std::shared_ptr<const Plan> plan_;
  std::vector<Binding> bindings_;
  std::unordered_map<std::int64_t, void*> pointers_;
};

/// Queries are input `q` of the request, keys and values those behind them, starts of documents input `documents`.
AttentionShape shape_of(const KernelRequest& r, std::size_t queries, std::size_t documents) {
  const std::int64_t dim = r.attributes.integer("head_dim"), window = r.attributes.integer_or("window", 0);
  const Buffer &q = r.inputs[queries], &k = r.inputs[queries + 1], &v = r.inputs[queries + 2];
  AttentionShape shape{q.shape[0],
                       q.shape[1],
                       k.shape[1],
                       q.shape[2] / dim,
                       k.shape[2] / dim,
                       dim,
                       value_dim_of(r.attributes),
                       {q.leading_dimension(), k.leading_dimension(), v.leading_dimension()},
                       attention_scores(r.attributes)};
  shape.window = window < shape.keys ? window : 0;
  shape.documents = !kernels::at(r.inputs, documents).absent();
  return shape;
}

/// Our own kernel, or why there is none.
Made own_kernel(DType type, const AttentionShape& shape, Direction direction, const KernelSettings& s) {
  if (!is_float(type)) return nullptr;
  if (shape.value_dim != shape.dim) {
    throw UsageError("attention in " + std::string(name_of(type)) + " with head_dim " + std::to_string(shape.dim) +
                     " and values of " + std::to_string(shape.value_dim) +
                     ": cuDNN has no kernel for it here and Consist's own take values of head_dim" + "; use --device cpu");
  }
  if (shape.dim > longest_head) {
    throw UsageError("attention in " + std::string(name_of(type)) + " with head_dim " + std::to_string(shape.dim) +
                     (shape.scores.cap > 0 ? " and a soft-cap of scores" : "") +
                     ": cuDNN has no kernel for it here and Consist's own take head_dim up to " + std::to_string(longest_head) +
                     "; use --device cpu");
  }
  const bool forward = direction == Direction::forward;
  if (type == DType::bf16) return forward ? make_tensor_core_attention(shape) : make_tensor_core_attention_grad(shape);
  return forward ? make_tiled_attention(shape, s) : make_tiled_attention_grad(shape, s);
}

const std::vector<CudnnAttention::Binding>& bindings_of(Direction direction) {
  static const std::vector<CudnnAttention::Binding> forward{
      {uid_q, false, 0}, {uid_k, false, 1}, {uid_v, false, 2}, {uid_o, true, 0}, {uid_stats, true, 1}};
  static const std::vector<CudnnAttention::Binding> backward{{uid_do, false, 0}, {uid_q, false, 1}, {uid_k, false, 2},
                                                             {uid_v, false, 3},  {uid_o, false, 4}, {uid_stats, false, 5},
                                                             {uid_dq, true, 0},  {uid_dk, true, 1}, {uid_dv, true, 2}};
  return direction == Direction::forward ? forward : backward;
}

/// True if cuDNN can say the scores, which have no cap, and which keys queries see: all, or those between two diagonals, the
/// later of which ends at the last key.
bool cudnn_can_say(const AttentionShape& shape) {
  return !shape.documents && shape.scores.cap == 0 && (shape.sees_all() || shape.shift == shape.keys - shape.sequence);
}

/// True if queries and keys are the same tokens in order of position.
bool is_whole(const AttentionShape& shape, const KernelRequest& r) {
  return shape.sequence == shape.keys && r.attributes.integer_or("zigzag", 0) == 0;
}

}  // namespace

void require_values_as_keys(const KernelRequest& r) {
  const std::int64_t dim = r.attributes.integer("head_dim"), value_dim = value_dim_of(r.attributes);
  if (value_dim == dim) return;
  throw UsageError("attention to a part of the sequence with head_dim " + std::to_string(dim) + " and values of " +
                   std::to_string(value_dim) +
                   ": the cuda device takes values of head_dim there; leave out --strategy cp, or use " + "--device cpu");
}

Made make_attention_of(DType type, const AttentionShape& shape, Direction direction, const KernelSettings& s) {
  if (type == DType::bf16 && cudnn_can_say(shape)) {
    auto device = CudnnDevice::get(s.device);
    auto plan = device->plan(shape, direction, direction == Direction::backward && s.deterministic_attention);
    if (plan->graph) return std::make_unique<CudnnAttention>(std::move(device), std::move(plan), bindings_of(direction));
  }
  return own_kernel(type, shape, direction, s);
}

namespace {

Made make_attention(const KernelRequest& r, const KernelSettings& s) {
  if (!kernels::at(r.inputs, 4).absent()) {
    if (!kernels::at(r.inputs, 3).absent())
      throw UnavailableError("device 'cuda' has no attention within documents beside a cache; take --device cpu");
    return make_cache_attention(r, s);
  }
  const AttentionShape shape = shape_of(r, 0, 3);
  if (has_blocks(r, shape, 0)) return make_attention_of_blocks(r, Direction::forward, s);
  if (!is_whole(shape, r)) return make_attention_of_stretches(r, Direction::forward, s);
  return make_attention_of(r.inputs[0].dtype, shape, Direction::forward, s);
}

Made make_attention_grad(const KernelRequest& r, const KernelSettings& s) {
  AttentionShape shape = shape_of(r, 1, 6);
  if (has_blocks(r, shape, 1)) return make_attention_of_blocks(r, Direction::backward, s);
  if (!is_whole(shape, r)) return make_attention_of_stretches(r, Direction::backward, s);
  shape.written = {r.outputs[0].leading_dimension(), r.outputs[1].leading_dimension(), r.outputs[2].leading_dimension()};
  return make_attention_of(r.inputs[1].dtype, shape, Direction::backward, s);
}

}  // namespace

CONSIST_KERNEL(attention, make_attention);
CONSIST_KERNEL(attention_grad, make_attention_grad);

}  // namespace consist::cuda
