#include "core/reference/moe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace consist::reference {

namespace {

/// softmax(logits) of a row, and the logarithm of its denominator.
std::vector<double> softmax_row(const Value& logits, std::int64_t row, double& log_sum) {
  const std::int64_t n = logits.shape.last();
  double largest = -INFINITY, sum = 0;
  for (std::int64_t e = 0; e < n; ++e) largest = std::max(largest, logits.at(row * n + e));
  std::vector<double> p(static_cast<std::size_t>(n));
  for (std::int64_t e = 0; e < n; ++e) sum += p[static_cast<std::size_t>(e)] = std::exp(logits.at(row * n + e) - largest);
  for (double& x : p) x /= sum;
  log_sum = largest + std::log(sum);
  return p;
}

/// Where a token stands in [0, 1), and a number that chooses an order: halves of a hash.
std::pair<double, std::int64_t> place_of(std::int64_t id, std::int64_t router) {
  std::uint32_t h = static_cast<std::uint32_t>(id) * 2654435769U + static_cast<std::uint32_t>(router) * 2246822519U;
  h ^= h >> 16;
  h *= 2246822507U;
  h ^= h >> 13;
  h *= 3266489909U;
  h ^= h >> 16;
  return {(h >> 16) / 65536.0, h % 65536};
}

/// The experts in whose intervals place, place + 1, … lie: each behind the one before, with as many left as choices follow.
std::vector<std::int64_t> stated_choices(const StatedLoad& load, std::int64_t token, std::int64_t choices) {
  const std::int64_t orders = load.intervals.shape[0], experts = load.intervals.shape[2];
  const auto [place, number] = place_of(static_cast<std::int64_t>(load.ids.at(token)), load.router);
  const std::int64_t ends = number % orders * 2 * experts, owners = ends + experts;
  std::vector<std::int64_t> chosen;
  std::int64_t k = 0;
  for (std::int64_t j = 0; j < choices; ++j, ++k) {
    while (k < experts - (choices - j) && !(load.intervals.at(ends + k) > place + static_cast<double>(j))) ++k;
    chosen.push_back(static_cast<std::int64_t>(load.intervals.at(owners + k)));
  }
  return chosen;
}

/// The first `count` of the numbers below keys.size(), those with the largest keys first, of equal ones the smaller.
std::vector<std::int64_t> largest_of(const std::vector<double>& keys, std::int64_t count) {
  std::vector<std::int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return keys[static_cast<std::size_t>(a)] > keys[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

/// Those of the experts in the groups whose two largest keys sum to most keep theirs, the others get -inf.
void keep_groups(std::vector<double>& keys, const SigmoidRouter& router) {
  if (router.groups == 1) return;
  const std::size_t each = keys.size() / static_cast<std::size_t>(router.groups);
  std::vector<double> of_groups, kept(keys.size(), -INFINITY);
  for (std::size_t first = 0; first < keys.size(); first += each) {
    std::vector<double> group(keys.begin() + static_cast<std::ptrdiff_t>(first),
                              keys.begin() + static_cast<std::ptrdiff_t>(first + each));
    std::sort(group.begin(), group.end(), std::greater<>());
    of_groups.push_back(group[0] + group[1]);
  }
  for (const std::int64_t group : largest_of(of_groups, router.kept_groups)) {
    const auto first = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(group) * each),
               last = first + static_cast<std::ptrdiff_t>(each);
    std::copy(keys.begin() + first, keys.begin() + last, kept.begin() + first);
  }
  keys = kept;
}

/// The scores that a router makes of a row of logits.
struct Scores {
  double log_sum = 0;  ///< ahead of what writes it
  std::vector<double> softmax;
  std::vector<double> of_experts;  ///< softmax or sigmoids
  double sum = 0;                  ///< of them

  Scores(const Value& logits, std::int64_t row, bool sigmoid) : softmax(softmax_row(logits, row, log_sum)), of_experts(softmax) {
    for (std::size_t e = 0; e < softmax.size() && sigmoid; ++e)
      of_experts[e] = 1 / (1 + std::exp(-logits.at(row * logits.shape.last() + static_cast<std::int64_t>(e))));
    sum = sigmoid ? std::accumulate(of_experts.begin(), of_experts.end(), 0.0) : 1;
  }
};

/// The experts with the largest logits, or sigmoids with their bias.
std::vector<std::int64_t> best_choices(const Value& logits, std::int64_t row, std::int64_t choices, const Scores& scores,
                                       const SigmoidRouter* sigmoid) {
  const std::int64_t n = logits.shape.last();
  std::vector<double> keys(static_cast<std::size_t>(n));
  for (std::int64_t e = 0; e < n; ++e) {
    const auto at = static_cast<std::size_t>(e);
    keys[at] = sigmoid == nullptr ? logits.at(row * n + e)
                                  : scores.of_experts[at] + (sigmoid->bias == nullptr ? 0 : sigmoid->bias->at(e));
  }
  if (sigmoid != nullptr) keep_groups(keys, *sigmoid);
  return largest_of(keys, choices);
}

}  // namespace

Values moe_route(const Value& logits, std::int64_t choices, bool normalize, const StatedLoad* load,
                 const SigmoidRouter* sigmoid) {
  const std::int64_t n = logits.shape.last();
  const Shape chosen{logits.shape[0], logits.shape[1], choices};
  Value weights = zeros(DType::f32, chosen), experts = zeros(DType::i32, chosen), statistics = zeros(DType::f32, {2 * n + 1});
  for (std::int64_t row = 0; row < logits.shape.rows(); ++row) {
    const Scores scores(logits, row, sigmoid != nullptr);
    const std::vector<double>& s = scores.of_experts;
    const std::vector<std::int64_t> order =
        load != nullptr ? stated_choices(*load, row, choices) : best_choices(logits, row, choices, scores, sigmoid);
    double sum = 0;
    for (const std::int64_t e : order) sum += s[static_cast<std::size_t>(e)];
    for (std::int64_t j = 0; j < choices; ++j) {
      const std::int64_t e = order[static_cast<std::size_t>(j)];
      weights.at(row * choices + j) = s[static_cast<std::size_t>(e)] / (normalize ? sum : 1);
      experts.at(row * choices + j) = static_cast<double>(e);
      statistics.at(e) += 1;
    }
    for (std::int64_t e = 0; e < n; ++e) statistics.at(n + e) += s[static_cast<std::size_t>(e)] / scores.sum;
    statistics.at(2 * n) += scores.log_sum * scores.log_sum;
  }
  return {weights, experts, statistics};
}

Value moe_route_grad(const Value& logits, const Value& experts, const Value* dweights, const Value* dstatistics, bool normalize,
                     bool sigmoid) {
  const std::int64_t n = logits.shape.last(), choices = experts.shape.last();
  Value dlogits = zeros(logits.dtype, logits.shape);
  for (std::int64_t row = 0; row < logits.shape.rows(); ++row) {
    const Scores scores(logits, row, sigmoid);
    const std::vector<double>& s = scores.of_experts;
    std::vector<double> ds(s.size());
    if (dstatistics != nullptr) {  // of s over their sum
      double mean = 0;
      for (std::int64_t e = 0; e < n; ++e) mean += dstatistics->at(n + e) * s[static_cast<std::size_t>(e)] / scores.sum;
      for (std::int64_t e = 0; e < n; ++e) ds[static_cast<std::size_t>(e)] = (dstatistics->at(n + e) - mean) / scores.sum;
    }
    if (dweights != nullptr) {
      double sum = 0, mean = 0;
      const auto expert = [&](std::int64_t j) { return static_cast<std::size_t>(experts.at(row * choices + j)); };
      for (std::int64_t j = 0; j < choices; ++j) sum += s[expert(j)];
      for (std::int64_t j = 0; j < choices; ++j) mean += dweights->at(row * choices + j) * s[expert(j)] / sum;
      for (std::int64_t j = 0; j < choices; ++j) {
        const double dw = dweights->at(row * choices + j);
        ds[expert(j)] += normalize ? (dw - mean) / sum : dw;
      }
    }
    double inner = 0;
    for (std::size_t e = 0; e < s.size(); ++e) inner += s[e] * ds[e];
    const double dz = dstatistics == nullptr ? 0 : dstatistics->at(2 * n);
    for (std::int64_t e = 0; e < n; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const double of_scores = sigmoid ? s[at] * (1 - s[at]) * ds[at] : s[at] * (ds[at] - inner);
      dlogits.at(row * n + e) = of_scores + 2 * dz * scores.log_sum * scores.softmax[at];
    }
  }
  return dlogits;
}

void count_choices(Value& counts, const Value& statistics, std::int64_t row) {
  const std::int64_t columns = counts.shape.last();
  for (std::int64_t e = 0; e < statistics.shape[0] / 2; ++e) counts.at(row * columns + e) += statistics.at(e);
}

double balance_loss(const Value& statistics, double balance, double z, double count) {
  const std::int64_t n = statistics.shape[0] / 2;
  double loss = z * statistics.at(2 * n);
  for (std::int64_t e = 0; e < n; ++e) loss += balance * statistics.at(e) * statistics.at(n + e);
  return count * loss;
}

Value balance_loss_grad(const Value& statistics, double balance, double z, double count) {
  const std::int64_t n = statistics.shape[0] / 2;
  Value d = zeros(DType::f32, statistics.shape);
  for (std::int64_t e = 0; e < n; ++e) d.at(n + e) = count * balance * statistics.at(e);
  d.at(2 * n) = count * z;
  return d;
}

Values moe_dispatch(const Value& x, const Value& experts, const Value& weights, std::int64_t room, std::int64_t first,
                    std::int64_t held) {
  const std::int64_t c = x.shape.last(), choices = experts.shape.last();
  Value rows = zeros(x.dtype, {1, room, c}), row_weights = zeros(DType::f32, {room}), pairs = zeros(DType::i32, {room}),
        counts = zeros(DType::i32, {held}), overflow = zeros(DType::f32, {});
  std::fill(pairs.data.begin(), pairs.data.end(), -1);
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < held; ++e) {
    for (std::int64_t pair = 0; pair < experts.shape.elements(); ++pair) {
      if (static_cast<std::int64_t>(experts.at(pair)) != first + e) continue;
      if (row == room) {
        overflow.data[0] += 1;
        continue;
      }
      for (std::int64_t i = 0; i < c; ++i) rows.at(row * c + i) = x.at(pair / choices * c + i);
      row_weights.at(row) = weights.at(pair);
      pairs.at(row) = static_cast<double>(pair);
      counts.at(e) += 1;
      ++row;
    }
  }
  return {rows, row_weights, pairs, counts, overflow};
}

