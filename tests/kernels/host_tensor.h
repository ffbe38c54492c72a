// Tensors in host memory as devices hold them.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

#include "consist/bfloat16.h"
#include "consist/float8.h"
#include "consist/op.h"
#include "tests/reference/numerical.h"

namespace consist::test {

struct HostTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::uint8_t> bytes;

  HostTensor() = default;
  HostTensor(DType type, const Shape& extents)
      : dtype(type), shape(extents), bytes(static_cast<std::size_t>(extents.elements()) * size_of(type)) {}

  double operator[](std::int64_t i) const {
    switch (dtype) {
      case DType::f32:
        return element<float>(i);
      case DType::bf16:
        return from_bfloat16(element<std::uint16_t>(i));
      case DType::e4m3:
        return from_float8<e4m3_format>(element<std::uint8_t>(i));
      case DType::e5m2:
        return from_float8<e5m2_format>(element<std::uint8_t>(i));
      case DType::i32:
        return element<std::int32_t>(i);
      case DType::u8:
        return element<std::uint8_t>(i);
      default:
        throw std::invalid_argument("no test value has this dtype");
    }
  }
  void set(std::int64_t i, double value) {
    switch (dtype) {
      case DType::f32:
        return put(i, static_cast<float>(value));
      case DType::bf16:
        return put(i, to_bfloat16(static_cast<float>(value)));
      case DType::e4m3:
        return put(i, to_float8<e4m3_format>(static_cast<float>(value)));
      case DType::e5m2:
        return put(i, to_float8<e5m2_format>(static_cast<float>(value)));
      case DType::i32:
        return put(i, static_cast<std::int32_t>(value));
      case DType::u8:
        return put(i, static_cast<std::uint8_t>(value));
      default:
        throw std::invalid_argument("no test value has this dtype");
    }
  }

 private:
  template <typename T>
  T element(std::int64_t i) const {
    T value;
    std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void put(std::int64_t i, T value) {
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }
};
using HostTensors = std::vector<std::optional<HostTensor>>;

inline HostTensor to_host(const reference::Value& value) {
  HostTensor tensor(value.dtype, value.shape);
  for (std::size_t i = 0; i < value.data.size(); ++i) tensor.set(static_cast<std::int64_t>(i), value.data[i]);
  return tensor;
}

inline reference::Value to_value(const HostTensor& tensor) {
  reference::Value value = reference::zeros(tensor.dtype, tensor.shape);
  for (std::size_t i = 0; i < value.data.size(); ++i) value.data[i] = tensor[static_cast<std::int64_t>(i)];
  return value;
}

}  // namespace consist::test
