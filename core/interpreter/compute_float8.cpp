// Formulas of quantization and of products of 8-bit floats. Codes are not rounded: what is checked is that each code meets the
// scale that it was made with. Scales come from largest magnitudes, so that those of two tensors, blocks or ranks differ.
#include <algorithm>
#include <cmath>

#include "consist/float8_scaling.h"
#include "core/interpreter/work.h"
#include "core/reference/gradients.h"
#include "core/reference/moe.h"

namespace consist::interpreter {
namespace {

using reference::Value;

/// A power of two that brings `amax` near the largest number of the dtype.
double scale_of(double amax, DType dtype) {
  const double most = dtype == DType::e4m3 ? 448 : 57344;
  return amax > 0 ? std::exp2(std::floor(std::log2(most / amax))) : 1;
}

double largest_of(const Value& x) {
  double largest = 0;
  for (const double value : x.data) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Where the descale of element (row, column) of a matrix lies.
std::int64_t descale_index(Scaling scaling, std::int64_t rows, std::int64_t columns, std::int64_t row, std::int64_t column) {
  if (scaling == Scaling::row) return row;
  if (scaling == Scaling::block_1d) return column / scale_block * rows + row;
  if (scaling == Scaling::block_2d) return row / scale_block * square_stride(columns) + column / scale_block;
  return 0;
}

Value transposed(const Value& x, std::int64_t rows, std::int64_t columns) {
  Value turned = x;
  for (std::int64_t i = 0; i < rows * columns; ++i) turned.at(i % columns * rows + i / columns) = x.at(i);
  return turned;
}

struct Codes {
  Value codes;
  std::vector<double> descales;  ///< as many as `room`, of which a small part uses the first
};

Codes quantized(const Value& x, std::int64_t rows, std::int64_t columns, Scaling scaling, DType dtype, std::int64_t room) {
  Codes made{x, std::vector<double>(static_cast<std::size_t>(room), 0.0)};
  const auto descale = [&](std::int64_t i) -> double& {
    return made.descales.at(static_cast<std::size_t>(descale_index(scaling, rows, columns, i / columns, i % columns)));
  };
  for (std::int64_t i = 0; i < rows * columns; ++i) descale(i) = std::max(descale(i), std::abs(x.at(i)));
  for (double& largest : made.descales) largest = 1 / scale_of(largest, dtype);
  for (std::int64_t i = 0; i < rows * columns; ++i) made.codes.at(i) = x.at(i) / descale(i);
  return made;
}

void amax(Work& w) {
  w.out(0, largest_of(w.in(0)));
}

void quantize(Work& w) {
  const Value x = w.in(0);
  const Scaling scaling = scaling_of(w.attributes());
  const DType dtype = w.out_dtype(0);
  const std::int64_t columns = x.shape.last(), rows = x.shape.elements() / columns;
  if (!has_transposed_scales(scaling)) {
    double largest = w.in(1).at(0);
    if (scaling == Scaling::delayed) {
      if (largest == 0) largest = largest_of(x);
      w.out(3, largest_of(x));
    }
    const double scale = scale_of(largest, dtype);
    Value codes = x;
    for (double& code : codes.data) code *= scale;
    w.out(0, codes);
    w.out(1, transposed(codes, rows, columns));
    return w.out(2, 1 / scale);
  }
  const auto make = [&](std::size_t k, const Value& matrix, std::int64_t m, std::int64_t n) {
    const Codes made = quantized(matrix, m, n, scaling, dtype, w.out_shape(k + 2).elements());
    w.out(k, made.codes);
    w.out(k + 2, Value{DType::f32, w.out_shape(k + 2), made.descales});
  };
  make(0, x, rows, columns);
  make(1, transposed(x, rows, columns), columns, rows);
}

void rank_values(Work& w) {
  Value row = reference::zeros(DType::f32, w.out_shape(0));
  for (std::size_t k = 0; k < w.inputs(); ++k) row.data.at(k) = w.scalar(k);
  w.out(0, row);
}

void quantize_part(Work& w) {
  Value x = w.in(0);
  const Value amaxes = w.in(1);
  double largest = 0;
  for (std::int64_t rank = 0; rank < amaxes.shape[0]; ++rank)
    largest = std::max(largest, amaxes.at(rank * amaxes.shape[1] + w.attributes().integer("column")));
  const double scale = scale_of(largest, w.out_dtype(0));
  for (double& value : x.data) value *= scale;
  w.out(0, x);
  w.out(1, 1 / scale);
}

void transpose(Work& w) {
  const Value x = w.in(0);
  w.out(0, transposed(x, x.shape.elements() / x.shape.last(), x.shape.last()));
}

void record_amaxes(Work& w) {
  const Value amaxes = w.in(0);
  const std::int64_t first = w.attributes().integer("first"), columns = w.attributes().integer("columns");
  for (std::size_t k = 0; k < w.outputs(); ++k) {
    Value history = w.in(k + 1);
    double largest = 0;
    for (std::int64_t rank = 0; rank < amaxes.shape[0]; ++rank) {
      for (std::int64_t i = 0; i < columns; ++i)
        largest = std::max(largest, amaxes.at(rank * amaxes.shape[1] + first + static_cast<std::int64_t>(k) * columns + i));
    }
    std::copy_backward(history.data.begin() + 1, history.data.end() - 1, history.data.end());
    history.data[1] = largest;
    history.data[0] = *std::max_element(history.data.begin() + 1, history.data.end());
    w.out(k, history);
  }
}

/// The numbers that codes [rows, columns] stand for.
Value decoded(Value codes, const Value& descales, Scaling scaling, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows * columns; ++i)
    codes.at(i) *= descales.at(descale_index(scaling, rows, columns, i / columns, i % columns));
  codes.shape = {1, rows, columns};
  return codes;
}

/// a [m, k] bᵀ [k, n], whose descales follow them; `m` rows of a.
Value product(const Work& w, std::string_view op, std::int64_t m) {
  const Value a = w.in(0), b = w.in(2);
  const std::int64_t k = a.shape.elements() / std::max<std::int64_t>(m, 1), n = b.shape[0];
  const OperandScalings scalings = operand_scalings(op, w.attributes());
  Value rows = decoded(a, w.in(1), scalings.a, m, k), columns = decoded(b, w.in(3), scalings.b, n, k);
  columns.shape = {n, k};
  return *reference::linear({rows, columns})[0];
}

void fp8_linear(Work& w) {
  Value y = product(w, "fp8_linear", w.in(0).shape.rows());
  if (w.has(4)) {
    const Value bias = w.in(4);
    for (std::int64_t i = 0; i < y.shape.elements(); ++i) y.at(i) += bias.at(i % bias.shape[0]);
  }
  w.out(0, y);
}
void fp8_linear_input_grad(Work& w) {
  w.out_sum(0, 4, product(w, "fp8_linear_input_grad", w.in(0).shape.rows()));
}
void fp8_linear_weight_grad(Work& w) {
  w.out_sum(0, 4, product(w, "fp8_linear_weight_grad", w.in(0).shape[0]));
}

/// The numbers that codes with one scale stand for.
Value decoded(const Work& w, std::size_t operand) {
  Value codes = w.in(operand);
  const double descale = w.scalar(operand + 1);
  for (double& code : codes.data) code *= descale;
  return codes;
}
void fp8_grouped_linear(Work& w) {
  w.out(0, reference::grouped_linear(decoded(w, 0), decoded(w, 2), w.in(4)));
}
void fp8_grouped_linear_input_grad(Work& w) {
  const Value turned = decoded(w, 2);  // [in, experts, out]
  const std::int64_t in = turned.shape[0], experts = turned.shape[1], out = turned.shape[2];
  Value weights = transposed(turned, in, experts * out);
  weights.shape = {experts, out, in};
  w.out(0, reference::grouped_linear_input_grad(decoded(w, 0), weights, w.in(4)));
}

}  // namespace

const std::vector<std::pair<std::string_view, Formula>>& float8_formulas() {
  static const std::vector<std::pair<std::string_view, Formula>> table{
      {"amax", amax},
      {"quantize", quantize},
      {"rank_values", rank_values},
      {"quantize_part", quantize_part},
      {"transpose", transpose},
      {"record_amaxes", record_amaxes},
      {"fp8_linear", fp8_linear},
      {"fp8_linear_input_grad", fp8_linear_input_grad},
      {"fp8_linear_weight_grad", fp8_linear_weight_grad},
      {"fp8_grouped_linear", fp8_grouped_linear},
      {"fp8_grouped_linear_input_grad", fp8_grouped_linear_input_grad}};
  return table;
}

}  // namespace consist::interpreter
