// The table of ops, and the one function that a kernel library exports.
#include <string_view>

#include "plugins/devices/cpu/kernels/kernels.h"

namespace consist::cpu {
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
}  // namespace consist::cpu

extern "C" __attribute__((visibility("default"))) consist::Kernel* consist_cpu_make_kernel(
    const consist::KernelRequest& request, const consist::cpu::KernelSettings& settings) {
  for (const auto& entry : consist::cpu::table) {
    if (entry.op == request.op) return entry.make(request, settings).release();
  }
  return nullptr;
}
