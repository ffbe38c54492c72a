#include "consist/weight_blocks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "consist/error.h"
#include "consist/float8.h"
#include "consist/program.h"

namespace consist {
namespace {

constexpr float largest_e4m3 = 448;
constexpr std::int64_t longest_block = 4096;

/// Numbers halfway between neighbours, from which on the larger one is nearest.
constexpr std::array<float, 15> nf4_halves = [] {
  std::array<float, 15> halves{};
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = (nf4_values[i] + nf4_values[i + 1]) / 2;
  return halves;
}();

std::uint8_t nf4_code(float value) {
  std::uint8_t code = 0;
  for (const float half : nf4_halves) code = static_cast<std::uint8_t>(code + (value > half ? 1 : 0));
  return code;
}

std::int64_t blocks_in(std::int64_t elements, std::int64_t of_block, const char* what) {
  if (elements % of_block != 0) throw ProgramError(std::to_string(elements) + what + " are no whole blocks of weights");
  return elements / of_block;
}

void encode_block(const WeightBlocks& blocks, std::span<const float> values, std::uint8_t* bytes) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float scale = blocks.code == WeightBlocks::Code::nf4 ? largest : largest / largest_e4m3;
  std::memcpy(bytes, &scale, sizeof scale);
  std::uint8_t* const codes = bytes + weight_scale_bytes;
  std::fill(codes, bytes + blocks.bytes(), std::uint8_t{0});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float scaled = scale > 0 ? values[i] / scale : 0;
    if (blocks.code == WeightBlocks::Code::e4m3)
      codes[i] = to_float8<e4m3_format>(scaled);
    else
      codes[i / 2] = static_cast<std::uint8_t>(codes[i / 2] | nf4_code(scaled) << (i % 2 * 4));
  }
}

void decode_block(const WeightBlocks& blocks, const std::uint8_t* bytes, std::span<float> values) {
  float scale = 0;
  std::memcpy(&scale, bytes, sizeof scale);
  const std::uint8_t* const codes = bytes + weight_scale_bytes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float number = blocks.code == WeightBlocks::Code::e4m3 ? from_float8<e4m3_format>(codes[i])
                                                                 : nf4_values[codes[i / 2] >> (i % 2 * 4) & 15U];
    values[i] = number * scale;
  }
}

}  // namespace

std::int64_t WeightBlocks::bytes() const noexcept {
  return weight_scale_bytes + (code == Code::nf4 ? (length + 1) / 2 : length);
}

Shape WeightBlocks::stored(Shape weights) const {
  const int last = weights.rank() - 1;
  weights[last] = blocks_in(weights[last], length, " channels") * bytes();
  return weights;
}
Shape WeightBlocks::weights(Shape stored) const {
  const int last = stored.rank() - 1;
  stored[last] = blocks_in(stored[last], bytes(), " bytes") * length;
  return stored;
}

void encode(const WeightBlocks& blocks, std::span<const float> values, std::span<std::uint8_t> bytes) {
  const auto length = static_cast<std::size_t>(blocks.length), size = static_cast<std::size_t>(blocks.bytes());
  for (std::size_t b = 0; b * length < values.size(); ++b)
    encode_block(blocks, values.subspan(b * length, length), bytes.subspan(b * size, size).data());
}

void decode(const WeightBlocks& blocks, std::span<const std::uint8_t> bytes, std::span<float> values) {
  const auto length = static_cast<std::size_t>(blocks.length), size = static_cast<std::size_t>(blocks.bytes());
  for (std::size_t b = 0; b * length < values.size(); ++b)
    decode_block(blocks, bytes.subspan(b * size, size).data(), values.subspan(b * length, length));
}

std::string text_of(const WeightBlocks& blocks) {
  if (!blocks.any()) return "none";
  return (blocks.code == WeightBlocks::Code::nf4 ? "nf4:" : "e4m3:") + std::to_string(blocks.length);
}

WeightBlocks parse_weight_blocks(const std::string& text, const std::string& said) {
  const std::size_t colon = text.find(':');
  const std::string code = text.substr(0, colon);
  WeightBlocks blocks;
  bool known = code == "nf4" || code == "e4m3" || (code == "none" && colon == std::string::npos);
  if (code == "nf4") blocks.code = WeightBlocks::Code::nf4;
  if (code == "e4m3") blocks.code = WeightBlocks::Code::e4m3;
  if (known && colon != std::string::npos) {
    const char *first = text.data() + colon + 1, *const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(first, last, blocks.length);
    known = first != last && error == std::errc() && end == last && blocks.length >= 1 && blocks.length <= longest_block;
  }
  if (!known)
    throw UsageError(said + " is '" + text + "'; it must be none, nf4 or e4m3, the latter two with a length of blocks of 1 to " +
                     std::to_string(longest_block) + " if it is not 64, such as nf4:128");
  return blocks;
}

WeightBlocks weight_blocks(const Attributes& attributes) {
  const std::string& text = attributes.string("blocks");
  try {
    if (const WeightBlocks blocks = parse_weight_blocks(text, "attribute 'blocks'"); blocks.any()) return blocks;
  } catch (const UsageError& error) {
    throw ProgramError(error.what());
  }
  throw ProgramError("attribute 'blocks' is '" + text + "', which is no format of weights");
}

}  // namespace consist
