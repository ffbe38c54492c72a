// Random operands, and gradients of the ops of docs/ops.md by central differences of their formulas.
#pragma once

#include <functional>
#include <random>
#include <string_view>

#include "core/reference/ops.h"

namespace consist::reference {

/// Normal numbers times `scale` around `mean`, exact in `dtype`.
Value random_value(std::mt19937& random, DType dtype, const Shape& shape, double scale = 1, double mean = 0);

/// Whole numbers in [low, high), as i32.
Value random_ids(std::mt19937& random, const Shape& shape, int low, int high);

/// The outputs of a forward op. Throws std::invalid_argument for one that is not here.
Values forward(std::string_view op, const Values& in, const Attributes& attributes);

/// d/dx of `function` at x, element by element: central differences in fp64, whose error is about 1e-9 of the function's scale.
std::vector<double> numerical_gradient(std::vector<double>& x, const std::function<double()>& function);

/// The gradient of Σ dy·y, y being the op's first output, by input `which`. Inputs count as exact f32 throughout: nothing is
/// rounded inside.
Value gradient(std::string_view op, Values in, const Attributes& attributes, std::size_t which, const Value& dy);

}  // namespace consist::reference
