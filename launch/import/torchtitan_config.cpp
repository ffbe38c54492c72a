#include "launch/import/torchtitan_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "consist/json_input.h"
#include "consist/text.h"
#include "core/base/split.h"
#include "launch/import/common/key_reader.h"
#include "launch/import/common/stored_values.h"
#include "launch/import/torchtitan_keys.h"
#include "launch/import/torchtitan_models.h"
#include "launch/import/torchtitan_parallelism.h"

namespace consist::torchtitan {
namespace {

using readers::as_text;
using readers::Json;
using readers::StoredValues;
using readers::Target;

constexpr std::int64_t most_steps = 1'000'000'000'000;
constexpr std::int64_t most_ranks = 65'536;

class Reader final : public readers::KeyReader {
 public:
  explicit Reader(Target& target) : KeyReader(target, rules), values_(target) {}

  void run(Json root) {
    readers::drop_nulls(root, "", target_);
    old_ = is_old(root);
    const auto read_rates = [&] {
      const auto* warmup = values_.find("warmup_steps");
      old_ || (warmup != nullptr && warmup->key.starts_with("training.")) ? read_old_schedule() : read_schedule();
    };
    const auto read_seed = [&] {
      if (!values_.has("seed")) target_.detail("has no seed here: --seed " + std::to_string(config_.seed));
    };
    read_all(root, {read_seed, [&] { read_model(); }, [&] { read_training(); }, [&] { read_parallelism(values_, old_, target_); },
                    [&] { read_recompute(); }, [&] { read_precision(); }, [&] { read_optimizer(); }, read_rates});
  }

 private:
  /// The layout in which [training] has what [parallelism] and [lr_scheduler] have since.
  static bool is_old(const Json& root) {
    if (root.contains("parallelism") || root.contains("lr_scheduler")) return false;
    if (root.contains("experimental")) return true;
    for (const char* key : {"batch_size", "warmup_steps", "data_parallel_shard_degree", "tensor_parallel_degree"}) {
      if (readers::find_value(root, "training", key) != nullptr) return true;
    }
    return false;
  }

  /// Keys have moved from table to table; their names have not, but for these.
  void read_own(const std::string& key, const Json& value) override {
    std::string name = key.substr(key.rfind('.') + 1);
    if (key == "model.name" || key == "optimizer.name") name = key;
    if (name == "batch_size") name = "local_batch_size";
    if (name == "lr_min") name = "min_lr_factor";
    if (name == "dtype") name = "training.dtype";
    values_.add(name, key, value);
  }

  void read_model() {
    const std::string model = values_.text("model.name", old_ ? "llama" : "llama3"),
                      flavor = values_.text("flavor", "debugmodel");
    if (target_.context.given("model")) {
      for (const char* name : {"model.name", "flavor"})
        values_.note(name, "--model " + config_.model + " is given and goes before the file");
      return;
    }
    const Flavor* row = find_flavor(model, flavor, old_);
    if (row == nullptr)
      values_.refuse(values_.has("flavor") ? "flavor" : "model.name",
                     "is " + in_quotes(flavor) + " of " + in_quotes(model) + ", which is not known here; known are " +
                         known_flavors(old_) + ". Or give --model: a preset (consist plugins llama) or a Hugging Face folder");
    std::string why;
    config_.model = *row->preset != '\0' ? row->preset : readers::config_json_of(row->sizes, why);
    target_.stated.insert("model");
    for (const char* name : {"model.name", "flavor"}) values_.note(name, "--model " + config_.model);
    if (row->sizes.experts > 0)
      target_.differs("model.flavor " + flavor + ": routers are balanced by no bias here, and train on no balance loss");
  }

