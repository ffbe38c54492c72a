// Makers of kernels, one per op (docs/ops.md states their tensors), and what they share. Host code only: kernels' sources are .cu
// files, this is included by both compilers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "consist/kernel.h"

namespace consist::cuda {

class MatmulLibrary;

/// What kernels are made for. Lives as long as the device.
struct KernelSettings {
  int device = 0;              ///< CUDA's index
  int compute_capability = 0;  ///< 90 for 9.0
  int multiprocessors = 0;
  bool tf32 = false;  ///< fp32 products may use TF32
  /// bf16 attention_grad gives the same bits every time, with cuDNN's slower algorithm and a workspace of the size of all scores.
  bool deterministic_attention = false;
  MatmulLibrary* matmuls = nullptr;  ///< cuBLASLt and its chosen algorithms
};

using Made = std::unique_ptr<Kernel>;

// Each returns null for dtypes that it does not know.
Made make_embedding(const KernelRequest& r, const KernelSettings& s);
Made make_embedding_grad(const KernelRequest& r, const KernelSettings& s);
Made make_linear(const KernelRequest& r, const KernelSettings& s);
Made make_linear_input_grad(const KernelRequest& r, const KernelSettings& s);
Made make_linear_weight_grad(const KernelRequest& r, const KernelSettings& s);
Made make_linear_bias_grad(const KernelRequest& r, const KernelSettings& s);
Made make_rms_norm(const KernelRequest& r, const KernelSettings& s);
Made make_rms_norm_grad(const KernelRequest& r, const KernelSettings& s);
Made make_rope(const KernelRequest& r, const KernelSettings& s);
Made make_rope_grad(const KernelRequest& r, const KernelSettings& s);
Made make_attention(const KernelRequest& r, const KernelSettings& s);
Made make_attention_grad(const KernelRequest& r, const KernelSettings& s);
Made make_swiglu(const KernelRequest& r, const KernelSettings& s);
Made make_swiglu_grad(const KernelRequest& r, const KernelSettings& s);
Made make_lm_head_loss(const KernelRequest& r, const KernelSettings& s);
Made make_lm_head_loss_grad(const KernelRequest& r, const KernelSettings& s);
Made make_add(const KernelRequest& r, const KernelSettings& s);
Made make_cast(const KernelRequest& r, const KernelSettings& s);
Made make_copy(const KernelRequest& r, const KernelSettings& s);
Made make_release(const KernelRequest& r, const KernelSettings& s);
Made make_sum_of_squares(const KernelRequest& r, const KernelSettings& s);
Made make_clip_coefficient(const KernelRequest& r, const KernelSettings& s);
Made make_adamw(const KernelRequest& r, const KernelSettings& s);

/// The kernel for a request, or null.
Made make_kernel(const KernelRequest& r, const KernelSettings& s);

/// Input or output `index` of a launch, or an absent buffer.
inline const Buffer& at(std::span<const Buffer> buffers, std::size_t index) {
  static const Buffer absent{nullptr, DType::u8, Shape{0}};
  return index < buffers.size() ? buffers[index] : absent;
}

}  // namespace consist::cuda
