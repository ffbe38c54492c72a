#include "core/reference/ops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "consist/float8.h"
#include "consist/head_parts.h"
#include "consist/token_order.h"

namespace consist::reference {

Values embedding(const Values& in) {
  const Value &ids = *in[0], &table = *in[1];
  const std::int64_t c = table.shape[1];
  Value y = zeros(table.dtype, {ids.shape[0], ids.shape[1], c});
  for (std::int64_t t = 0; t < ids.shape.elements(); ++t) {
    for (std::int64_t i = 0; i < c; ++i) y.at(t * c + i) = table.at(static_cast<std::int64_t>(ids.at(t)) * c + i);
  }
  return {y};
}

Values linear(const Values& in) {
  const Value &x = *in[0], &w = *in[1];
  const std::int64_t out = w.shape[0], k = w.shape[1];
  Value y = zeros(x.dtype, {x.shape[0], x.shape[1], out});
  // Sums of a row's outputs side by side, each in the order of i.
  std::vector<double> columns(static_cast<std::size_t>(k * out));
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t i = 0; i < k; ++i) columns[static_cast<std::size_t>(i * out + o)] = w.at(o * k + i);
  }
  for (std::int64_t row = 0; row < x.shape.rows(); ++row) {
    double* const sums = y.data.data() + row * out;
    if (in.size() > 2 && in[2]) std::copy_n(in[2]->data.data(), out, sums);
    for (std::int64_t i = 0; i < k; ++i) {
      const double factor = x.at(row * k + i);
      const double* const column = columns.data() + i * out;
      for (std::int64_t o = 0; o < out; ++o) sums[o] += factor * column[o];
    }
  }
  return {y};
}

Values rms_norm(const Values& in, double epsilon) {
  Value x = *in[0];
  const Value& w = *in[2];
  const std::int64_t c = w.shape[0];
  if (in[1]) {
    for (std::int64_t i = 0; i < x.shape.elements(); ++i)
      x.at(i) = x.dtype == DType::bf16 ? rounded(x.at(i) + in[1]->at(i), x.dtype) : x.at(i) + in[1]->at(i);
  }
  Value y = zeros(x.dtype, x.shape), rstd = zeros(DType::f32, {x.shape[0], x.shape[1]});
  for (std::int64_t row = 0; row < x.shape.rows(); ++row) {
    double squares = 0;
    for (std::int64_t i = 0; i < c; ++i) squares += x.at(row * c + i) * x.at(row * c + i);
    rstd.at(row) = 1 / std::sqrt(squares / static_cast<double>(c) + epsilon);
    for (std::int64_t i = 0; i < c; ++i) y.at(row * c + i) = x.at(row * c + i) * rstd.at(row) * w.at(i);
  }
  if (!in[1]) return {y, std::nullopt, rstd};
  return {y, x, rstd};
}

Values rope(const Values& in, std::int64_t head_dim, double epsilon) {
  const Value &x = *in[0], &table = *in[1];
  const bool normed = in.size() > 2 && in[2];
  const std::int64_t heads = x.shape[2] / head_dim, half = head_dim / 2;
  Value y = zeros(x.dtype, x.shape), rstd = zeros(DType::f32, {x.shape[0], x.shape[1], heads});
  for (std::int64_t token = 0; token < x.shape.rows(); ++token) {
    const std::int64_t row = token % x.shape[1] * head_dim;
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t base = (token * heads + head) * head_dim;
      double squares = 0;
      for (std::int64_t i = 0; i < head_dim; ++i) squares += x.at(base + i) * x.at(base + i);
      const double scale = normed ? 1 / std::sqrt(squares / static_cast<double>(head_dim) + epsilon) : 1;
      rstd.at(token * heads + head) = scale;
      for (std::int64_t i = 0; i < half; ++i) {
        const double a = x.at(base + i) * scale * (normed ? in[2]->at(i) : 1),
                     b = x.at(base + half + i) * scale * (normed ? in[2]->at(half + i) : 1);
        const double cosine = table.at(row + i), sine = table.at(row + half + i);
        y.at(base + i) = a * cosine - b * sine;
        y.at(base + half + i) = b * cosine + a * sine;
      }
    }
  }
  if (!normed) return {y, std::nullopt};
  return {y, rstd};
}

