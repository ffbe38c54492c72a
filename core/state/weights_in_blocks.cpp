#include "core/state/weights_in_blocks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/json_input.h"

namespace consist {
namespace {

/// Blocks that hold [first, first + count), where `of_block` of these are one block's.
struct Range {
  Range(std::int64_t first, std::int64_t count, std::int64_t of_block)
      : begin(first / of_block), blocks((first + count + of_block - 1) / of_block - begin), skipped(first - begin * of_block) {}
  std::int64_t begin, blocks;
  std::int64_t skipped;  ///< of the first block
};

}  // namespace

void encode_part(const WeightBlocks& blocks, const ReadFloats& read, std::int64_t first, std::span<std::uint8_t> out) {
  const Range range(first, std::ssize(out), blocks.bytes());
  std::vector<float> values(static_cast<std::size_t>(range.blocks * blocks.length));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(range.blocks * blocks.bytes()));
  read(range.begin * blocks.length, values);
  encode(blocks, values, bytes);
  std::copy_n(bytes.begin() + range.skipped, std::ssize(out), out.begin());
}

void decode_part(const WeightBlocks& blocks, std::int64_t first, std::span<float> out, const ReadBytes& read) {
  const Range range(first, std::ssize(out), blocks.length);
  std::vector<float> values(static_cast<std::size_t>(range.blocks * blocks.length));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(range.blocks * blocks.bytes()));
  read(range.begin * blocks.bytes(), bytes);
  decode(blocks, bytes, values);
  std::copy_n(values.begin() + range.skipped, std::ssize(out), out.begin());
}

TensorSource decoded(const WeightBlocks& blocks, TensorSource bytes) {
  const Shape shape = blocks.weights(bytes.shape);
  return {bytes.name, DType::f32, shape,
          [blocks, read = std::move(bytes.read)](void* to, std::int64_t first, std::int64_t count) {
            decode_part(blocks, first, {static_cast<float*>(to), static_cast<std::size_t>(count)},
                        [&](std::int64_t at, std::span<std::uint8_t> out) { read(out.data(), at, std::ssize(out)); });
          }};
}

WeightBlocks frozen_weights_of(const CheckpointState& saved, const std::string& path) {
  const nlohmann::json config = parse_json(saved.config, path + ": its configuration");
  if (!config.is_object()) throw DataError(path + ": its configuration is no JSON object");
  return parse_weight_blocks(config.value("frozen_weights", "none"), path + ": frozen_weights");
}

}  // namespace consist
