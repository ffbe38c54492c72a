// LoRA (Hu et al., 2021): beside each linear that is named, a product of two narrow matrices, which alone are trained.
#include "consist/adapter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "consist/edit.h"
#include "consist/error.h"
#include "consist/files.h"
#include "consist/json_input.h"
#include "consist/layers.h"
#include "consist/op.h"
#include "consist/plugin.h"

namespace {

using namespace consist;

constexpr std::string_view weight_end = ".weight";
constexpr const char* all_linears = "all-linear";  // as PEFT calls it

std::string_view module_of(std::string_view parameter) {
  return parameter.ends_with(weight_end) ? parameter.substr(0, parameter.size() - weight_end.size()) : std::string_view();
}
std::string name_of_a(std::string_view module) {
  return std::string(module) + ".lora_A.weight";
}
std::string name_of_b(std::string_view module) {
  return std::string(module) + ".lora_B.weight";
}

/// The last word of a module's name: "q_proj".
std::string last_word(std::string_view module) {
  return std::string(module.substr(module.rfind('.') + 1));
}

std::vector<std::string> targets_of(const std::string& text) {
  std::vector<std::string> targets;
  std::size_t first = 0;
  while (first <= text.size()) {
    const std::size_t end = std::min(text.find(',', first), text.size());
    if (end == first)
      throw UsageError("--lora.targets '" + text + "' has an empty name; write for example --lora.targets q_proj,v_proj");
    targets.push_back(text.substr(first, end - first));
    first = end + 1;
  }
  return targets;
}

const Parameter* find_parameter(const Program& program, std::string_view name) {
  const auto found =
      std::find_if(program.parameters.begin(), program.parameters.end(), [&](const Parameter& p) { return p.name == name; });
  return found == program.parameters.end() ? nullptr : &*found;
}

class Lora final : public Adapter {
 public:
  explicit Lora(const Options& options)
      : rank_(options.integer("rank")),
        alpha_(options.real("alpha")),
        targets_text_(options.text("targets")),
        targets_(targets_of(targets_text_)) {
    if (options.real("dropout") != 0)
      throw UsageError("--lora.dropout must be 0: no random numbers are drawn in a step; leave the option out");
    if (!options.text("weights").empty()) check_config(options.text("weights") + "/adapter_config.json");
  }

  void adapt(Program& model) const override {
    refuse_experts(model);
    std::map<TensorId, std::string> weights;  // of linears, by tensor: their modules
    for (const Parameter& p : model.parameters) {
      if (const std::string_view module = module_of(p.name); !module.empty()) weights.emplace(p.tensor, module);
    }
    for (Parameter& p : model.parameters) p.trainable = false;
    std::vector<Linear> linears;
    std::set<std::string> modules;  // of all linears
    std::set<std::string> used;     // targets
    for (std::size_t i = 0; i < model.instructions.size(); ++i) {
      const Instruction& instruction = model.instructions[i];
      if (instruction.op->linear_part() != LinearPart::product) continue;
      const auto weight = weights.find(instruction.inputs[1]);
      if (weight == weights.end()) continue;
      modules.insert(weight->second);
      const std::string* target = target_of(weight->second);
      if (target == nullptr) continue;
      used.insert(*target);
      linears.push_back({static_cast<InstructionId>(i), weight->second, instruction.inputs[0], instruction.outputs[0]});
    }
    refuse_unused(used, modules);
    insert(model, linears);
  }

  std::string describe() const override {
    return "lora of rank " + std::to_string(rank_) + ", alpha " + number(alpha_) + ", on " + spaced(targets_text_);
  }

  std::string config_json(const Program& adapted, std::string_view base) const override {
    nlohmann::ordered_json json{{"peft_type", "LORA"},
                                {"task_type", "CAUSAL_LM"},
                                {"base_model_name_or_path", base},
                                {"r", rank_},
                                {"lora_alpha", alpha_ == std::floor(alpha_) ? nlohmann::ordered_json(std::llround(alpha_))
                                                                            : nlohmann::ordered_json(alpha_)},
                                {"lora_dropout", 0.0},
                                {"target_modules", exported_targets(adapted)},
                                {"bias", "none"},
                                {"fan_in_fan_out", false},
                                {"init_lora_weights", true},
                                {"use_rslora", false},
                                {"use_dora", false},
                                {"inference_mode", true}};
    return json.dump(2) + "\n";
  }

