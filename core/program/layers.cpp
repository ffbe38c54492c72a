#include "consist/layers.h"

#include <cmath>
#include <utility>

#include "consist/error.h"
#include "consist/expression.h"
#include "consist/head_parts.h"

namespace consist::layers {

TensorId embedding(Builder& b, TensorId ids, TensorId table, std::string name, std::int64_t padding_id) {
  Attributes attributes;
  if (padding_id != -1) attributes.set("padding_id", padding_id);
  return b.emit_one("embedding", {ids, table}, std::move(attributes), std::move(name));
}

TensorId linear(Builder& b, TensorId x, TensorId weight, TensorId bias, std::string name) {
  std::vector<TensorId> inputs{x, weight};
  if (bias != no_tensor) inputs.push_back(bias);
  return b.emit_one("linear", std::move(inputs), {}, std::move(name));
}

Normed rms_norm(Builder& b, TensorId x, TensorId residual, TensorId weight, double epsilon, std::string name) {
  const std::vector<TensorId> out =
      b.emit("rms_norm", {x, residual, weight}, {{"epsilon", epsilon}}, {name, name + ".residual", name + ".rstd"});
  return {out[0], residual == no_tensor ? x : out[1]};
}

TensorId layer_norm(Builder& b, TensorId x, TensorId weight, TensorId bias, double epsilon, const std::string& name) {
  const TensorId mean = reduce(b, Reduction::mean, "a", {x}, name + ".mean"),
                 variance = reduce(b, Reduction::mean, "square(a-b[r])", {x, mean}, name + ".variance");
  std::vector<TensorId> inputs{x, mean, variance, weight};
  std::string f = "(a-b[r])*rsqrt(c[r]+" + number_text(epsilon) + ")*d[c]";
  if (bias != no_tensor) {
    inputs.push_back(bias);
    f += "+e[c]";
  }
  return map(b, f, std::move(inputs), name);
}

std::vector<float> rope_frequencies(std::int64_t head_dim, double base) {
  std::vector<float> frequencies(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    frequencies[i] = 1.0F / std::pow(static_cast<float>(base), exponent);
  }
  return frequencies;
}

TensorId rope_table(Builder& b, std::string name, std::int64_t sequence, std::vector<float> frequencies, double factor) {
  const auto half = static_cast<std::int64_t>(frequencies.size());
  const auto fill = [frequencies = std::move(frequencies), factor = static_cast<float>(factor)](std::span<float> table) {
    const std::size_t pairs = frequencies.size();
    for (std::size_t position = 0; position * 2 * pairs < table.size(); ++position) {
      for (std::size_t i = 0; i < pairs; ++i) {
        const float angle = static_cast<float>(position) * frequencies[i];
        table[position * 2 * pairs + i] = factor * std::cos(angle);
        table[position * 2 * pairs + pairs + i] = factor * std::sin(angle);
      }
    }
  };
  return b.constant(std::move(name), {sequence, 2 * half}, fill);
}

TensorId rope(Builder& b, TensorId x, TensorId table, TensorId norm_weight, std::int64_t head_dim, double epsilon,
              const std::string& name) {
  std::vector<TensorId> inputs{x, table};
  if (norm_weight != no_tensor) inputs.push_back(norm_weight);
  const std::int64_t turned = b[table].shape.last();
  if (turned >= head_dim)
    return b.emit("rope", std::move(inputs), {{"head_dim", head_dim}, {"epsilon", epsilon}}, {name, name + ".rstd"})[0];
  if (norm_weight != no_tensor) {
    throw ProgramError(name + ": the table turns " + std::to_string(turned) + " of the " + std::to_string(head_dim) +
                       " channels of a head, which are not normed as well: norm them first");
  }
  const std::vector<TensorId> parts = split(b, x, {turned, head_dim - turned}, name + ".parts");
  const TensorId first = rope(b, parts[0], table, no_tensor, turned, epsilon, name + ".turned");
  return concat(b, {first, parts[1]}, b[x].shape.last() / head_dim, name);
}

TensorId attention(Builder& b, TensorId q, TensorId k, TensorId v, std::int64_t head_dim, std::string name, std::int64_t window,
                   TensorId document_start, AttentionScores scores) {
  if (window < 0) throw UsageError(name + ": the window is " + std::to_string(window) + "; it must be at least 1, or 0 for none");
  for (const auto& [what, value] : {std::pair{"scale of scores", scores.scale}, {"soft-cap of scores", scores.cap}}) {
    if (!(value >= 0) || !std::isfinite(value))
      throw UsageError(name + ": the " + what + " is " + std::to_string(value) +
                       "; it must be above 0 and finite, or 0 for the default");
  }
  Attributes attributes{{"head_dim", head_dim}};
  if (scores.scale != 0 && scores.scale != default_score_scale(head_dim)) attributes.set("scale", scores.scale);
  if (scores.cap != 0) attributes.set("cap", scores.cap);
  const std::int64_t kv_heads = head_dim > 0 ? b[k].shape[2] / head_dim : 0;
  if (kv_heads > 0 && b[v].shape[2] != b[k].shape[2]) attributes.set("value_dim", b[v].shape[2] / kv_heads);
  // A window that reaches the first position from the last one hides nothing, and devices without windows can run the rest.
  if (window > 0 && window < b[q].shape[1]) attributes.set("window", window);
  std::vector<TensorId> inputs{q, k, v};
  if (document_start != no_tensor) inputs.push_back(document_start);
  return b.emit("attention", std::move(inputs), std::move(attributes), {name, name + ".lse"})[0];
}

TensorId swiglu(Builder& b, TensorId gate, TensorId up, std::string name) {
  return b.emit_one("swiglu", {gate, up}, {}, std::move(name));
}

namespace {

/// An expression whose text names every input, without those of which nothing is left, such as one times a factor that is 0.
Expressions read_ones(std::string_view text, std::vector<TensorId>& inputs) {
  const Expressions f = Expressions::parse(text);
  std::vector<int> places;
  std::vector<TensorId> read;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const auto is_input = [&](const ExpressionNode& node) {
      return node.function == Function::input && node.input == static_cast<int>(k);
    };
    const bool is_named = std::any_of(f.nodes().begin(), f.nodes().end(), is_input),
               is_left_out = is_named && f.reads_of(static_cast<int>(k)).empty();
    places.push_back(is_left_out ? -1 : static_cast<int>(read.size()));
    if (!is_left_out) read.push_back(inputs[k]);
  }
  if (read.size() == inputs.size() || f.inputs() > static_cast<int>(inputs.size())) return f;
  inputs = std::move(read);
  return f.renumbered(places);
}

}  // namespace