double attention_score(double product, std::int64_t head_dim, AttentionScores scores) {
  const double score = product * (scores.scale == 0 ? default_score_scale(head_dim) : scores.scale);
  return scores.cap == 0 ? score : scores.cap * std::tanh(score / scores.cap);
}

Values attention(const Values& in, std::int64_t head_dim, const Visibility& visibility, AttentionScores scores) {
  const Value &q = *in[0], &k = *in[1], &v = *in[2];
  const std::int64_t batch = q.shape[0], queries = q.shape[1], keys = k.shape[1], heads = q.shape[2] / head_dim,
                     kv_heads = k.shape[2] / head_dim, value_dim = v.shape[2] / kv_heads;
  Value o = zeros(q.dtype, {batch, queries, heads * value_dim}), lse = zeros(DType::f32, {batch, heads, queries});
  std::vector<double> p(static_cast<std::size_t>(keys));
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t kv = h / (heads / kv_heads);
      for (std::int64_t s = 0; s < queries; ++s) {
        const std::int64_t of_query = (b * queries + s) * heads + h, here = of_query * head_dim;
        double largest = -INFINITY, sum = 0;
        const auto each_key = [&](const auto& use) {
          for (std::int64_t t = 0; t < keys; ++t) {
            if (visibility.sees(b, s, queries, t)) use(p[static_cast<std::size_t>(t)], (b * keys + t) * kv_heads + kv);
          }
        };
        each_key([&](double& score, std::int64_t there) {
          score = 0;
          for (std::int64_t i = 0; i < head_dim; ++i) score += q.at(here + i) * k.at(there * head_dim + i);
          score = attention_score(score, head_dim, scores);
          largest = std::max(largest, score);
        });
        each_key([&](double& score, std::int64_t) { sum += score = std::exp(score - largest); });
        each_key([&](const double& score, std::int64_t there) {
          for (std::int64_t i = 0; i < value_dim; ++i)
            o.at(of_query * value_dim + i) += score / sum * v.at(there * value_dim + i);
        });
        lse.at((b * heads + h) * queries + s) = largest + std::log(sum);
      }
    }
  }
  return {o, lse};
}

std::vector<std::int64_t> positions_of_part(std::int64_t rows, std::int64_t parts, std::int64_t rank, std::int64_t shift) {
  std::vector<std::int64_t> positions;
  const std::int64_t part = (rank + parts - shift) % parts;
  for (std::int64_t row = 0; row < rows; ++row) positions.push_back(position_of(part * rows + row, rows * parts, parts));
  return positions;
}

Values merged_attention(const Values& a, const Values& b) {
  Value o = *a[0], lse = *a[1];
  const std::int64_t heads = lse.shape[1], queries = lse.shape[2], head_dim = o.shape[2] / heads;
  for (std::int64_t at = 0; at < lse.shape.elements(); ++at) {
    const double one = a[1]->at(at), other = b[1]->at(at), most = std::max(one, other);
    if (most == -INFINITY) continue;
    lse.at(at) = most + std::log(std::exp(one - most) + std::exp(other - most));
    const std::int64_t row = (at / (heads * queries) * queries + at % queries) * heads + at / queries % heads;
    for (std::int64_t i = row * head_dim; i < (row + 1) * head_dim; ++i)
      o.at(i) = a[0]->at(i) * std::exp(one - lse.at(at)) + b[0]->at(i) * std::exp(other - lse.at(at));
  }
  return {o, lse};
}

namespace {
/// Where channel `channel` of part `part` of head `head` of `heads` lies in that part's row.
std::int64_t place_in(const HeadPart& part, std::int64_t head, std::int64_t channel) {
  return part.shared ? channel : head * part.width + channel;
}
/// visit(place in the whole, part, place in the part) for every channel of every head.
template <typename Visit>
void each_channel(const HeadParts& parts, std::int64_t rows, std::int64_t heads, Visit visit) {
  for (std::int64_t head = 0; head < rows * heads; ++head) {
    const std::int64_t row = head / heads;
    for (std::size_t k = 0; k < parts.all().size(); ++k) {
      const HeadPart& part = parts.all()[k];
      const std::int64_t of_row = row * (part.shared ? part.width : heads * part.width);
      for (std::int64_t i = 0; i < part.width; ++i)
        visit(head * parts.head_dim() + part.first + i, k, of_row + place_in(part, head % heads, i));
    }
  }
}
Shape with_channels(Shape shape, std::int64_t channels) {
  shape[shape.rank() - 1] = channels;
  return shape;
}
}  // namespace

