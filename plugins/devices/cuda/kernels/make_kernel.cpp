// The table of ops.
#include <string_view>

#include "plugins/devices/cuda/kernels/kernels.h"

namespace consist::cuda {
namespace {

struct Entry {
  std::string_view op;
  Made (*make)(const KernelRequest&, const KernelSettings&);
};

constexpr Entry table[] = {
    {"embedding", make_embedding},
    {"embedding_grad", make_embedding_grad},
    {"linear", make_linear},
    {"linear_input_grad", make_linear_input_grad},
    {"linear_weight_grad", make_linear_weight_grad},
    {"linear_bias_grad", make_linear_bias_grad},
    {"rms_norm", make_rms_norm},
    {"rms_norm_grad", make_rms_norm_grad},
    {"rope", make_rope},
    {"rope_grad", make_rope_grad},
    {"attention", make_attention},
    {"attention_grad", make_attention_grad},
    {"swiglu", make_swiglu},
    {"swiglu_grad", make_swiglu_grad},
    {"lm_head_loss", make_lm_head_loss},
    {"lm_head_loss_grad", make_lm_head_loss_grad},
    {"add", make_add},
    {"cast", make_cast},
    {"copy", make_copy},
    {"release", make_release},
    {"sum_of_squares", make_sum_of_squares},
    {"clip_coefficient", make_clip_coefficient},
    {"adamw", make_adamw},
};

}  // namespace

Made make_kernel(const KernelRequest& request, const KernelSettings& settings) {
  for (const Entry& entry : table) {
    if (entry.op == request.op) return entry.make(request, settings);
  }
  return nullptr;
}

}  // namespace consist::cuda