Value moe_combine(const Value& rows, const Value& pairs, const Value& experts) {
  const std::int64_t c = rows.shape.last(), choices = experts.shape.last();
  Shape tokens = experts.shape;
  tokens[tokens.rank() - 1] = c;
  Value y = zeros(rows.dtype, tokens);
  for (std::int64_t row = 0; row < pairs.shape[0]; ++row) {
    const auto pair = static_cast<std::int64_t>(pairs.at(row));
    for (std::int64_t i = 0; pair >= 0 && i < c; ++i) y.at(pair / choices * c + i) += rows.at(row * c + i);
  }
  return y;
}

Value moe_combine_grad(const Value& dy, const Value& pairs, std::int64_t choices) {
  const std::int64_t c = dy.shape.last();
  Value rows = zeros(dy.dtype, {1, pairs.shape[0], c});
  for (std::int64_t row = 0; row < pairs.shape[0]; ++row) {
    const auto pair = static_cast<std::int64_t>(pairs.at(row));
    for (std::int64_t i = 0; pair >= 0 && i < c; ++i) rows.at(row * c + i) = dy.at(pair / choices * c + i);
  }
  return rows;
}

Values moe_dispatch_grad(const Value& drows, const Value& drow_weights, const Value& pairs, const Value& experts) {
  Value dweights = zeros(DType::f32, experts.shape);
  for (std::int64_t row = 0; row < pairs.shape[0]; ++row) {
    if (pairs.at(row) >= 0) dweights.at(static_cast<std::int64_t>(pairs.at(row))) = drow_weights.at(row);
  }
  return {moe_combine(drows, pairs, experts), dweights};
}