  void merge(const Program& adapted, std::string_view parameter, std::int64_t first, std::span<float> values,
             const ReadWeights& read) const override {
    const std::string_view module = module_of(parameter);
    const Parameter* const weight = find_parameter(adapted, parameter);
    if (module.empty() || weight == nullptr || find_parameter(adapted, name_of_a(module)) == nullptr || values.empty()) return;
    const std::int64_t columns = adapted[weight->tensor].shape.last(), end = first + std::ssize(values);
    const std::int64_t first_row = first / columns, rows = (end + columns - 1) / columns - first_row;
    std::vector<float> a(static_cast<std::size_t>(rank_ * columns)), b(static_cast<std::size_t>(rows * rank_));
    read(name_of_a(module), 0, a);
    read(name_of_b(module), first_row * rank_, b);
    std::vector<double> added(static_cast<std::size_t>(columns));
    for (std::int64_t row = 0; row < rows; ++row) {
      std::fill(added.begin(), added.end(), 0.0);
      for (std::int64_t r = 0; r < rank_; ++r) {
        const double factor = scaling() * static_cast<double>(b[static_cast<std::size_t>(row * rank_ + r)]);
        const float* const of_a = a.data() + r * columns;
        for (std::int64_t k = 0; k < columns; ++k) added[static_cast<std::size_t>(k)] += factor * static_cast<double>(of_a[k]);
      }
      const std::int64_t start = (first_row + row) * columns;
      for (std::int64_t at = std::max(start, first); at < std::min(start + columns, end); ++at) {
        float& value = values[static_cast<std::size_t>(at - first)];
        value = static_cast<float>(static_cast<double>(value) + added[static_cast<std::size_t>(at - start)]);
      }
    }
  }

 private:
  struct Linear {
    InstructionId at;
    std::string module;
    TensorId x, y;
  };

  /// Refuses weights that were trained with another product, which their shapes do not say.
  void check_config(const std::string& path) const {
    const nlohmann::json config = parse_json(read_text(path, JsonRules().most_bytes), path);
    const auto expect = [&](const char* key, double wanted, const char* option) {
      const auto found = config.find(key);
      if (found != config.end() && found->is_number() && found->get<double>() == wanted) return;
      throw UsageError(path + " has " + key + " " + (found == config.end() ? "nowhere" : found->dump()) + "; --lora." + option +
                       " is " + number(wanted) + ", and must be that of the weights");
    };
    if (!config.is_object() || config.value("peft_type", "") != "LORA") throw UsageError(path + " is not of a LoRA adapter");
    expect("r", static_cast<double>(rank_), "rank");
    expect("lora_alpha", alpha_, "alpha");
    for (const char* other : {"use_rslora", "use_dora"}) {
      if (config.value(other, false)) throw UsageError(path + " has " + other + ", which is another product than LoRA's");
    }
  }

  double scaling() const { return alpha_ / static_cast<double>(rank_); }
  bool names_all() const { return targets_text_ == all_linears; }

  static std::string number(double value) {
    std::string text = std::to_string(value);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
  }
  static std::string spaced(std::string text) {
    for (std::size_t at = 0; (at = text.find(',', at)) != std::string::npos; at += 2) text.insert(at + 1, " ");
    return text;
  }

  /// The target that names a module, by its whole name or by the last words of it, as PEFT takes them; null if none does.
  const std::string* target_of(const std::string& module) const {
    if (names_all()) return &targets_text_;
    for (const std::string& target : targets_) {
      if (module == target || module.ends_with("." + target)) return &target;
    }
    return nullptr;
  }

  void refuse_experts(const Program& model) const {
    if (!names_all() || model.routers.empty()) return;
    throw UsageError(
        "--lora.targets all-linear does not say what becomes of a mixture's experts and routers, which get no adapters; name "
        "the linears, for example --lora.targets q_proj,k_proj,v_proj,o_proj");
  }

  void refuse_unused(const std::set<std::string>& used, const std::set<std::string>& modules) const {
    for (const std::string& target : targets_) {
      if (used.contains(target)) continue;
      std::set<std::string> words;
      for (const std::string& module : modules) words.insert(last_word(module));
      std::string known;
      for (const std::string& word : words) known += (known.empty() ? "" : ", ") + word;
      throw UsageError("--lora.targets '" + target + "' names no linear of this model; its linears are " +
                       (known.empty() ? "none" : known) + " (embeddings, the LM head and experts get no adapters)");
    }
  }