Values split(const Value& x, const std::string& text) {
  const HeadParts parts = HeadParts::parse(text);
  const std::int64_t heads = x.shape.last() / parts.head_dim();
  Values made;
  for (const HeadPart& part : parts.all())
    made.emplace_back(zeros(x.dtype, with_channels(x.shape, part.shared ? part.width : heads * part.width)));
  each_channel(parts, x.shape.rows(), heads,
               [&](std::int64_t whole, std::size_t k, std::int64_t at) { made[k]->at(at) += x.at(whole); });
  return made;
}

Values concat(const Values& in, const std::string& text) {
  const HeadParts parts = HeadParts::parse(text);
  std::size_t given = 0;
  while (!in[given]) ++given;
  const std::int64_t heads = in[given]->shape.last() / parts.all()[given].width;
  Value y = zeros(in[given]->dtype, with_channels(in[given]->shape, heads * parts.head_dim()));
  each_channel(parts, y.shape.rows(), heads, [&](std::int64_t whole, std::size_t k, std::int64_t at) {
    if (in[k]) y.at(whole) = in[k]->at(at);
  });
  return {y};
}

Values map(const Values& in, const std::string& f) {
  const Expressions expressions = Expressions::parse(f);
  const std::vector<ExpressionNode>& nodes = expressions.nodes();
  const auto whole = std::find_if(nodes.begin(), nodes.end(), [](const ExpressionNode& node) {
    return node.function == Function::input && node.reads == Reads::same;
  });
  return map(in, expressions, in[static_cast<std::size_t>(whole->input)]->shape);
}

Values map(const Values& in, const Expressions& expressions, const Shape& shape, const MatrixSlice& slice) {
  const std::vector<ExpressionNode>& nodes = expressions.nodes();
  std::vector<bool> live(nodes.size(), false);
  for (const int result : expressions.results()) live[static_cast<std::size_t>(result)] = true;
  for (std::size_t n = nodes.size(); n-- > 0;) {
    for (int k = 0; live[n] && k < arguments_of(nodes[n].function); ++k)
      live[static_cast<std::size_t>(nodes[n].arguments[static_cast<std::size_t>(k)])] = true;
  }
  const std::int64_t columns = slice.width != 0 ? slice.width : shape.last();
  Values made(expressions.results().size(), zeros(DType::f32, shape));
  std::vector<double> value(nodes.size());
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const ExpressionNode& node = nodes[n];
      if (!live[n]) continue;
      if (node.function == Function::constant) {
        value[n] = node.value;
      } else if (node.function == Function::channel) {
        value[n] = static_cast<double>((slice.first + i) % columns);
      } else if (node.function == Function::input) {
        const Value& x = *in[static_cast<std::size_t>(node.input)];
        const std::int64_t of_matrix = slice.first + i;
        const std::array<std::int64_t, 4> at{i, of_matrix % columns, of_matrix / columns, node.element};
        value[n] = x.at(at[static_cast<std::size_t>(node.reads)]);
      } else {
        std::array<double, 3> x{};
        for (std::size_t k = 0; k < static_cast<std::size_t>(arguments_of(node.function)); ++k)
          x[k] = value[static_cast<std::size_t>(node.arguments[k])];
        value[n] = evaluate<double>(node.function, x[0], x[1], x[2]);
      }
    }
    for (std::size_t k = 0; k < made.size(); ++k) made[k]->at(i) = value[static_cast<std::size_t>(expressions.results()[k])];
  }
  return made;
}

