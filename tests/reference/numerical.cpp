#include "tests/reference/numerical.h"

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace consist::reference {

Value random_value(std::mt19937& random, DType dtype, const Shape& shape, double scale, double mean) {
  std::normal_distribution<double> normal(mean, scale);
  Value value = zeros(dtype, shape);
  for (double& x : value.data) x = rounded(normal(random), dtype);
  return value;
}

Value random_ids(std::mt19937& random, const Shape& shape, int low, int high) {
  std::uniform_int_distribution<int> uniform(low, high - 1);
  Value value = zeros(DType::i32, shape);
  for (double& x : value.data) x = uniform(random);
  return value;
}

Values forward(std::string_view op, const Values& in, const Attributes& attributes) {
  if (op == "embedding") return embedding(in);
  if (op == "add") return map(in, "a+b");
  if (op == "linear") return linear(in);
  if (op == "rms_norm") return rms_norm(in, attributes.real("epsilon"));
  if (op == "rope") return rope(in, attributes.integer("head_dim"), attributes.real_or("epsilon", 0));
  if (op == "attention")
    return attention(in, attributes.integer("head_dim"), {.window = attributes.integer_or("window", 0)},
                     attention_scores(attributes));
  if (op == "split") return split(*in[0], attributes.string("parts"));
  if (op == "concat") return concat(in, attributes.string("parts"));
  if (op == "reduce") {
    Value made = *reduce(in, Expressions::parse(attributes.string("f")), attributes.string("by"), in[0]->shape)[0];
    if (attributes.integer_or("squeeze", 0) == 0) return {made};
    Shape rows;
    for (int dim = 0; dim + 1 < made.shape.rank(); ++dim) rows.push_back(made.shape[dim]);
    made.shape = rows;
    return {made};
  }
  if (op == "total") return total(in, attributes.string("f"));
  if (op == "map") return map(in, attributes.string("f"));
  if (op == "swiglu") return swiglu(in);
  if (op == "lm_head_log_probability") return lm_head_log_probability(in);
  if (op == "lm_head_loss") return lm_head_loss(in, attributes.real("scale"));
  throw std::invalid_argument("no reference for op " + std::string(op));
}

std::vector<double> numerical_gradient(std::vector<double>& x, const std::function<double()>& function) {
  constexpr double h = 1e-5;
  std::vector<double> gradient;
  for (double& element : x) {
    const double value = element;
    element = value + h;
    const double above = function();
    element = value - h;
    const double below = function();
    element = value;
    gradient.push_back((above - below) / (2 * h));
  }
  return gradient;
}

namespace {

void add_bytes(std::string& key, const void* bytes, std::size_t count) {
  key.append(static_cast<const char*>(bytes), count);
}

void add_value(std::string& key, const std::optional<Value>& value) {
  const std::string shape = value ? value->shape.text() : "absent";
  key += std::string(value ? name_of(value->dtype) : "") + shape + ";";
  if (value) add_bytes(key, value->data.data(), value->data.size() * sizeof(double));
}

/// All that a gradient depends on.
std::string key_of(std::string_view op, const Values& in, const Attributes& attributes, std::size_t which, const Value& dy) {
  std::string key = std::string(op) + ";" + std::to_string(which) + ";" + std::to_string(in.size()) + ";";
  for (const auto& [name, value] : attributes.all()) {
    key += name + "=" + std::to_string(value.index()) + ":";
    if (const auto* integer = std::get_if<std::int64_t>(&value)) key += std::to_string(*integer);
    if (const auto* real = std::get_if<double>(&value)) add_bytes(key, real, sizeof *real);
    if (const auto* text = std::get_if<std::string>(&value)) key += *text;
    if (const auto* axes = std::get_if<AxisSet>(&value)) key += std::to_string(axes->bits());
    key += ";";
  }
  for (const auto& value : in) add_value(key, value);
  add_value(key, dy);
  return key;
}

Value computed_gradient(std::string_view op, Values in, const Attributes& attributes, std::size_t which, const Value& dy) {
  for (auto& value : in) {
    if (value && value->dtype == DType::bf16) value->dtype = DType::f32;
  }
  Value result = *in[which];
  result.data = numerical_gradient(in[which]->data, [&] {
    const Value y = *forward(op, in, attributes)[0];
    double sum = 0;
    for (std::size_t i = 0; i < y.data.size(); ++i) sum += dy.data[i] * y.data[i];
    return sum;
  });
  return result;
}

}  // namespace

Value gradient(std::string_view op, Values in, const Attributes& attributes, std::size_t which, const Value& dy) {
  // The same cases come for each number of threads, level of instructions and dtype of gradients.
  static std::map<std::string, Value> known;
  std::string key = key_of(op, in, attributes, which, dy);
  auto found = known.find(key);
  if (found == known.end())
    found = known.emplace(std::move(key), computed_gradient(op, std::move(in), attributes, which, dy)).first;
  return found->second;
}

}  // namespace consist::reference