  /// y = W x becomes y + B (alpha/rank · A x). The factor is applied where the activation is narrowest. Behind neighbours that
  /// read one x (q, k, v) come first all their products with x, so that these can become one.
  void insert(Program& model, const std::vector<Linear>& linears) const {
    std::map<TensorId, TensorId> sums;  // by output of a linear
    std::map<std::string, std::pair<TensorId, TensorId>> made;
    Inserter inserter(model);
    const auto apart = [](const Linear& a, const Linear& b) { return a.at + 1 != b.at || a.x != b.x; };
    for (auto first = linears.begin(); first != linears.end();) {
      auto last = std::adjacent_find(first, linears.end(), apart);
      if (last != linears.end()) ++last;
      const std::span<const Linear> neighbours(first, last);
      inserter.after(neighbours.back().at, [&](Builder& b) { insert(b, neighbours, made, sums); });
      first = last;
    }
    inserter.apply();
    for (Instruction& i : model.instructions) {
      const auto is_sum = [&](TensorId y) { return sums.at(y) == i.outputs[0]; };
      for (TensorId& input : i.inputs) {
        if (sums.contains(input) && (i.outputs.empty() || !is_sum(input))) input = sums.at(input);
      }
    }
  }

  void insert(Builder& b, std::span<const Linear> neighbours, std::map<std::string, std::pair<TensorId, TensorId>>& made,
              std::map<TensorId, TensorId>& sums) const {
    std::vector<TensorId> low;
    for (const Linear& linear : neighbours) {
      auto [known, is_new] = made.try_emplace(linear.module);
      if (is_new) known->second = parameters(b, linear);
      low.push_back(layers::linear(b, linear.x, known->second.first, no_tensor, linear.module + ".lora_A"));
    }
    for (std::size_t k = 0; k < low.size(); ++k) {
      const Linear& linear = neighbours[k];
      const TensorId scaled = layers::scaled(b, low[k], scaling(), linear.module + ".lora_A.scaled");
      const TensorId added = layers::linear(b, scaled, made.at(linear.module).second, no_tensor, linear.module + ".lora_B");
      sums[linear.y] = b.emit_one("add", {linear.y, added}, {}, linear.module + ".adapted");
    }
  }

  /// A and B as PEFT initialises them: A uniform as torch's Linear is (kaiming_uniform_ with a = √5, within ±1/√in), B zero.
  std::pair<TensorId, TensorId> parameters(Builder& b, const Linear& linear) const {
    const std::int64_t in = b[linear.x].shape.last(), out = b[linear.y].shape.last();
    const auto deviation = static_cast<float>(std::sqrt(1.0 / (3.0 * static_cast<double>(in))));
    const TensorId a = b.parameter(name_of_a(linear.module), {rank_, in}, 0, deviation, true);
    b.program().parameters.back().init_uniform = true;
    return {a, b.parameter(name_of_b(linear.module), {out, rank_}, 0, 0, true)};
  }

  /// The targets as PEFT reads them; of all linears the last words of their names.
  std::vector<std::string> exported_targets(const Program& adapted) const {
    if (!names_all()) return targets_;
    std::set<std::string> words;
    for (const Parameter& p : adapted.parameters) {
      const std::string_view module = module_of(p.name);
      if (!module.empty() && find_parameter(adapted, name_of_a(module)) != nullptr) words.insert(last_word(module));
    }
    return {words.begin(), words.end()};
  }

  std::int64_t rank_;
  double alpha_;
  std::string targets_text_;
  std::vector<std::string> targets_;
};

}  // namespace

CONSIST_PLUGIN(adapter, consist::Adapter, Lora, "lora", "1.0.0", "two narrow matrices beside each linear, trained instead of it");
CONSIST_PLUGIN_OPTIONS({"rank", consist::OptionKind::integer, "16", "rows of A and columns of B", "1..65536"},
                       {"alpha", consist::OptionKind::real, "32", "the product is multiplied by alpha/rank", "0..1e6"},
                       {"targets", consist::OptionKind::text, "q_proj,v_proj",
                        "linears that are adapted: last words of their names, or all-linear"},
                       {"weights", consist::OptionKind::text, "",
                        "folder of an adapter that PEFT or --export wrote, which the run begins from; else A random, B zero"},
                       {"dropout", consist::OptionKind::real, "0", "of the adapter's input; 0 alone is possible", "0..0"});
