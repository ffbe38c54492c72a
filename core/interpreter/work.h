// One instruction's operands, as the formulas of compute.cpp take them.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "consist/op.h"
#include "core/interpreter/arena.h"

namespace consist::interpreter {

class Work {
 public:
  Work(Arena& arena, InstructionId id)
      : arena_(arena), program_(arena.planned().program), i_(program_.instructions[static_cast<std::size_t>(id)]) {}

  const Op& op() const { return *i_.op; }
  const Attributes& attributes() const { return i_.attributes; }
  std::size_t inputs() const { return i_.inputs.size(); }
  std::size_t outputs() const { return i_.outputs.size(); }
  bool has(std::size_t k) const { return k < i_.inputs.size() && i_.inputs[k] != no_tensor; }
  bool makes(std::size_t k) const { return k < i_.outputs.size() && i_.outputs[k] != no_tensor; }

  /// As exact numbers, whatever the dtype, unless memory rounds: formulas round what they make in between, too.
  reference::Value in(std::size_t k) const {
    reference::Value value = arena_.read(i_.inputs.at(k));
    if (value.dtype != DType::i32 && !arena_.rounds()) value.dtype = DType::f32;
    return value;
  }
  double scalar(std::size_t k) const { return in(k).data.at(0); }
  reference::Values all(std::size_t count) const {
    reference::Values values;
    for (std::size_t k = 0; k < count; ++k) values.push_back(has(k) ? std::optional(in(k)) : std::nullopt);
    return values;
  }

  /// Where the rank's part begins in the logical tensor.
  std::int64_t in_origin(std::size_t k, int dim) const { return origin(i_.inputs.at(k), dim); }
  std::int64_t out_origin(std::size_t k, int dim) const { return origin(i_.outputs.at(k), dim); }
  /// The elements of the rank's matrix that an input is, where it is flat.
  reference::MatrixSlice slice(std::size_t k) const {
    const Tensor& tensor = program_[i_.inputs.at(k)];
    const AxisSet flat = tensor.placements.flat_axes();
    if (flat.empty()) return {};
    Placements matrix = tensor.placements;
    matrix.set(flat, Placement::replicate());
    return {local_shape(tensor.shape, matrix, program_.mesh).last(), in_origin(k, 0)};
  }
  Shape out_shape(std::size_t k) const { return program_.part(i_.outputs.at(k)).shape; }
  DType out_dtype(std::size_t k) const { return program_[i_.outputs.at(k)].dtype; }

  void out(std::size_t k, const reference::Value& value) {
    if (makes(k)) arena_.write(i_.outputs[k], value);
  }
  void out(std::size_t k, double value) { out(k, reference::Value{DType::f32, {}, {value}}); }
  /// Adds the accumulator that is input `accumulator`, if there is one.
  void out_sum(std::size_t k, std::size_t accumulator, reference::Value value) {
    if (has(accumulator)) add(value, in(accumulator));
    out(k, value);
  }
  /// Writes what an op makes and, behind its own outputs, the largest magnitudes that attribute "amax_of" asks for.
  void out_all(const reference::Values& made) {
    for (std::size_t k = 0; k < made.size(); ++k) {
      if (made[k]) out(k, *made[k]);
    }
    const std::int64_t of = attributes().integer_or("amax_of", 0);
    std::size_t next = made.size();
    for (std::size_t k = 0; k < made.size(); ++k) {
      if ((of >> k & 1) == 0) continue;
      double largest = 0;
      for (const double x : made[k]->data) largest = std::max(largest, std::abs(x));
      out(next++, largest);
    }
  }
  void out_elements(std::size_t k, std::int64_t first, const std::vector<double>& values) {
    arena_.write_elements(i_.outputs.at(k), first, values);
  }

  static void add(reference::Value& sum, const reference::Value& summand) {
    for (std::size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += summand.data.at(i);
  }

 private:
  std::int64_t origin(TensorId tensor, int dim) const { return program_.part(tensor).origin.at(static_cast<std::size_t>(dim)); }

  Arena& arena_;
  const Program& program_;
  const Instruction& i_;
};

using Formula = void (*)(Work&);

/// Adds the formula of an op that a test registers. Not while programs run.
void add_formula(std::string_view op, Formula formula);

/// The formulas of a family of ops, by op.
const std::vector<std::pair<std::string_view, Formula>>& float8_formulas();
const std::vector<std::pair<std::string_view, Formula>>& optimizer_formulas();
const std::vector<std::pair<std::string_view, Formula>>& moe_formulas();

}  // namespace consist::interpreter
