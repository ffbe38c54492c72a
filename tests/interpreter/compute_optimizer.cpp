// Formulas of the norm, clipping and AdamW.
#include <algorithm>
#include <cmath>

#include "tests/interpreter/work.h"

namespace consist::interpreter {
namespace {

using reference::Value;

void sum_of_squares(Work& w) {
  double sum = 0;
  for (std::size_t k = 0; k < w.inputs(); ++k) {
    for (const double x : w.in(k).data) sum += x * x;
  }
  w.out(0, sum);
}

void clip_coefficient(Work& w) {
  const double norm = std::sqrt(w.scalar(0)), max_norm = w.attributes().real("max_norm");
  w.out(0, norm);
  w.out(1, max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0);
}

void adamw(Work& w) {
  const Value hyper = w.in(0);
  const double rate = hyper.at(0), coefficient = w.scalar(1), beta1 = w.attributes().real("beta1"),
               beta2 = w.attributes().real("beta2"), epsilon = w.attributes().real("epsilon"),
               decay = w.attributes().real("weight_decay");
  for (std::size_t k = 0; 2 + 5 * k < w.inputs(); ++k) {
    const std::size_t at = 2 + 5 * k;
    const bool has_master = w.has(at + 2);
    const Value gradient = w.in(at + 1);
    Value weight = w.in(has_master ? at + 2 : at), m = w.in(at + 3), v = w.in(at + 4);
    for (std::size_t i = 0; i < weight.data.size(); ++i) {
      const double g = coefficient * gradient.data[i];
      m.data[i] = beta1 * m.data[i] + (1 - beta1) * g;
      v.data[i] = beta2 * v.data[i] + (1 - beta2) * g * g;
      weight.data[i] = weight.data[i] * (1 - rate * decay) -
                       rate / hyper.at(1) * m.data[i] / (std::sqrt(v.data[i]) / std::sqrt(hyper.at(2)) + epsilon);
    }
    w.out(4 * k, weight);
    if (has_master) w.out(4 * k + 1, weight);
    w.out(4 * k + 2, m);
    w.out(4 * k + 3, v);
  }
}

}  // namespace

const std::vector<std::pair<std::string_view, Formula>>& optimizer_formulas() {
  static const std::vector<std::pair<std::string_view, Formula>> table{
      {"sum_of_squares", sum_of_squares}, {"clip_coefficient", clip_coefficient}, {"adamw", adamw}};
  return table;
}

}  // namespace consist::interpreter
