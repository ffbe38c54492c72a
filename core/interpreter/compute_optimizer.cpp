// Formulas of the norm, clipping and the optimizers, from the papers: AdamW (Loshchilov & Hutter, 2019), SGD with PyTorch's
// momentum, Lion (Chen et al., 2023, algorithm 2), Muon (Jordan et al., 2024, in the form of torch.optim.Muon).
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "consist/map_update.h"
#include "core/interpreter/work.h"

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

void hold_update(Work& w) {
  const bool held = w.scalar(2) != 0;
  Value scalars = w.in(0);
  if (held) scalars.at(0) = 0;
  w.out(0, scalars);
  w.out(1, held ? -1 : w.scalar(1));
}

void adamw(Work& w) {
  const Value scalars = w.in(0);
  const bool held = w.scalar(1) < 0;
  const double rate = scalars.at(0), coefficient = w.scalar(1), beta1 = w.attributes().real("beta1"),
               beta2 = w.attributes().real("beta2"), epsilon = w.attributes().real("epsilon"),
               decay = w.attributes().real("weight_decay");
  for (std::size_t k = 0; 2 + 5 * k < w.inputs(); ++k) {
    const std::size_t at = 2 + 5 * k;
    const bool has_master = w.has(at + 2);
    const Value gradient = w.in(at + 1);
    Value weight = w.in(has_master ? at + 2 : at), m = w.in(at + 3), v = w.in(at + 4);
    for (std::size_t i = 0; i < weight.data.size() && !held; ++i) {
      const double g = coefficient * gradient.data[i];
      m.data[i] = beta1 * m.data[i] + (1 - beta1) * g;
      v.data[i] = beta2 * v.data[i] + (1 - beta2) * g * g;
      weight.data[i] = weight.data[i] * (1 - rate * decay) -
                       rate / scalars.at(1) * m.data[i] / (std::sqrt(v.data[i]) / std::sqrt(scalars.at(2)) + epsilon);
    }
    w.out(4 * k, weight);
    if (has_master) w.out(4 * k + 1, weight);
    w.out(4 * k + 2, m);
    w.out(4 * k + 3, v);
  }
}

/// One parameter of an update with one state at most: the weights to update, the clipped gradient, the momentum (zeros if
/// absent).
struct Update {
  Value weight, gradient, momentum;
};

/// Rules whose states are one momentum: `rule` changes the three.
template <typename Rule>
void update_each(Work& w, const Rule& rule) {
  const double coefficient = w.scalar(1);
  const bool held = coefficient < 0;
  for (std::size_t k = 0; 2 + 4 * k < w.inputs(); ++k) {
    const std::size_t at = 2 + 4 * k;
    const bool has_master = w.has(at + 2);
    Update u{w.in(has_master ? at + 2 : at), w.in(at + 1), {}};
    u.momentum = w.has(at + 3) ? w.in(at + 3) : reference::zeros(DType::f32, u.weight.shape);
    for (double& g : u.gradient.data) g *= coefficient;
    if (!held) rule(u);
    w.out(3 * k, u.weight);
    if (has_master) w.out(3 * k + 1, u.weight);
    w.out(3 * k + 2, u.momentum);
  }
}

void sgd(Work& w) {
  const double rate = w.in(0).at(0), mu = w.attributes().real("momentum"), decay = w.attributes().real("weight_decay");
  const bool nesterov = w.attributes().integer("nesterov") != 0;
  update_each(w, [&](Update& u) {
    for (std::size_t i = 0; i < u.weight.data.size(); ++i) {
      double &p = u.weight.data[i], &b = u.momentum.data[i];
      const double g = u.gradient.data[i] + decay * p;
      b = mu * b + g;
      p -= rate * (nesterov ? g + mu * b : b);
    }
  });
}

void lion(Work& w) {
  const double rate = w.in(0).at(0), beta1 = w.attributes().real("beta1"), beta2 = w.attributes().real("beta2"),
               decay = w.attributes().real("weight_decay");
  update_each(w, [&](Update& u) {
    for (std::size_t i = 0; i < u.weight.data.size(); ++i) {
      double &p = u.weight.data[i], &m = u.momentum.data[i];
      const double g = u.gradient.data[i], c = beta1 * m + (1 - beta1) * g;
      p -= rate * ((c > 0) - (c < 0) + decay * p);
      m = beta2 * m + (1 - beta2) * g;
    }
  });
}

void muon_momentum(Work& w) {
  const double coefficient = w.scalar(0), mu = w.attributes().real("momentum");
  const bool nesterov = w.attributes().integer("nesterov") != 0;
  const Value gradient = w.in(1);
  Value momentum = w.in(2), direction = gradient;
  for (std::size_t i = 0; i < momentum.data.size(); ++i) {
    if (coefficient < 0) {
      direction.data[i] = 0;
      continue;
    }
    const double g = coefficient * gradient.data[i];
    momentum.data[i] += (1 - mu) * (g - momentum.data[i]);
    direction.data[i] = nesterov ? g + mu * (momentum.data[i] - g) : momentum.data[i];
  }
  w.out(0, momentum);
  w.out(1, direction);
}