Values reduce(const Values& in, const Expressions& f, const std::string& by, const Shape& shape) {
  const Value elements = *map(in, f, shape)[0];
  const std::int64_t columns = shape.last();
  Value made = zeros(DType::f32, with_channels(shape, 1));
  for (std::int64_t row = 0; row < made.shape.elements(); ++row) {
    const auto first = elements.data.begin() + row * columns, end = first + columns;
    const double largest = *std::max_element(first, end);
    if (by == "sum")
      made.at(row) = std::accumulate(first, end, 0.0);
    else if (by == "max")
      made.at(row) = largest;
    else
      made.at(row) =
          largest + std::log(std::accumulate(first, end, 0.0, [&](double sum, double x) { return sum + std::exp(x - largest); }));
  }
  return {made};
}

Values margins(const Values& in, const Expressions& f, const Shape& shape, std::int64_t rows, const MatrixSlice& slice) {
  const Value elements = *map(in, f, shape, slice)[0];
  const std::int64_t columns = slice.width != 0 ? slice.width : shape.last();
  Value of_rows = zeros(DType::f32, {rows}), of_columns = zeros(DType::f32, {columns});
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    of_rows.at((slice.first + i) / columns) += elements.at(i);
    of_columns.at((slice.first + i) % columns) += elements.at(i);
  }
  return {of_rows, of_columns};
}

Values total(const Values& in, const std::string& f) {
  const Value elements = *map(in, f)[0];
  Value sum = zeros(DType::f32, {});
  sum.data[0] = std::accumulate(elements.data.begin(), elements.data.end(), 0.0);
  return {sum};
}

Value decode_weights(const Value& stored, const WeightBlocks& blocks) {
  Value weights = zeros(DType::f32, blocks.weights(stored.shape));
  const auto byte = [&](std::int64_t block, std::int64_t at) {
    return static_cast<std::uint32_t>(stored.at(block * blocks.bytes() + at));
  };
  for (std::int64_t i = 0; i < weights.shape.elements(); ++i) {
    const std::int64_t block = i / blocks.length, within = i % blocks.length;
    const auto scale = std::bit_cast<float>(byte(block, 0) | byte(block, 1) << 8 | byte(block, 2) << 16 | byte(block, 3) << 24);
    double number = 0;
    if (blocks.code == WeightBlocks::Code::nf4) {
      const std::uint32_t pair = byte(block, 4 + within / 2);
      number = nf4_values[within % 2 == 0 ? pair % 16 : pair / 16];
    } else {
      number = from_float8<e4m3_format>(static_cast<std::uint8_t>(byte(block, 4 + within)));
    }
    weights.at(i) = number * static_cast<double>(scale);
  }
  return weights;
}

Values swiglu(const Values& in) {
  Value h = *in[0];
  for (std::int64_t i = 0; i < h.shape.elements(); ++i) h.at(i) = in[0]->at(i) / (1 + std::exp(-in[0]->at(i))) * in[1]->at(i);
  return {h};
}

Values lm_head_log_probability(const Values& in) {
  const Value &x = *in[0], &w = *in[1], &targets = *in[2];
  const std::int64_t vocabulary = w.shape[0], c = w.shape[1];
  Value likely = zeros(DType::f32, targets.shape), denominators = likely;
  std::vector<double> logits(static_cast<std::size_t>(vocabulary));
  for (std::int64_t token = 0; token < x.shape.rows(); ++token) {
    double largest = -INFINITY, sum = 0;
    for (std::int64_t word = 0; word < vocabulary; ++word) {
      double logit = 0;
      for (std::int64_t i = 0; i < c; ++i) logit += x.at(token * c + i) * w.at(word * c + i);
      logits[static_cast<std::size_t>(word)] = logit;
      largest = std::max(largest, logit);
    }
    for (const double logit : logits) sum += std::exp(logit - largest);
    denominators.at(token) = largest + std::log(sum);
    if (targets.at(token) >= 0) likely.at(token) = logits[static_cast<std::size_t>(targets.at(token))] - denominators.at(token);
  }
  return {likely, denominators};
}

Values lm_head_loss(const Values& in, double scale) {
  const Values made = lm_head_log_probability(in);
  Value loss = zeros(DType::f32, {});
  for (const double likely : made[0]->data) loss.data[0] -= scale * likely;
  return {loss};
}

}  // namespace consist::reference
