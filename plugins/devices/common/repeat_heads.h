// Arguments of kernels of repeat_heads and its gradient, on every device.
#pragma once

#include <cstdint>

#include "consist/kernel.h"

namespace consist::kernels {

/// Heads that a rank takes, and from where.
struct HeadRepetition {
  std::int64_t head_elements;  ///< of one head: its rows times their columns
  std::int64_t heads;          ///< that this rank takes
  std::int64_t first;          ///< the first one's place among the repeated heads of all ranks
  std::int64_t repeats;        ///< repeated heads per head

  /// `whole` holds all heads once, `part` those of the rank, which begins at `part_origins[0]`.
  HeadRepetition(const KernelRequest& r, const Buffer& whole, const Buffer& part, std::span<const Origin> part_origins) {
    const std::int64_t head_dim = r.attributes.integer("head_dim");
    head_elements = head_dim * (whole.shape.elements() / whole.shape[0]);
    heads = part.shape[0] / head_dim;
    first = part_origins.empty() ? 0 : part_origins[0][0] / head_dim;
    repeats = r.attributes.integer("heads") / (whole.shape[0] / head_dim);
  }
  static HeadRepetition of_forward(const KernelRequest& r) { return {r, r.inputs[0], r.outputs[0], r.output_origins}; }
  static HeadRepetition of_gradient(const KernelRequest& r) { return {r, r.outputs[0], r.inputs[0], r.input_origins}; }

  /// Where the whole tensor holds what the rank has as its head `head`, in elements.
  std::int64_t source(std::int64_t head) const { return (first + head) / repeats * head_elements; }
};

}  // namespace consist::kernels