TensorId map(Builder& b, std::string_view f, std::vector<TensorId> inputs, std::string name) {
  const std::string text = read_ones(f, inputs).text();
  return b.emit_one("map", std::move(inputs), {{"f", text}}, std::move(name));
}

namespace {

TensorId reduced(Builder& b, Reduction by, std::string_view f, std::vector<TensorId> inputs, std::string name, bool squeeze) {
  Expressions summed = read_ones(f, inputs);
  const int whole = summed.first_read(Reads::same);
  if (by == Reduction::mean && whole >= 0 && whole < std::ssize(inputs)) {
    const int columns = summed.constant(static_cast<double>(b[inputs[static_cast<std::size_t>(whole)]].shape.last()));
    std::vector<int> results = summed.results();
    for (int& result : results) result = summed.apply(Function::divide, {result, columns, -1});
    summed.set_results(std::move(results));
  }
  const std::string how = by == Reduction::max ? "max" : by == Reduction::logsumexp ? "logsumexp" : "sum";
  Attributes attributes{{"f", summed.text()}, {"by", how}};
  if (squeeze) attributes.set("squeeze", std::int64_t{1});
  return b.emit_one("reduce", std::move(inputs), std::move(attributes), std::move(name));
}

}  // namespace

TensorId reduce(Builder& b, Reduction by, std::string_view f, std::vector<TensorId> inputs, std::string name) {
  return reduced(b, by, f, std::move(inputs), std::move(name), false);
}

TensorId reduce_rows(Builder& b, Reduction by, std::string_view f, std::vector<TensorId> inputs, std::string name) {
  return reduced(b, by, f, std::move(inputs), std::move(name), true);
}

TensorId total(Builder& b, std::string_view f, std::vector<TensorId> inputs, std::string name) {
  const std::string text = read_ones(f, inputs).text();
  return b.emit_one("total", std::move(inputs), {{"f", text}}, std::move(name));
}

TensorId log_probability(Builder& b, TensorId logits, TensorId targets, const std::string& name) {
  const TensorId denominator = reduce_rows(b, Reduction::logsumexp, "a", {logits}, name + ".logsumexp"),
                 at_target = reduce_rows(b, Reduction::sum, "select(abs(channel-b[r]),0,a)", {logits, targets}, name + ".logit");
  return map(b, "select(1+c,a-b,0)", {at_target, denominator, targets}, name);
}

std::vector<TensorId> split(Builder& b, TensorId x, const std::vector<std::int64_t>& widths, const std::string& name) {
  std::vector<std::string> names;
  for (std::size_t k = 0; k < widths.size(); ++k) names.push_back(name + "." + std::to_string(k));
  return b.emit("split", {x}, {{"parts", HeadParts(widths).text()}}, std::move(names));
}