  void read_training() {
    values_.state("seq_len", "sequence", config_.sequence, values_.whole("seq_len", 2048, 1, 1'000'000'000));
    values_.state("steps", "steps", config_.steps, values_.whole("steps", 10'000, 1, most_steps));
    values_.state("max_norm", "clip", config_.optimizer.max_norm, values_.number("max_norm", 1.0));
    if (values_.has("export_dtype"))
      values_.state("export_dtype", "export-dtype", config_.export_dtype,
                    values_.choice("export_dtype", "float32", {"float32", "bfloat16", "float16"}));
    if (values_.has("seed"))
      values_.state("seed", "seed", config_.seed, static_cast<std::uint64_t>(values_.whole("seed", 0, 0, INT64_MAX / 2)));
  }

  void read_recompute() {
    const std::string mode = values_.choice("mode", "selective", {"none", "selective", "full"});
    const std::string option = values_.has("selective_ac_option") && values_.find("selective_ac_option")->value.is_number()
                                   ? values_.find("selective_ac_option")->value.dump()
                                   : values_.text("selective_ac_option", "2");
    RecomputeRequest wanted;
    std::string more;
    if (mode == "full") {
      wanted.full = true;
    } else if (mode == "selective" && option == "op") {
      wanted = parse_recompute(target_.context.sizes().experts > 0 ? "rms_norm,moe_swiglu,rope" : "rms_norm,swiglu,rope", "");
      if (!target_.context.given("recompute"))
        target_.differs("selective_ac_option op: torchtitan makes every second product again, too, which is kept here");
    } else if (mode == "selective") {
      const bool is_number = !option.empty() && option.size() < 5 &&
                             std::all_of(option.begin(), option.end(), [](char c) { return c >= '0' && c <= '9'; });
      const int every = is_number ? std::stoi(option) : 0;
      if (every < 1)
        values_.refuse("selective_ac_option", "is " + in_quotes(option) + "; it may be \"op\", or a number of layers from 1 on");
      const auto count = static_cast<int>(target_.context.sizes().layers / every);
      if (every > 1 && values_.whole("pipeline_parallel_degree", 1, 1, most_ranks) > 1)
        values_.refuse("selective_ac_option",
                       "is " + in_quotes(option) +
                           " beside a pipeline: only layers that follow each other are made again here, which would be "
                           "those of the first stages; \"op\", or activation_checkpoint.mode full or none, is done");
      if (count > 0) wanted = parse_recompute("full", "0-" + std::to_string(count - 1));
      if (every > 1) more = ", as many as every " + option + "th is, with the same work and memory";
      if (every == 1) wanted = parse_recompute("full", "");
    }
    const std::string text =
        what_text(wanted) + (layers_text(wanted).empty() ? "" : " --recompute-layers " + layers_text(wanted));
    target_.stated.insert("recompute");
    const bool given = target_.context.given("recompute");
    if (!given) config_.recompute = wanted;
    const std::string what = given ? "--recompute " + what_text(config_.recompute) + " is given and goes before the file"
                                   : "--recompute " + text + more;
    values_.note("mode", what);
    values_.note("selective_ac_option", mode == "selective" ? what : "no effect: the mode is " + mode);
    if (!values_.has("mode") && !given) target_.detail("activation_checkpoint.mode is selective by default: " + what);
  }

  /// A list, or a text with commas, as torchtitan's command line and its older files have it.
  Json list_of(const char* name, const Json& value) const {
    if (value.is_array()) return value;
    if (!value.is_string()) values_.refuse(name, "is " + shown(value) + "; it must be a list, or a text with commas");
    Json list = Json::array();
    for (const std::string_view entry : split(value.get_ref<const std::string&>(), ',')) {
      if (!entry.empty()) list.push_back(std::string(entry));
    }
    return list;
  }

  bool is_converted(const char* name) const {
    const auto* given = values_.find("converters");
    if (given == nullptr) return false;
    bool found = false;
    for (const Json& converter : list_of("converters", given->value)) {
      if (converter != "float8" && converter != "quantize.linear.float8")
        values_.refuse("converters", "has " + shown(converter) + ", which is not done here; float8 is");
      found = found || converter.get<std::string>().ends_with(name);
    }
    return found;
  }

  void read_precision() {
    const bool fp8 = is_converted("float8") || values_.truth("enable_float8_linear", false);
    const std::string parameters = values_.choice("training.dtype", "float32", {"float32", "bfloat16"});
    const std::string computed = values_.choice("mixed_precision_param", "bfloat16", {"float32", "bfloat16"});
    values_.choice("mixed_precision_reduce", "float32", {"float32"});
    if (fp8 && computed == "float32" && parameters == "float32")
      values_.refuse("mixed_precision_param", "is \"float32\" beside float8, whose other ops are in bf16 here");
    const std::string precision = fp8 ? "fp8" : parameters == "bfloat16" || computed == "bfloat16" ? "bf16" : "fp32";
    const char* from = fp8 && values_.has("converters") ? "converters" : fp8 ? "enable_float8_linear" : "mixed_precision_param";
    values_.state(from, "precision", config_.precision, precision);
    for (const char* name : {"converters", "enable_float8_linear", "mixed_precision_param"}) {
      if (name != std::string(from)) values_.note(name, "--precision " + config_.precision);
    }
    values_.note("mixed_precision_reduce", "gradients are added up and sent in fp32");
    if (config_.precision == "bf16" || config_.precision == "fp8") {
      values_.state_plugin("training.dtype", config_.precision, "states", parameters == "bfloat16" ? "bf16" : "f32");
      values_.state_plugin("mixed_precision_reduce", config_.precision, "gradients", "f32");
    } else {
      values_.note("training.dtype", "--precision " + config_.precision);
    }
    read_float8(fp8);
  }

  void read_float8(bool asked) {
    const char* const names[] = {
        "enable_fsdp_float8_all_gather", "recipe_name", "filter_fqns", "scaling_type_input", "scaling_type_weight",
        "scaling_type_grad_output"};
    if (!asked) {
      for (const char* name : names) values_.note(name, "no effect: float8 is not asked for");
      return;
    }
    const std::string recipe = values_.choice("recipe_name", "tensorwise", {"tensorwise", "rowwise"});
    const std::string first = values_.choice("scaling_type_input", "dynamic", {"dynamic", "delayed"});
    for (const char* name : {"scaling_type_weight", "scaling_type_grad_output"}) {
      if (values_.choice(name, "dynamic", {"dynamic", "delayed"}) != first)
        values_.refuse(name, "is not as scaling_type_input: all of a product have one kind of scale here");
      values_.note(name, "as scaling_type_input");
    }
    const std::string scaling = first == "delayed" ? "delayed" : recipe == "rowwise" ? "row" : "tensor";
    const char* from = values_.has("recipe_name") ? "recipe_name" : "scaling_type_input";
    values_.state_plugin(from, "fp8", "scaling", scaling);
    if (from != std::string("scaling_type_input")) values_.note("scaling_type_input", "--fp8.scaling " + scaling);
    if (const bool gathers = values_.truth("enable_fsdp_float8_all_gather", false); scaling == "tensor")
      values_.state_plugin("enable_fsdp_float8_all_gather", "fp8", "gathers", gathers ? "true" : "false");
    else if (gathers)
      values_.refuse("enable_fsdp_float8_all_gather", "is true, which is done with one scale per tensor alone");
    else
      values_.note("enable_fsdp_float8_all_gather", "--fp8.gathers false");
    read_filter();
  }

  /// Names of torchtitan's modules as patterns of the weights here. Experts are no modules that its converter of linears knows.
  void read_filter() {
    const std::string experts = target_.context.sizes().experts > 0 ? "*.experts.*" : "";
    const auto* given = values_.find("filter_fqns");
    if (given == nullptr) {
      if (!experts.empty()) values_.state_plugin("filter_fqns", "fp8", "except", experts);
      return;
    }
    constexpr std::pair<std::string_view, const char*> known[] = {
        {"wq", "*q_proj.weight"},  {"wk", "*k_proj.weight"},     {"wv", "*v_proj.weight"},
        {"wo", "*o_proj.weight"},  {"w1", "*gate_proj.weight"},  {"w2", "*down_proj.weight"},
        {"w3", "*up_proj.weight"}, {"attention", "*self_attn*"}, {"feed_forward", "*mlp*"}};
    std::string patterns = experts;
    for (const Json& entry : list_of("filter_fqns", given->value)) {
      const std::string fqn = entry.is_string() ? entry.get<std::string>() : "";
      if (fqn == "output" || fqn.ends_with("router.gate")) continue;  // the LM head and routers are in bf16 here
      const std::string last = fqn.substr(fqn.rfind('.') + 1);
      const auto* const row = std::find_if(std::begin(known), std::end(known), [&](const auto& k) { return k.first == last; });
      if (row == std::end(known))
        values_.refuse("filter_fqns",
                       "has " + shown(entry) + ", of which it is not known here which linears it names; give --fp8.except");
      patterns += (patterns.empty() ? "" : ",") + std::string(row->second);
    }
    if (patterns.empty())
      values_.note("filter_fqns", "as it is here: the LM head stays bf16");
    else
      values_.state_plugin("filter_fqns", "fp8", "except", patterns);
  }

  void read_optimizer() {
    const std::string type = values_.choice("optimizer.name", "AdamW", {"AdamW", "Adam"});
    const double decay = values_.number("weight_decay", 0.1);
    if (type == "Adam" && decay != 0)
      values_.refuse("optimizer.name", "is \"Adam\": weight decay as a term of the gradient is not done here; AdamW is");
    values_.state("optimizer.name", "optimizer", config_.optimizer_plugin, std::string("adamw"));
    values_.state("lr", "learning-rate", config_.learning_rate, values_.number("lr", 8e-4));
    values_.state("weight_decay", "weight-decay", config_.optimizer.weight_decay, decay);
    if (decay > 0) target_.differs("optimizer.weight_decay: here norms and biases do not decay, in torchtitan they do");
    values_.state_plugin("beta1", "adamw", "beta1", as_text(values_.number("beta1", 0.9)));
    values_.state_plugin("beta2", "adamw", "beta2", as_text(values_.number("beta2", 0.95)));
    values_.state_plugin("eps", "adamw", "epsilon", as_text(values_.number("eps", 1e-8)));
  }

  /// Reads the schedule of the old layout: warm-up to peak * w/(w+1), then a line to 0 at the end.
  void read_old_schedule() {
    values_.state("warmup_steps", "schedule", config_.schedule, std::string("linear"));
    if (config_.schedule != "linear") return;
    values_.state_plugin("warmup_steps", "linear", "warmup", as_text(values_.whole("warmup_steps", 200, 0, most_steps)));
    target_.derive_plugin("the end of its line", "linear", "final-rate", "0");
  }

  /// (k+1)/w of the peak in step k of w steps of warm-up, the peak, and a decay over the last steps. One step of warm-up less
  /// begins one step above 0 here, and is the same.
  void read_schedule() {
    const std::int64_t total = values_.whole("total_steps", config_.steps, 1, most_steps);
    const std::int64_t warmup = std::min(values_.whole("warmup_steps", 200, 0, most_steps), total);
    const double ratio = values_.number("decay_ratio", 1.0);
    if (ratio < 0 || ratio > 1) values_.refuse("decay_ratio", "is " + as_text(ratio) + "; it must be from 0 to 1");
    std::int64_t decay = total - warmup;
    if (values_.has("decay_ratio")) decay = std::min<std::int64_t>(decay, std::llrint(static_cast<double>(total) * ratio));
    const std::string type = values_.choice("decay_type", "linear", {"linear", "sqrt", "cosine"});
    const double least = values_.number("min_lr_factor", 0.0);
    if (least < 0 || least > 1)
      values_.refuse("min_lr_factor", "is " + as_text(least) + "; it must be a fraction of the peak, 0 to 1");
    values_.state("warmup_steps", "schedule", config_.schedule, std::string("wsd"));
    const bool ours = config_.schedule == "wsd";
    for (const char* name : {"total_steps", "decay_ratio", "decay_type", "min_lr_factor"})
      values_.note(name,
                   ours ? "options of --schedule wsd" : "--schedule " + config_.schedule + " is given and goes before the file");
    if (!ours) return;
    target_.derive_plugin("warm-up", "wsd", "warmup", as_text(std::max<std::int64_t>(warmup - 1, 0)));
    target_.derive_plugin("decay", "wsd", "decay", as_text(static_cast<double>(decay) / static_cast<double>(total)));
    target_.derive_plugin("decay", "wsd", "decay-shape", type == "sqrt" ? "1-sqrt" : type);
    target_.derive_plugin("decay", "wsd", "final-rate", as_text(least));
    if (values_.has("total_steps")) target_.derive_plugin("total_steps", "wsd", "decay-until", as_text(total));
  }

  StoredValues values_;
  bool old_ = false;
};

}  // namespace

bool is_config(const Json& root) {
  const auto table = [&](const char* name) {
    const Json* value = readers::find_value(root, name);
    return value != nullptr && value->is_object();
  };
  return table("parallelism") || (table("training") && (table("model") || table("experimental") || table("job")));
}

void apply(Json root, Target& target) {
  Reader(target).run(std::move(root));
}

}  // namespace consist::torchtitan
