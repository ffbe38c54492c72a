#include <algorithm>
#include <functional>
#include <vector>

#include "core/ops/core_ops.h"

namespace consist::ops {

void register_core_ops(OpRegistry& registry) {
  register_embedding(registry);
  register_linear(registry);
  register_packed_linear(registry);
  register_decode_weights(registry);
  register_fp8(registry);
  register_fp8_parts(registry);
  register_rms_norm(registry);
  register_rope(registry);
  register_attention(registry);
  register_cache(registry);
  register_attention_part(registry);
  register_swiglu(registry);
  register_moe_route(registry);
  register_moe_rows(registry);
  register_moe_sends(registry);
  register_grouped_linear(registry);
  register_lm_head(registry);
  register_vocabulary(registry);
  register_targets(registry);
  register_repeat_heads(registry);
  register_elementwise(registry);
  register_map(registry);
  register_reduce(registry);
  register_map_update(registry);
  register_optimizer(registry);
  register_muon(registry);
  register_channel_parts(registry);
  register_split(registry);
  register_collectives(registry);
  register_storage(registry);
  register_amax(registry);  // after the ops that it builds on
}

namespace {
std::vector<const Op*> made_with_the_registry;  // in the order of their addresses
}

bool is_core_op(const Op& op) {
  registry();
  return std::binary_search(made_with_the_registry.begin(), made_with_the_registry.end(), &op, std::less<>());
}

}  // namespace consist::ops

namespace consist {

OpRegistry& registry() {
  static OpRegistry* const the_registry = [] {
    auto* made = new OpRegistry;  // lives as long as the process: programs point to its ops
    ops::register_core_ops(*made);
    ops::made_with_the_registry = made->all();
    std::sort(ops::made_with_the_registry.begin(), ops::made_with_the_registry.end(), std::less<>());
    return made;
  }();
  return *the_registry;
}

}  // namespace consist
