#include "core/interpreter/compute.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "consist/error.h"
#include "consist/token_order.h"
#include "core/interpreter/compute_kernel.h"
#include "core/interpreter/work.h"
#include "core/reference/vocabulary.h"

namespace consist::interpreter {
namespace {

using reference::Value;
using reference::Values;

void embedding(Work& w) {
  const Value ids = w.in(0), table = w.in(1);
  const std::int64_t c = table.shape[1], first = w.in_origin(1, 0);
  Value y = reference::zeros(DType::f32, {ids.shape[0], ids.shape[1], c});
  for (std::int64_t t = 0; t < ids.shape.elements(); ++t) {
    const std::int64_t row = static_cast<std::int64_t>(ids.at(t)) - first;
    if (row < 0 || row >= table.shape[0]) continue;  // another rank's
    for (std::int64_t i = 0; i < c; ++i) y.at(t * c + i) = table.at(row * c + i);
  }
  w.out(0, y);
}

void embedding_grad(Work& w) {
  w.out_sum(0, 2,
            reference::embedding_grad(w.in(0), w.in(1), w.out_shape(0)[0], w.out_origin(0, 0),
                                      w.attributes().integer_or("padding_id", -1)));
}

void linear(Work& w) {
  w.out_sum(0, 3, *reference::linear(w.all(3))[0]);
}
void linear_input_grad(Work& w) {
  w.out_sum(0, 2, reference::linear_input_grad(w.in(0), w.in(1)));
}
void linear_weight_grad(Work& w) {
  w.out_sum(0, 2, reference::linear_weight_grad(w.in(0), w.in(1)));
}
void linear_bias_grad(Work& w) {
  w.out_sum(0, 1, reference::linear_bias_grad(w.in(0)));
}

void packed_linear(Work& w) {
  const Value x = w.in(0);
  for (std::size_t k = 0; k < w.outputs(); ++k) {
    Values one{x, w.in(1 + 2 * k), std::nullopt};
    if (w.has(2 + 2 * k)) one[2] = w.in(2 + 2 * k);
    w.out(k, *reference::linear(one)[0]);
  }
}
void packed_linear_input_grad(Work& w) {
  Value sum = reference::linear_input_grad(w.in(1), w.in(2));
  for (std::size_t k = 3; k < w.inputs(); k += 2) Work::add(sum, reference::linear_input_grad(w.in(k), w.in(k + 1)));
  w.out_sum(0, 0, sum);
}
void packed_linear_weight_grad(Work& w) {
  const Value x = w.in(0);
  for (std::size_t k = 0; k < w.outputs(); ++k) w.out_sum(k, 2 + 2 * k, reference::linear_weight_grad(x, w.in(1 + 2 * k)));
}

void rms_norm(Work& w) {
  Values made = reference::rms_norm(w.all(3), w.attributes().real("epsilon"));
  if (made.size() == 3 && made[1] && !w.has(1)) made[1].reset();
  w.out_all(made);
}
void rms_norm_grad(Work& w) {
  const Values made = reference::rms_norm_grad(w.in(0), w.in(1), w.in(2), w.in(3));
  w.out_sum(0, 4, *made[0]);
  if (w.makes(1)) w.out_sum(1, 5, *made[1]);
}

void rope(Work& w) {
  const Values made = reference::rope(w.all(3), w.attributes().integer("head_dim"), w.attributes().real_or("epsilon", 0));
  w.out(0, *made[0]);
  if (made[1]) w.out(1, *made[1]);
}
void rope_grad(Work& w) {
  const Value dy = w.in(0), table = w.in(1);
  const std::int64_t head_dim = w.attributes().integer("head_dim");
  if (!w.has(2)) return w.out(0, *reference::rope_grad(dy, table, nullptr, nullptr, nullptr, head_dim)[0]);
  const Value x = w.in(2), rstd = w.in(3), norm = w.in(4);
  const Values made = reference::rope_grad(dy, table, &x, &rstd, &norm, head_dim);
  if (w.makes(1)) w.out_sum(1, 5, *made[1]);
  w.out(0, *made[0]);
}

/// Visibility for an op whose inputs q and k are inputs `q` and `q` + 1 and whose document starts, if any, are `starts`.
reference::Visibility visibility(const Work& w, std::size_t q, const Value* starts) {
  reference::Visibility seen{.window = w.attributes().integer_or("window", 0), .starts = starts};
  const std::int64_t queries = w.in(q).shape[1], keys = w.in(q + 1).shape[1], zigzag = w.attributes().integer_or("zigzag", 0);
  for (std::int64_t row = 0; row < queries; ++row) seen.queries.push_back(position_of(w.in_origin(q, 1) + row, keys, zigzag));
  for (std::int64_t row = 0; row < keys; ++row) seen.keys.push_back(position_of(row, keys, zigzag));
  return seen;
}
void attention(Work& w) {
  const Value starts = w.has(3) ? w.in(3) : Value{};
  w.out_all(reference::attention(w.all(3), w.attributes().integer("head_dim"), visibility(w, 0, w.has(3) ? &starts : nullptr),
                                 attention_scores(w.attributes())));
}
void attention_grad(Work& w) {
  const Value starts = w.has(6) ? w.in(6) : Value{};
  w.out_all(reference::attention_grad(w.in(0), w.in(1), w.in(2), w.in(3), w.in(4), w.in(5), w.attributes().integer("head_dim"),
                                      visibility(w, 1, w.has(6) ? &starts : nullptr), attention_scores(w.attributes())));
}

/// Visibility of a part of the keys, as visibility().
reference::Visibility part_visibility(const Work& w, std::size_t q, const Value* starts) {
  reference::Visibility seen{.window = w.attributes().integer_or("window", 0), .starts = starts};
  const std::int64_t rows = w.in(q).shape[1], parts = w.attributes().integer("zigzag"), rank = w.in_origin(q, 1) / rows;
  seen.queries = reference::positions_of_part(rows, parts, rank, 0);
  seen.keys = reference::positions_of_part(rows, parts, rank, w.attributes().integer("shift"));
  return seen;
}
void attention_part(Work& w) {
  const Value starts = w.has(3) ? w.in(3) : Value{};
  const std::int64_t head_dim = w.attributes().integer("head_dim");
  const Values part = reference::attention(w.all(3), head_dim, part_visibility(w, 0, w.has(3) ? &starts : nullptr),
                                           attention_scores(w.attributes()));
  w.out_all(w.has(4) ? reference::merged_attention({w.in(4), w.in(5)}, part) : part);
}
void attention_part_grad(Work& w) {
  const Value starts = w.has(6) ? w.in(6) : Value{};
  const Values made =
      reference::attention_grad(w.in(0), w.in(1), w.in(2), w.in(3), w.in(4), w.in(5), w.attributes().integer("head_dim"),
                                part_visibility(w, 1, w.has(6) ? &starts : nullptr), attention_scores(w.attributes()));
  w.out_sum(0, 7, *made[0]);
  w.out(1, *made[1]);
  w.out(2, *made[2]);
}

void decode_weights(Work& w) {
  w.out(0, reference::decode_weights(w.in(0), weight_blocks(w.attributes())));
}

void swiglu(Work& w) {
  w.out_all(reference::swiglu(w.all(2)));
}
void swiglu_grad(Work& w) {
  w.out_all(reference::swiglu_grad(w.in(0), w.in(1), w.in(2)));
}

void split(Work& w) {
  w.out_all(reference::split(w.in(0), w.attributes().string("parts")));
}
void concat(Work& w) {
  w.out_all(reference::concat(w.all(w.inputs()), w.attributes().string("parts")));
}
void map(Work& w) {
  std::size_t any = 0;
  while (!w.makes(any)) ++any;
  w.out_all(reference::map(w.all(w.inputs()), Expressions::parse(w.attributes().string("f")), w.out_shape(any)));
}
void reduce(Work& w) {
  const reference::Values in = w.all(w.inputs());
  const Expressions f = Expressions::parse(w.attributes().string("f"));
  Shape shape = w.out_shape(0);
  if (w.attributes().integer_or("squeeze", 0) != 0) shape.push_back(1);
  shape[shape.rank() - 1] = w.attributes().integer_or("columns", 1);
  if (const int whole = f.first_read(Reads::same); whole >= 0) shape = in[static_cast<std::size_t>(whole)]->shape;
  Value made = *reference::reduce(in, f, w.attributes().string("by"), shape)[0];
  made.shape = w.out_shape(0);
  w.out(0, made);
}
void margins(Work& w) {
  const reference::Values in = w.all(w.inputs());
  const Expressions f = Expressions::parse(w.attributes().string("f"));
  const auto whole = static_cast<std::size_t>(f.first_read(Reads::same));
  const reference::MatrixSlice slice = w.slice(whole);
  const Shape shape = in[whole]->shape;
  const std::int64_t rows = w.makes(0) ? w.out_shape(0).elements() : (slice.first + shape.elements()) / w.out_shape(1)[0] + 1;
  reference::Values made = reference::margins(in, f, shape, rows, slice);
  if (w.makes(0)) made[0]->shape = w.out_shape(0);
  w.out_all(made);
}
void map_in_place(Work& w) {
  w.out_all(reference::map(w.all(w.inputs()), Expressions::parse(w.attributes().string("f")), w.out_shape(0), w.slice(0)));
}
void total(Work& w) {
  w.out_all(reference::total(w.all(w.inputs()), w.attributes().string("f")));
}

void lm_head_loss(Work& w) {
  w.out(0, *reference::lm_head_loss(w.all(3), w.attributes().real("scale"))[0]);
}
void lm_head_loss_grad(Work& w) {
  const Values made = reference::lm_head_loss_grad(w.all(3), w.attributes().real("scale"));
  if (w.makes(2)) w.out_sum(2, 3, *made[2]);
  w.out(0, *made[0]);
  if (w.makes(1)) w.out(1, *made[1]);
}

void lm_head_log_probability(Work& w) {
  w.out_all(reference::lm_head_log_probability(w.all(3)));
}
void lm_head_log_probability_grad(Work& w) {
  const Values in = w.all(6);  // the fourth is what the reference makes again
  const Values made = reference::lm_head_log_probability_grad({in[0], in[1], in[2], in[4], in[5]});
  if (w.makes(0)) w.out(0, *made[0]);
  if (w.makes(1)) w.out_sum(1, 6, *made[1]);
}

/// Vocabulary part of the op whose inputs x and w are inputs `x` and `x` + 1.
reference::VocabularyPart vocabulary_part(const Work& w, std::size_t x) {
  const std::int64_t tokens = w.in(x).shape.rows() / w.attributes().integer("chunks");
  return {w.attributes().integer("chunk") * tokens, tokens, w.in_origin(x + 1, 0)};
}
void vocabulary_logits(Work& w) {
  const Values made = reference::vocabulary_logits(w.in(0), w.in(1), w.in(2), vocabulary_part(w, 0));
  w.out(0, *made[0]);
  w.out(1, *made[1]);
}
void vocabulary_loss(Work& w) {
  const Value targets = w.in(2);
  double loss = 0;
  std::int64_t first = 0;
  for (std::size_t chunk = 3; chunk < w.inputs(); ++chunk) {
    const Value statistics = w.in(chunk);
    loss += reference::vocabulary_loss(statistics, targets, first, w.attributes().real("scale"));
    first += statistics.shape[1];
  }
  w.out(0, loss);
}
void vocabulary_loss_grad(Work& w) {
  const reference::VocabularyPart part = vocabulary_part(w, 2);
  const double scale = w.attributes().real("scale");
  const Value statistics = w.in(1), x = w.in(2), targets = w.in(4);
  const double loss = (w.has(5) ? w.scalar(5) : 0) + reference::vocabulary_loss(statistics, targets, part.first_token, scale);
  const Value dlogits = reference::vocabulary_logits_grad(w.in(0), statistics, targets, part, scale);
  Value rows = dlogits;
  rows.shape = {1, part.tokens, dlogits.shape[1]};
  const auto [dx, dw] =
      reference::logits_grad(rows, reference::rows_of(x, part.first_token, part.tokens, x.shape.last()), w.in(3));
  if (w.makes(2)) w.out_sum(2, 7, dw);
  if (w.makes(1)) w.out_elements(1, part.first_token * x.shape.last(), dx.data);
  w.out(3, dlogits);
  w.out(0, loss);
}

void masked_targets(Work& w) {
  Value targets = w.in(0);
  const Value mask = w.in(1);
  for (std::int64_t i = 0; i < targets.shape.elements(); ++i) targets.at(i) = mask.at(i) != 0 ? targets.at(i) : -1;
  w.out(0, targets);
}
void count_targets(Work& w) {
  const Value targets = w.in(0);
  w.out(0,
        static_cast<double>(std::count_if(targets.data.begin(), targets.data.end(), [](double target) { return target >= 0; })));
}
void per_target(Work& w) {
  const double count = w.scalar(1), factor = count > 0 ? w.attributes().real("targets") / count : 0;
  w.out(0, w.scalar(0) * std::pow(factor, static_cast<double>(w.attributes().integer("power"))));
}

reference::RepeatedHeads heads_of(const Work& w, const Shape& part, std::int64_t first_row) {
  const std::int64_t head_dim = w.attributes().integer("head_dim");
  return {part[0] / head_dim, first_row / head_dim, w.attributes().integer("heads"), head_dim};
}
void repeat_heads(Work& w) {
  w.out(0, reference::repeat_heads(w.in(0), heads_of(w, w.out_shape(0), w.out_origin(0, 0))));
}
void repeat_heads_grad(Work& w) {
  const Value dy = w.in(0);
  w.out_sum(0, 1, reference::repeat_heads_grad(dy, w.out_shape(0), heads_of(w, dy.shape, w.in_origin(0, 0))));
}

/// Element i of parts [parts, batch, sequence, width] is element at(i) of the wide tensor.
struct ChannelParts {
  std::int64_t rows, width, channels;
  std::int64_t at(std::int64_t i) const { return i / width % rows * channels + i / width / rows * width + i % width; }
};
void split_channels(Work& w) {
  const Value x = w.in(0);
  Value y = reference::zeros(DType::f32, w.out_shape(0));
  const ChannelParts parts{x.shape.rows(), y.shape[3], x.shape[2]};
  for (std::int64_t i = 0; i < y.shape.elements(); ++i) y.at(i) = x.at(parts.at(i));
  w.out(0, y);
}
void merge_channels(Work& w) {
  const Value x = w.in(0);
  Value y = reference::zeros(DType::f32, w.out_shape(0));
  const ChannelParts parts{y.shape.rows(), x.shape[3], y.shape[2]};
  for (std::int64_t i = 0; i < x.shape.elements(); ++i) y.at(parts.at(i)) = x.at(i);
  w.out(0, y);
}

void slice(Work& w) {
  const Value x = w.in(0);
  const auto dim = static_cast<int>(w.attributes().integer("dim"));
  Value y = reference::zeros(DType::f32, w.out_shape(0));
  if (dim < 0) {
    for (std::int64_t i = 0; i < y.shape.elements(); ++i) y.at(i) = x.at(w.out_origin(0, 0) + i);
    return w.out(0, y);
  }
  std::int64_t inner = 1;
  for (int d = dim + 1; d < x.shape.rank(); ++d) inner *= x.shape[d];
  const std::int64_t first = w.out_origin(0, dim) - w.in_origin(0, dim), run = y.shape[dim] * inner,
                     stride = x.shape[dim] * inner;
  for (std::int64_t i = 0; i < y.shape.elements(); ++i) y.at(i) = x.at(i / run * stride + first * inner + i % run);
  w.out(0, y);
}

void add(Work& w) {
  for (std::size_t k = 0; k < w.outputs(); ++k) {
    Value sum = w.in(2 * k);
    Work::add(sum, w.in(2 * k + 1));
    w.out(k, sum);
  }
}
void scale(Work& w) {
  Value y = w.in(0);
  const double factor = w.attributes().real("factor");
  for (double& value : y.data) value *= factor;
  w.out(0, y);
}
void same(Work& w) {
  w.out(0, w.in(0));
}

std::map<std::string_view, Formula>& formulas() {
  static std::map<std::string_view, Formula> table = [] {
    std::map<std::string_view, Formula> all{{"embedding", embedding},
                                            {"embedding_grad", embedding_grad},
                                            {"linear", linear},
                                            {"linear_input_grad", linear_input_grad},
                                            {"linear_weight_grad", linear_weight_grad},
                                            {"linear_bias_grad", linear_bias_grad},
                                            {"packed_linear", packed_linear},
                                            {"packed_linear_input_grad", packed_linear_input_grad},
                                            {"packed_linear_weight_grad", packed_linear_weight_grad},
                                            {"rms_norm", rms_norm},
                                            {"rms_norm_amax", rms_norm},
                                            {"rms_norm_grad", rms_norm_grad},
                                            {"rope", rope},
                                            {"rope_grad", rope_grad},
                                            {"attention", attention},
                                            {"attention_grad", attention_grad},
                                            {"attention_part", attention_part},
                                            {"attention_part_grad", attention_part_grad},
                                            {"split", split},
                                            {"concat", concat},
                                            {"map", map},
                                            {"reduce", reduce},
                                            {"total", total},
                                            {"margins", margins},
                                            {"map_in_place", map_in_place},
                                            {"swiglu", swiglu},
                                            {"swiglu_amax", swiglu},
                                            {"swiglu_grad", swiglu_grad},
                                            {"swiglu_grad_amax", swiglu_grad},
                                            {"lm_head_loss", lm_head_loss},
                                            {"lm_head_loss_grad", lm_head_loss_grad},
                                            {"lm_head_log_probability", lm_head_log_probability},
                                            {"lm_head_log_probability_grad", lm_head_log_probability_grad},
                                            {"vocabulary_logits", vocabulary_logits},
                                            {"vocabulary_loss", vocabulary_loss},
                                            {"vocabulary_loss_grad", vocabulary_loss_grad},
                                            {"masked_targets", masked_targets},
                                            {"count_targets", count_targets},
                                            {"per_target", per_target},
                                            {"repeat_heads", repeat_heads},
                                            {"repeat_heads_grad", repeat_heads_grad},
                                            {"slice", slice},
                                            {"split_channels", split_channels},
                                            {"merge_channels", merge_channels},
                                            {"add", add},
                                            {"scale", scale},
                                            {"cast", same},
                                            {"decode_weights", decode_weights},
                                            {"copy", same}};
    for (const auto* family : {&float8_formulas(), &optimizer_formulas(), &moe_formulas()})
      all.insert(family->begin(), family->end());
    return all;
  }();
  return table;
}

}  // namespace

void add_formula(std::string_view op, Formula formula) {
  formulas()[op] = formula;
}

void compute(Arena& arena, InstructionId id) {
  const Planned& planned = arena.planned();
  const auto at = static_cast<std::size_t>(id);
  const Instruction& i = planned.program.instructions[at];
  if (!i.op->touches_memory()) return;
  const auto formula = formulas().find(i.op->name());
  arena.set_instruction(id);
  const auto scribble = [&] {
    if (planned.plan.workspace[at] >= 0) arena.scribble(planned.plan.workspace[at], planned.workspaces[at]);
  };
  // Scratch that lies on an operand shows, whichever of the two it is.
  scribble();
  if (formula != formulas().end()) {
    Work work(arena, id);
    formula->second(work);
  } else if (!compute_by_kernel(arena, id)) {
    throw UsageError("the op '" + std::string(i.op->name()) +
                     "' has neither a formula in core/interpreter nor a kernel of a plugin for the device cpu: steps with it "
                     "cannot be run here");
  }
  scribble();
}

std::set<std::string> ops_without_formula(const Program& program) {
  std::set<std::string> ops;
  for (const Instruction& i : program.instructions) {
    if (i.op->touches_memory() && !i.op->is_collective() && !formulas().contains(i.op->name()))
      ops.insert(std::string(i.op->name()));
  }
  return ops;
}

}  // namespace consist::interpreter
