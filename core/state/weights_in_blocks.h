// Frozen weights in blocks (consist/weight_blocks.h) on their way from files and into them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "consist/export.h"
#include "consist/weight_blocks.h"
#include "core/checkpoint/checkpoint_state.h"
#include "core/weights/safetensors.h"

namespace consist {

/// Gives weights from element `first` on.
using ReadFloats = std::function<void(std::int64_t first, std::span<float> out)>;
/// Gives bytes of their blocks from byte `first` on.
using ReadBytes = std::function<void(std::int64_t first, std::span<std::uint8_t> out)>;

/// Writes bytes from byte `first` on, which may lie within blocks, of the weights that `read` gives by whole blocks.
CONSIST_API void encode_part(const WeightBlocks& blocks, const ReadFloats& read, std::int64_t first, std::span<std::uint8_t> out);
/// The reverse: weights from element `first` on.
CONSIST_API void decode_part(const WeightBlocks& blocks, std::int64_t first, std::span<float> out, const ReadBytes& read);

/// The weights, f32, of a source of bytes.
CONSIST_API TensorSource decoded(const WeightBlocks& blocks, TensorSource bytes);

/// The format in which a checkpoint's run kept frozen weights. Throws DataError naming `path`.
CONSIST_API WeightBlocks frozen_weights_of(const CheckpointState& saved, const std::string& path);

}  // namespace consist
