// fp8: bf16 training whose linears multiply 8-bit floats, forward and backward. Each tensor that enters such a product is
// quantized with scales from largest magnitudes: its own, or those of the steps before; everything else (norms, attention,
// embedding, LM head, what is between linears) stays bf16.
#include "consist/precision.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "consist/edit.h"
#include "consist/error.h"
#include "consist/op.h"
#include "consist/plugin.h"
#include "consist/quantize.h"
#include "plugins/precisions/bf16/dtypes.h"

namespace {

using namespace consist;

/// The patterns of a comma-separated list, of which a name has to match one.
class Patterns {
 public:
  explicit Patterns(const std::string& list) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      if (end > begin) patterns_.push_back({list.substr(begin, end - begin)});
      begin = end + 1;
    }
  }
  bool match(const std::string& name) {
    bool any = false;
    for (Pattern& p : patterns_) {
      if (fnmatch(p.text.c_str(), name.c_str(), 0) == 0) any = p.used = true;
    }
    return any;
  }
  /// A pattern that matched nothing is a misspelling: throws UsageError.
  void check_used(const std::string& option, const std::string& example) const {
    for (const Pattern& p : patterns_) {
      if (!p.used)
        throw UsageError("--fp8." + option + ": no linear of the model matches '" + p.text + "'; their weights are named like " +
                         example);
    }
  }

 private:
  struct Pattern {
    std::string text;
    bool used = false;
  };
  std::vector<Pattern> patterns_;
};

class Fp8 final : public Precision {
 public:
  explicit Fp8(const Options& options)
      : dtypes_(bf16::dtypes(options)),
        scaling_(options.text("scaling")),
        gradients_(gradient_format(options)),
        history_(options.integer("amax-history-len")),
        gathers_(options.flag("gathers")),
        fast_(options.text("fast-accumulation")),
        linears_(options.text("linears")),
        except_(options.text("except")),
        first_(options.integer("bf16-first")),
        last_(options.integer("bf16-last")) {
    if (first_ < 0 || last_ < 0) throw UsageError("--fp8.bf16-first and --fp8.bf16-last are numbers of layers, at least 0");
    constexpr std::int64_t longest = 65536;
    if (history_ < 1 || history_ > longest)
      throw UsageError("--fp8.amax-history-len is a number of steps from 1 to " + std::to_string(longest));
    if (gathers_ && scaling_ != "tensor") {
      throw UsageError("--fp8.gathers is for one scale per tensor, made from all ranks' parts of it; --fp8.scaling " + scaling_ +
                       " has others: leave one of the two out");
    }
    if (scaling_ == "block" && fast_ == "all") {
      throw UsageError(
          "--fp8.fast-accumulation all: with --fp8.scaling block every 128 products are scaled and added up in fp32; there are "
          "no "
          "shorter sums to choose");
    }
  }
  DTypes dtypes() const override { return dtypes_; }
  std::string describe() const override {
    std::string scales = "a power-of-two scale per ";
    if (scaling_ == "block") scales += "128 elements, of weights per 128x128";
    if (scaling_ == "row") scales += "row";
    if (scaling_ == "tensor" || scaling_ == "delayed") scales += "tensor";
    if (scaling_ == "delayed") scales += " from the amax of the last " + std::to_string(history_) + " steps";
    return "bf16 with fp8 linears (e4m3 forward, " + gradients_ + " gradients, " + scales + "), " + bf16::describe(dtypes_);
  }
  std::string peak() const override { return "fp8"; }

  void rewrite(Program& forward) const override {
    const std::vector<InstructionId> chosen = choose(forward);
    // Quantized tensors by their source: linears that read the same activation share one.
    std::map<TensorId, Quantized> made;
    std::set<TensorId> turned;  // of these, a linear's gradient of weights reads the transposed copy
    for (InstructionId id : chosen) {
      const Instruction& linear = forward.instructions[static_cast<std::size_t>(id)];
      if (!is_grouped(linear)) turned.insert(linear.inputs[0]);
    }
    Inserter inserter(forward);
    for (InstructionId id : chosen) {
      const Instruction linear = forward.instructions[static_cast<std::size_t>(id)];  // a copy: emitting moves the vector
      inserter.after(id - 1, [&](Builder& b) {
        b.tag = linear.tag;
        b.tag.inserted_by = "fp8";
        const std::string weight = forward[linear.inputs[1]].name;  // a copy: emitting moves the tensors
        quantize_once(b, linear.inputs[0], weight + ".input", false, turned.contains(linear.inputs[0]), made);
        quantize_once(b, linear.inputs[1], weight, true, true, made);
      });
    }
    // In place, so that whoever reads the result need not be told.
    for (InstructionId id : chosen) {
      Instruction& linear = forward.instructions[static_cast<std::size_t>(id)];
      const Quantized x = made.at(linear.inputs[0]), w = made.at(linear.inputs[1]);
      std::vector<TensorId> inputs{x.value, x.descale, w.value, w.descale};
      if (linear.inputs.size() > 2) inputs.push_back(linear.inputs[2]);
      linear.op = &registry().get(is_grouped(linear) ? "fp8_grouped_linear" : "fp8_linear");
      linear.inputs = std::move(inputs);
      linear.attributes = {{"dtype", std::string(name_of(forward[linear.outputs[0]].dtype))},
                           {"fast_accumulation", std::int64_t{fast_ == "none" || scaling_ == "block" ? 0 : 1}},
                           {"gradients", gradients_},
                           {"fast_gradients", std::int64_t{fast_ == "all" ? 1 : 0}}};
      if (scaling_ != "tensor") linear.attributes.set("scaling", scaling_);
      if (scaling_ == "delayed") linear.attributes.set("history", history_);
      if (gathers_) linear.attributes.set("before_gathers", std::int64_t{1});
    }
    inserter.apply();
  }