using Matrix = std::vector<std::vector<double>>;

Matrix transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) t[j][i] = a[i][j];
  }
  return t;
}

/// alpha a + beta b c.
Matrix combined(double alpha, const Matrix& a, double beta, const Matrix& b, const Matrix& c) {
  Matrix sum = a;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    for (double& x : sum[i]) x *= alpha;
    for (std::size_t k = 0; k < c.size(); ++k) {
      for (std::size_t j = 0; j < sum[i].size(); ++j) sum[i][j] += beta * b[i][k] * c[k][j];
    }
  }
  return sum;
}

/// X = G / |G|, then some times A = X X', B = b A + c A A, X = a X + B X; of the transposed matrix where that has fewer rows.
void orthogonalize(Work& w) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  Value value = w.in(0);
  const auto rows = static_cast<std::size_t>(value.shape[0]), columns = static_cast<std::size_t>(value.shape[1]);
  double squares = 0;
  for (const double g : value.data) squares += g * g;
  Matrix x(rows, std::vector<double>(columns));
  for (std::size_t i = 0; i < value.data.size(); ++i) x[i / columns][i % columns] = value.data[i] / std::max(std::sqrt(squares), 1e-7);  // a matrix of zeros stays one
  if (rows > columns) x = transposed(x);
  for (std::int64_t n = w.attributes().integer("iterations"); n > 0; --n) {
    const Matrix zero(x.size(), std::vector<double>(x.size())), gram = combined(0, zero, 1, x, transposed(x));
    x = combined(a, x, 1, combined(b, gram, c, gram, gram), x);
  }
  if (rows > columns) x = transposed(x);
  for (std::size_t i = 0; i < value.data.size(); ++i) value.data[i] = x[i / columns][i % columns];
  w.out(0, value);
}

void muon(Work& w) {
  const double rate = w.in(0).at(0), scale = w.attributes().real("scale"), decay = w.attributes().real("weight_decay");
  const Value orthogonal = w.in(2);
  Value weight = w.in(w.has(3) ? 3 : 1);
  for (std::size_t i = 0; i < weight.data.size(); ++i)
    weight.data[i] = (1 - rate * decay) * weight.data[i] - rate * scale * orthogonal.data[i];
  w.out(0, weight);
  if (w.has(3)) w.out(1, weight);
}

/// map_update_N, by its loops.
void map_update(Work& w) {
  const int states = w.op().states_per_update();
  const std::size_t each = 3 + static_cast<std::size_t>(states);
  for (std::size_t p = 2, made = 0; p < w.inputs(); p += each, made += each - 1) {
    const bool has_master = w.has(p + 2);
    const UpdateLoops loops = update_loops(w.attributes(), states, has_master);
    reference::Values in{w.in(has_master ? p + 2 : p), w.in(p + 1), w.in(0), w.in(1)};
    for (std::size_t s = 3; s < each; ++s) in.push_back(w.in(p + s));
    Shape rows = in[0]->shape, blocks;
    if (const std::int64_t block = w.attributes().integer_or("block", 0); block > 0) {
      blocks = {rows.elements() / block};
      rows = {blocks[0], block};
    }
    for (const Expressions& f : loops.largest) in.push_back(reference::reduce(in, f, "max", rows)[0]);
    std::map<Reads, std::vector<Value>> results;
    const auto compute = [&](Reads how, const Expressions& f, const Shape& shape) {
      for (const std::optional<Value>& value : reference::map(in, f, shape)) results[how].push_back(*value);
    };
    compute(Reads::same, loops.elements, rows);
    compute(Reads::block, loops.blocks, blocks);
    compute(Reads::element, loops.scalars, {});
    std::map<Reads, std::size_t> next;
    const auto write = [&](std::size_t output, Reads how, const Shape& shape) {
      Value value = results[how][next[how]++];
      value.shape = shape;
      w.out(output, value);
    };
    write(made, Reads::same, in[0]->shape);
    if (has_master) write(made + 1, Reads::same, in[0]->shape);
    for (std::size_t s = 0; s < loops.states.size(); ++s) write(made + 2 + s, loops.states[s], in[update_state_input + s]->shape);
  }
}

}  // namespace

const std::vector<std::pair<std::string_view, Formula>>& optimizer_formulas() {
  static const std::vector<std::pair<std::string_view, Formula>> table{{"sum_of_squares", sum_of_squares},
                                                                       {"clip_coefficient", clip_coefficient},
                                                                       {"hold_update", hold_update},
                                                                       {"adamw", adamw},
                                                                       {"sgd", sgd},
                                                                       {"lion", lion},
                                                                       {"muon_momentum", muon_momentum},
                                                                       {"orthogonalize", orthogonalize},
                                                                       {"muon", muon},
                                                                       {"map_update_1", map_update},
                                                                       {"map_update_2", map_update},
                                                                       {"map_update_3", map_update},
                                                                       {"map_update_4", map_update},
                                                                       {"map_update_5", map_update},
                                                                       {"map_update_6", map_update},
                                                                       {"map_update_7", map_update},
                                                                       {"map_update_8", map_update}};
  return table;
}

}  // namespace consist::interpreter