namespace {

/// Calls visit(row, expert) for every row that is no padding.
template <typename Visit>
void each_row(const Value& counts, const Visit& visit) {
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < counts.shape[0]; ++e) {
    for (std::int64_t n = 0; n < static_cast<std::int64_t>(counts.at(e)); ++n) visit(row++, e);
  }
}

}  // namespace

Value grouped_linear(const Value& x, const Value& w, const Value& counts) {
  const std::int64_t out = w.shape[1], k = w.shape[2];
  Value y = zeros(x.dtype, {1, x.shape[1], out});
  each_row(counts, [&](std::int64_t row, std::int64_t e) {
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < k; ++i) y.at(row * out + o) += x.at(row * k + i) * w.at((e * out + o) * k + i);
    }
  });
  return y;
}

Value grouped_linear_input_grad(const Value& dy, const Value& w, const Value& counts) {
  const std::int64_t out = w.shape[1], k = w.shape[2];
  Value dx = zeros(dy.dtype, {1, dy.shape[1], k});
  each_row(counts, [&](std::int64_t row, std::int64_t e) {
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < k; ++i) dx.at(row * k + i) += dy.at(row * out + o) * w.at((e * out + o) * k + i);
    }
  });
  return dx;
}

Value grouped_linear_weight_grad(const Value& x, const Value& dy, const Value& counts) {
  const std::int64_t out = dy.shape.last(), k = x.shape.last();
  Value dw = zeros(DType::f32, {counts.shape[0], out, k});
  each_row(counts, [&](std::int64_t row, std::int64_t e) {
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < k; ++i) dw.at((e * out + o) * k + i) += dy.at(row * out + o) * x.at(row * k + i);
    }
  });
  return dw;
}