 private:
  /// The linears that the options name.
  std::vector<InstructionId> choose(const Program& forward) const {
    int layers = 0;
    for (const Instruction& i : forward.instructions) layers = std::max(layers, i.tag.layer + 1);
    Patterns linears(linears_), except(except_);
    std::vector<InstructionId> chosen;
    bool experts = false;  // are left in bf16 for their scaling
    const std::set<TensorId> routed = logits_of_routers(forward);
    std::string example = "(none: the model has no linears)";
    for (std::size_t i = 0; i < forward.instructions.size(); ++i) {
      const Instruction& instruction = forward.instructions[i];
      if (instruction.op->linear_part() != LinearPart::product && !is_grouped(instruction)) continue;
      const std::string& name = forward[instruction.inputs[1]].name;
      example = name;
      const bool named = linears.match(name), excepted = except.match(name);
      const int layer = instruction.tag.layer;
      const bool inner = layer < 0 || (layer >= first_ && layer < layers - last_);
      if (!named || excepted || !inner || routed.contains(instruction.outputs[0])) continue;
      if (is_grouped(instruction) && !scales_experts())
        experts = true;
      else
        chosen.push_back(static_cast<InstructionId>(i));
    }
    linears.check_used("linears", example);
    except.check_used("except", example);
    if (chosen.empty() && experts) {
      throw UsageError("--precision fp8 with these options is for experts alone, which stay bf16 with --fp8.scaling " + scaling_ +
                       "; use --fp8.scaling tensor or delayed");
    }
    if (chosen.empty()) {
      throw UsageError("--precision fp8 with these options leaves every linear of the " + std::to_string(layers) +
                       " layers in bf16; use --precision bf16 for that, or lower --fp8.bf16-first and --fp8.bf16-last");
    }
    return chosen;
  }

  /// Logits of routers, which stay bf16: rounding to 8 bits would change which experts tokens go to, and the products are small.
  static std::set<TensorId> logits_of_routers(const Program& forward) {
    static const Op* const route = &registry().get("moe_route");
    std::set<TensorId> logits;
    for (const Instruction& i : forward.instructions) {
      if (i.op == route) logits.insert(i.inputs[0]);
    }
    return logits;
  }
  /// A product of experts' rows, for which there is one in 8 bits.
  static bool is_grouped(const Instruction& i) {
    static const Op* const grouped = &registry().get("grouped_linear");
    return i.op == grouped;
  }
  /// Products of experts' rows have one scale per tensor.
  bool scales_experts() const { return scaling_ == "tensor" || scaling_ == "delayed"; }

  /// e5m2 has the range that gradients of one scale need; where few elements share a scale, e4m3 has the precision.
  static std::string gradient_format(const Options& options) {
    const std::string &format = options.text("gradient-format"), &scaling = options.text("scaling");
    if (format != "auto") return format;
    return scaling == "row" || scaling == "block" ? "e4m3" : "e5m2";
  }

  /// `of`: whose largest magnitudes a history would hold. Weights are the same for every micro-batch.
  void quantize_once(Builder& b, TensorId tensor, const std::string& of, bool weight, bool transposed,
                     std::map<TensorId, Quantized>& made) const {
    if (made.contains(tensor)) return;
    QuantizeSettings settings{
        .history = {of, history_}, .once_per_step = weight, .before_gathers = gathers_, .transposed = transposed};
    if (scaling_ == "delayed") settings.scaling = Scaling::delayed;
    if (scaling_ == "row") settings.scaling = Scaling::row;
    if (scaling_ == "block") settings.scaling = weight ? Scaling::block_2d : Scaling::block_1d;
    made[tensor] = quantize(b, tensor, settings);
  }

  DTypes dtypes_;
  std::string scaling_, gradients_;
  std::int64_t history_;
  bool gathers_;
  std::string fast_, linears_, except_;
  std::int64_t first_, last_;
};

}  // namespace

CONSIST_PLUGIN(precision, consist::Precision, Fp8, "fp8", "1.0.0",
               "bf16 with fp8 linears, forward and backward: e4m3, gradients e5m2 or e4m3; scales per tensor, row or block");
CONSIST_PLUGIN_OPTIONS(
    {"scaling", consist::OptionKind::choice, "tensor",
     "what shares a scale: a tensor (from itself, or delayed: from the steps before), a row, or a block of 128; experts of a "
     "mixture stay bf16 with rows and blocks",
     "tensor|delayed|row|block"},
    {"amax-history-len", consist::OptionKind::integer, "1024", "steps whose largest magnitudes decide a delayed scale", "",
     "scaling=delayed"},
    {"gathers", consist::OptionKind::flag, "false",
     "what ranks gather for fp8 linears (ZeRO's weights, tp-sp's activations) travels as 8-bit values, with the same results", "",
     "", "false|true"},
    {"gradient-format", consist::OptionKind::choice, "auto",
     "8-bit format of the gradients that enter products; auto: e4m3 of rows and blocks, else e5m2", "auto|e5m2|e4m3"},
    {"linears", consist::OptionKind::text, "*",
     "linears in fp8, experts' too: patterns of their weights' names (with * ? [], separated by commas)"},
    {"except", consist::OptionKind::text, "", "patterns of the linears that stay bf16 nevertheless"},
    {"bf16-first", consist::OptionKind::integer, "0", "so many of the first layers stay bf16"},
    {"bf16-last", consist::OptionKind::integer, "0", "so many of the last layers stay bf16"},
    {"fast-accumulation", consist::OptionKind::choice, "forward",
     "products that a GPU may sum with the tensor cores' shorter sums: none, forward, or all", "none|forward|all"},
    consist::bf16::gradients_option, consist::bf16::states_option);
