// Operands of a kernel on the host: types and bytes, and how values of the float types are read and written.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "consist/mesh.h"
#include "consist/op.h"

namespace consist::testing {

struct Operand {
  TensorType type;
  std::vector<char> bytes;
};

/// Operands as an op has them: absent optional ones are nullopt.
using Operands = std::vector<std::optional<Operand>>;

/// Numbers that examples are tried with.
enum class Numbers {
  of_both_signs,
  positive,  ///< for ops that are defined for such only, as a logarithm is
};

bool is_float(DType dtype);  ///< f32 or bf16: the suites understand its values
std::int64_t bytes_of(const TensorType& type);

double number_at(const Operand& operand, std::int64_t index);
void set_number(Operand& operand, std::int64_t index, double value);

/// f32 and bf16: numbers between -1.6 and 1.6 (or 0.2 and 1.7), none of which is 0, ½ or 1; i32: 0 and 1; else bytes 0. Equal for
/// equal `salt`.
Operand filled(const TensorType& type, int salt, Numbers numbers);
Operands filled(const Types& types, int salt, Numbers numbers);

/// The part of a tensor that rank `rank` of `ranks` holds under `placement`. Of partial() a summand: the summands differ.
Operand part_of(const Operand& whole, Placement placement, int rank, int ranks);
/// The tensor of type `whole` whose parts these are, and how far parts that should be equal differ (the largest difference).
struct Joined {
  Operand whole;
  double disagreement = 0;
};
Joined joined(const TensorType& whole, const std::vector<Operand>& parts, Placement placement);

}  // namespace consist::testing