Value moe_swiglu(const Value& gate_up, const Value& row_weights) {
  const std::int64_t rows = gate_up.shape[1], f = gate_up.shape[2] / 2;
  Value h = zeros(gate_up.dtype, {1, rows, f});
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < f; ++i) {
      const double gate = gate_up.at(row * 2 * f + i);
      h.at(row * f + i) = row_weights.at(row) * gate / (1 + std::exp(-gate)) * gate_up.at(row * 2 * f + f + i);
    }
  }
  return h;
}

Values moe_swiglu_grad(const Value& dh, const Value& gate_up, const Value& row_weights) {
  const std::int64_t rows = gate_up.shape[1], f = gate_up.shape[2] / 2;
  Value d = zeros(gate_up.dtype, gate_up.shape), dweights = zeros(DType::f32, {rows});
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < f; ++i) {
      const double gate = gate_up.at(row * 2 * f + i), up = gate_up.at(row * 2 * f + f + i), dy = dh.at(row * f + i);
      const double sigmoid = 1 / (1 + std::exp(-gate)), w = row_weights.at(row);
      d.at(row * 2 * f + i) = w * dy * up * sigmoid * (1 + gate * (1 - sigmoid));
      d.at(row * 2 * f + f + i) = w * dy * gate * sigmoid;
      dweights.at(row) += dy * gate * sigmoid * up;
    }
  }
  return {d, dweights};
}

}  // namespace consist::reference
