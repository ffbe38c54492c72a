#include "tests/conformance/parts/operands.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "consist/bfloat16.h"

namespace consist::testing {
namespace {

Mesh mesh_of(int ranks) {
  return Mesh({{"ranks", ranks}});
}

Placements on_axis(Placement placement) {
  Placements placements;
  placements[0] = placement;
  return placements;
}

/// The index in the whole tensor of each element that a rank holds.
std::vector<std::int64_t> indices_of_part(const Shape& shape, Placement placement, int rank, int ranks) {
  const LocalPart part = local_part(shape, on_axis(placement), mesh_of(ranks), rank);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(part.shape.elements()));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (placement.is_flat()) {
      indices[i] = part.origin[0] + static_cast<std::int64_t>(i);
      continue;
    }
    std::int64_t rest = static_cast<std::int64_t>(i), index = 0, stride = 1;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      index += (rest % part.shape[d] + part.origin[static_cast<std::size_t>(d)]) * stride;
      rest /= part.shape[d];
      stride *= shape[d];
    }
    indices[i] = index;
  }
  return indices;
}

void copy_element(const Operand& from, std::int64_t at, Operand& to, std::int64_t index) {
  const auto size = static_cast<std::int64_t>(size_of(from.type.dtype));
  std::memcpy(to.bytes.data() + index * size, from.bytes.data() + at * size, static_cast<std::size_t>(size));
}

Operand zeros(const TensorType& type) {
  return {type, std::vector<char>(static_cast<std::size_t>(bytes_of(type)))};
}

double difference(const Operand& a, const Operand& b) {
  if (!is_float(a.type.dtype)) return a.bytes == b.bytes ? 0 : HUGE_VAL;
  double largest = 0;
  for (std::int64_t i = 0; i < a.type.shape.elements(); ++i)
    largest = std::max(largest, std::abs(number_at(a, i) - number_at(b, i)));
  return largest;
}

}  // namespace

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16;
}

std::int64_t bytes_of(const TensorType& type) {
  return type.shape.elements() * static_cast<std::int64_t>(size_of(type.dtype));
}

double number_at(const Operand& operand, std::int64_t index) {
  if (operand.type.dtype == DType::bf16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, operand.bytes.data() + index * 2, 2);
    return from_bfloat16(bits);
  }
  float value = 0;
  std::memcpy(&value, operand.bytes.data() + index * 4, 4);
  return value;
}

void set_number(Operand& operand, std::int64_t index, double value) {
  const auto rounded = static_cast<float>(value);
  if (operand.type.dtype == DType::bf16) {
    const std::uint16_t bits = to_bfloat16(rounded);
    std::memcpy(operand.bytes.data() + index * 2, &bits, 2);
  } else {
    std::memcpy(operand.bytes.data() + index * 4, &rounded, 4);
  }
}

Operand filled(const TensorType& type, int salt, Numbers numbers) {
  Operand operand = zeros(type);
  for (std::int64_t i = 0; i < type.shape.elements(); ++i) {
    const double x = static_cast<double>((i * 7 + salt * 5) % 13) / 4 - 1.59;
    if (is_float(type.dtype)) set_number(operand, i, numbers == Numbers::positive ? x / 2 + 0.97 : x);
    const auto id = static_cast<std::int32_t>((i + salt) % 2);
    if (type.dtype == DType::i32) std::memcpy(operand.bytes.data() + i * 4, &id, 4);
  }
  return operand;
}

Operands filled(const Types& types, int salt, Numbers numbers) {
  Operands operands;
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i]) {
      operands.emplace_back(filled(*types[i], salt + static_cast<int>(i), numbers));
    } else {
      operands.emplace_back();
    }
  }
  return operands;
}

Operand part_of(const Operand& whole, Placement placement, int rank, int ranks) {
  const Shape held = local_shape(whole.type.shape, on_axis(placement), mesh_of(ranks));
  if (placement.is_partial()) {
    // Each but the last has a number of its own, and the last what is missing.
    Operand summand = whole;
    for (std::int64_t i = 0; i < whole.type.shape.elements(); ++i) {
      double missing = number_at(whole, i);
      for (int r = 0; r < ranks - 1; ++r) {
        const double own = static_cast<double>((i * 5 + r * 3) % 7) / 4 - 0.5;
        if (r == rank) set_number(summand, i, own);
        missing -= own;
      }
      if (rank == ranks - 1) set_number(summand, i, missing);
    }
    return summand;
  }
  Operand part = zeros({whole.type.dtype, held});  // a flat one's padding stays 0
  const std::vector<std::int64_t> indices = indices_of_part(whole.type.shape, placement, rank, ranks);
  for (std::size_t i = 0; i < indices.size(); ++i) copy_element(whole, indices[i], part, static_cast<std::int64_t>(i));
  return part;
}

Joined joined(const TensorType& whole, const std::vector<Operand>& parts, Placement placement) {
  const int ranks = static_cast<int>(parts.size());
  Joined made{zeros(whole)};
  if (placement.is_replicate()) {
    made.whole = parts[0];
    for (const Operand& part : parts) made.disagreement = std::max(made.disagreement, difference(part, parts[0]));
  } else if (placement.is_partial()) {
    for (std::int64_t i = 0; i < whole.shape.elements(); ++i) {
      double sum = 0;
      for (const Operand& part : parts) sum += number_at(part, i);
      set_number(made.whole, i, sum);
    }
  } else {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<std::int64_t> indices = indices_of_part(whole.shape, placement, rank, ranks);
      for (std::size_t i = 0; i < indices.size(); ++i)
        copy_element(parts[static_cast<std::size_t>(rank)], static_cast<std::int64_t>(i), made.whole, indices[i]);
    }
  }
  return made;
}

}  // namespace consist::testing
