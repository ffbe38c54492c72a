// Tensors with known contents for tests of files.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/weights/safetensors.h"

namespace consist {

/// A tensor whose elements are given as bits in `dtype`, wide or narrow.
template <typename Bits>
TensorSource source_of(std::string name, DType dtype, Shape shape, std::vector<Bits> bits) {
  const auto read = [bits = std::move(bits)](void* to, std::int64_t first, std::int64_t count) {
    std::memcpy(to, bits.data() + first, static_cast<std::size_t>(count) * sizeof(Bits));
  };
  return {std::move(name), dtype, shape, read};
}

inline TensorSource f32_source(std::string name, Shape shape, const std::vector<float>& values) {
  return source_of<float>(std::move(name), DType::f32, shape, values);
}

/// An f32 tensor of `elements` numbers that follow from their index.
inline TensorSource ramp_source(std::string name, std::int64_t elements, float scale = 1) {
  return {std::move(name), DType::f32, Shape{elements}, [scale](void* to, std::int64_t first, std::int64_t count) {
            for (std::int64_t i = 0; i < count; ++i) static_cast<float*>(to)[i] = scale * static_cast<float>(first + i);
          }};
}

/// The bytes of a safetensors file with this header, whatever it says, and this many bytes of data.
inline std::string raw_safetensors(const std::string& header, std::size_t data_bytes) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i) & 0xffU);
  return text + header + std::string(data_bytes, '\x3f');
}

}  // namespace consist