TensorId concat(Builder& b, std::vector<TensorId> own, std::int64_t heads, std::string name,
                const std::vector<TensorId>& shared) {
  std::vector<std::int64_t> widths, shared_widths;
  for (const TensorId x : own) {
    const std::int64_t channels = b[x].shape.last();
    if (heads < 1 || channels % heads != 0) {
      throw ProgramError(name + ": '" + b[x].name + "' has " + std::to_string(channels) + " channels, which are not those of " +
                         std::to_string(heads) + " heads");
    }
    widths.push_back(channels / heads);
  }
  for (const TensorId x : shared) shared_widths.push_back(b[x].shape.last());
  own.insert(own.end(), shared.begin(), shared.end());
  return b.emit_one("concat", std::move(own), {{"parts", HeadParts(widths, shared_widths).text()}}, std::move(name));
}

TensorId scaled(Builder& b, TensorId x, double factor, std::string name) {
  return b.emit_one("scale", {x}, {{"factor", factor}}, std::move(name));
}

Mixed mixture_of_experts(Builder& b, TensorId x, const Mixture& m, const std::string& name) {
  const std::int64_t experts = b[m.router].shape[0];
  const TensorId logits = linear(b, x, m.router, no_tensor, name + ".logits");
  Attributes routing{{"choices", m.choices}, {"normalize", std::int64_t{m.normalize ? 1 : 0}}};
  if (m.sigmoid) routing.set("sigmoid", std::int64_t{1});
  if (m.groups != 1) {
    routing.set("groups", m.groups);
    routing.set("kept_groups", m.kept_groups);
  }
  std::vector<TensorId> inputs{logits};
  if (m.bias != no_tensor) {
    inputs = {logits, no_tensor, no_tensor, m.bias};
    for (Parameter& p : b.program().parameters) {
      if (p.tensor == m.bias) p.fixed = true, p.trainable = false;
    }
  }
  const std::vector<TensorId> routed =
      b.emit("moe_route", std::move(inputs), std::move(routing), {name + ".weights", name + ".experts", name + ".statistics"});
  b.program().routers.push_back({.statistics = routed[2], .layer = b.tag.layer, .experts = experts});
  const std::vector<TensorId> rows =
      b.emit("moe_dispatch", {x, routed[1], routed[0]}, {{"rows", b[routed[1]].shape.elements()}, {"experts", experts}},
             {name + ".rows", name + ".row_weights", name + ".pairs", name + ".counts", name + ".overflow"});
  const TensorId counts = rows[3];
  const TensorId gate_up = b.emit_one("grouped_linear", {rows[0], m.gate_up, counts}, {}, name + ".gate_up");
  const TensorId h = b.emit_one("moe_swiglu", {gate_up, rows[1]}, {}, name + ".act");
  const TensorId y = b.emit_one("grouped_linear", {h, m.down, counts}, {}, name + ".down");
  return {b.emit_one("moe_combine", {y, rows[2], counts, routed[1]}, {}, name), routed[2]};
}

void add_balance_loss(Builder& b, TensorId statistics, double balance, double z, std::string name, TensorId count) {
  std::vector<TensorId> inputs{statistics};
  if (count != no_tensor) inputs.push_back(count);
  b.program().add_output(StepOutput::Kind::auxiliary_loss,
                         b.emit_one("balance_loss", std::move(inputs), {{"balance", balance}, {"z", z}}, std::move(name)));
}

TensorId masked_targets(Builder& b, TensorId targets, TensorId mask, std::string name) {
  if (b.program().output(StepOutput::Kind::loss_count) != no_tensor)
    throw ProgramError("a second loss with a mask: each would need a count of its own");
  targets = b.emit_one("masked_targets", {targets, mask}, {}, name + ".targets");
  b.program().add_output(StepOutput::Kind::loss_count, b.emit_one("count_targets", {targets}, {}, name + ".count"));
  return targets;
}

TensorId lm_head_loss(Builder& b, TensorId x, TensorId weight, TensorId targets, double scale, std::string name, TensorId mask) {
  if (mask != no_tensor) targets = masked_targets(b, targets, mask, name);
  return b.emit_one("lm_head_loss", {x, weight, targets}, {{"scale", scale}}, std::move(name));
}

LogProbability lm_head_log_probability(Builder& b, TensorId x, TensorId weight, TensorId targets, const std::string& name) {
  const std::vector<TensorId> made = b.emit("lm_head_log_probability", {x, weight, targets}, {}, {name, name + ".denominator"});
  return {made[0], made[1]};
}

}  // namespace consist::layers
