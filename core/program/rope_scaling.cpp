#include "consist/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>

#include "consist/config_fields.h"
#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/layers.h"
#include "consist/text.h"

namespace consist {
namespace {

using Kind = RopeScaling::Kind;

/// Long wavelengths are made longer by `factor`, short ones kept, those between interpolated.
float llama3_frequency(float frequency, const RopeScaling& s) {
  const float length = static_cast<float>(s.original_max_position_embeddings);
  const float wavelength = 2.0F * std::numbers::pi_v<float> / frequency;
  if (wavelength > length / static_cast<float>(s.low_freq_factor)) return frequency / static_cast<float>(s.factor);
  if (wavelength < length / static_cast<float>(s.high_freq_factor)) return frequency;
  const auto low = static_cast<float>(s.low_freq_factor), high = static_cast<float>(s.high_freq_factor);
  const float smooth = (length / wavelength - low) / (high - low);
  return (1.0F - smooth) * frequency / static_cast<float>(s.factor) + smooth * frequency;
}

/// The pairs that turn less than beta_slow times over the first training's positions get `factor`, those that turn more than
/// beta_fast times keep their frequency.
void scale_by_yarn(std::vector<float>& frequencies, double base, const RopeScaling& s) {
  const auto channels = static_cast<double>(2 * frequencies.size());
  const auto pair_that_turns = [&](double times) {
    const double period = static_cast<double>(s.original_max_position_embeddings) / (times * 2 * std::numbers::pi);
    return channels * std::log(period) / (2 * std::log(base));
  };
  const double low = std::max(std::floor(pair_that_turns(s.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_that_turns(s.beta_slow)), channels - 1);
  if (high == low) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const auto slowed = static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
    frequencies[i] = frequencies[i] / static_cast<float>(s.factor) * slowed + frequencies[i] * (1 - slowed);
  }
}

[[noreturn]] void not_supported(const std::string& field, const std::string& value, const std::string& instead) {
  throw DataError("the field \"" + field + "\" is " + value + ", which is not supported" +
                  (instead.empty() ? "" : "; " + instead));
}

/// visit(field, value)
template <typename S, typename Visit>
void for_each_of_yarn(S& scaling, const Visit& visit) {
  visit("beta_fast", scaling.beta_fast);
  visit("beta_slow", scaling.beta_slow);
  visit("mscale", scaling.mscale);
  visit("mscale_all_dim", scaling.mscale_all_dim);
  visit("attention_factor", scaling.attention_factor);
}

void read_yarn(const ConfigFields& f, RopeScaling& scaling, std::int64_t positions) {
  scaling.kind = Kind::yarn;
  scaling.factor = f.number("factor");
  for_each_of_yarn(scaling, [&](const char* field, double& value) {
    const double stated = f.number_or(field, 0);
    if (!(stated >= 0)) f.refuse(field, "it must be a number, not below 0");
    if (stated > 0) value = stated;  // transformers takes 0 for not stated
  });
  f.only("truncate", true);
  scaling.original_max_position_embeddings = f.integer_or("original_max_position_embeddings", positions);
  if (scaling.original_max_position_embeddings < 1) f.refuse("original_max_position_embeddings", "it must be at least 1");
  if (scaling.factor < 1) f.refuse("factor", "it must be at least 1");
}

void read_llama3(const ConfigFields& f, RopeScaling& scaling, const nlohmann::json& object, const char* field) {
  scaling.kind = Kind::llama3;
  scaling.factor = f.number("factor");
  scaling.low_freq_factor = f.number("low_freq_factor");
  scaling.high_freq_factor = f.number("high_freq_factor");
  scaling.original_max_position_embeddings = f.integer("original_max_position_embeddings");
  if (scaling.high_freq_factor <= scaling.low_freq_factor || scaling.original_max_position_embeddings < 1)
    throw DataError(std::string("the factors in \"") + field + "\" make no sense: " + shown(object));
}

}  // namespace

double RopeScaling::magnitude(double of) const {
  return !is_yarn() || factor <= 1 ? 1 : 0.1 * of * std::log(factor) + 1;
}

double RopeScaling::table_factor() const {
  if (attention_factor > 0) return attention_factor;
  if (mscale == 0 || mscale_all_dim == 0) return magnitude(1);
  return magnitude(mscale) / magnitude(mscale_all_dim);
}

std::vector<float> rope_frequencies(std::int64_t head_dim, double base, const RopeScaling& scaling) {
  std::vector<float> frequencies = layers::rope_frequencies(head_dim, base);
  for (float& frequency : frequencies) {
    if (scaling.kind == Kind::linear) frequency /= static_cast<float>(scaling.factor);
    if (scaling.kind == Kind::llama3) frequency = llama3_frequency(frequency, scaling);
  }
  if (scaling.is_yarn()) scale_by_yarn(frequencies, base, scaling);
  return frequencies;
}

RopeScaling read_rope_scaling(const nlohmann::json& object, const char* field, std::int64_t positions) {
  if (!object.is_object()) not_supported(field, shown(object), "it must be an object");
  const ConfigFields f(object, std::string(field) + ".");
  for (const auto& [key, value] : object.items()) {
    if (value.is_object())
      not_supported(std::string(field) + "." + in_quotes(key), "an object", "all layers must share one rotary embedding");
  }
  if (f.number_or("partial_rotary_factor", 1) != 1)
    not_supported(std::string(field) + ".partial_rotary_factor", shown(f["partial_rotary_factor"]), "");
  const std::string kind = f.has("rope_type") ? f.text_or("rope_type", "default") : f.text_or("type", "default");
  RopeScaling scaling;
  if (kind == "linear") {
    scaling.kind = Kind::linear;
    scaling.factor = f.number("factor");
  } else if (kind == "llama3") {
    read_llama3(f, scaling, object, field);
  } else if (kind == "yarn") {
    read_yarn(f, scaling, positions);
  } else if (kind != "default") {
    not_supported(std::string(field) + ".rope_type", in_quotes(kind), "supported are default, linear, llama3 and yarn");
  }
  if (!(scaling.factor > 0)) throw DataError(std::string("\"factor\" in \"") + field + "\" must be positive");
  return scaling;
}

void write_rope_scaling(const RopeScaling& s, nlohmann::ordered_json& config) {
  if (s.kind == Kind::none) return;
  nlohmann::ordered_json& made = config["rope_scaling"];
  made = {{"rope_type", s.kind == Kind::linear ? "linear" : s.kind == Kind::llama3 ? "llama3" : "yarn"}, {"factor", s.factor}};
  if (s.kind == Kind::llama3) {
    made["low_freq_factor"] = s.low_freq_factor;
    made["high_freq_factor"] = s.high_freq_factor;
  }
  if (s.is_yarn()) {
    for_each_of_yarn(s, [&](const char* field, double value) {
      if (value > 0) made[field] = value;
    });
  }
  if (s.kind != Kind::linear) made["original_max_position_embeddings"] = s.original_max_position_embeddings;
}

}  // namespace consist
