// fp8: bf16 training whose linears multiply 8-bit floats, forward and backward. Each tensor that enters such a product is
// quantized with a scale from its own largest magnitude; everything else (norms, attention, embedding, LM head, what is between
// linears) stays bf16.
#include "consist/precision.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "consist/edit.h"
#include "consist/error.h"
#include "consist/plugin.h"
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

/// A quantized tensor, as the outputs of its quantize instruction.
struct Quantized {
  TensorId value = no_tensor, descale = no_tensor;
};

class Fp8 final : public Precision {
 public:
  explicit Fp8(const Options& options)
      : dtypes_(bf16::dtypes(options)),
        gradients_(options.text("gradient-format")),
        fast_(options.text("fast-accumulation")),
        linears_(options.text("linears")),
        except_(options.text("except")),
        first_(options.integer("bf16-first")),
        last_(options.integer("bf16-last")) {
    if (first_ < 0 || last_ < 0) throw UsageError("--fp8.bf16-first and --fp8.bf16-last are numbers of layers, at least 0");
  }
  DTypes dtypes() const override { return dtypes_; }
  std::string describe() const override {
    return "bf16 with fp8 linears (e4m3 forward, " + gradients_ + " gradients, a power-of-two scale per tensor), " +
           bf16::describe(dtypes_);
  }
  std::string peak() const override { return "fp8"; }

  void rewrite(Program& forward) const override {
    const std::vector<InstructionId> chosen = choose(forward);
    // Quantized tensors by their source: linears that read the same activation share one.
    std::map<TensorId, Quantized> made;
    Inserter inserter(forward);
    for (InstructionId id : chosen) {
      const Instruction linear = forward.instructions[static_cast<std::size_t>(id)];  // a copy: emitting moves the vector
      inserter.after(id - 1, [&](Builder& b) {
        b.tag = linear.tag;
        b.tag.inserted_by = "fp8";
        quantize(b, linear.inputs[0], false, made);
        quantize(b, linear.inputs[1], true, made);
      });
    }
    // In place, so that whoever reads the result need not be told.
    for (InstructionId id : chosen) {
      Instruction& linear = forward.instructions[static_cast<std::size_t>(id)];
      const Quantized x = made.at(linear.inputs[0]), w = made.at(linear.inputs[1]);
      std::vector<TensorId> inputs{x.value, x.descale, w.value, w.descale};
      if (linear.inputs.size() > 2) inputs.push_back(linear.inputs[2]);
      linear.op = &registry().get("fp8_linear");
      linear.inputs = std::move(inputs);
      linear.attributes = {{"dtype", std::string(name_of(forward[linear.outputs[0]].dtype))},
                           {"fast_accumulation", std::int64_t{fast_ == "none" ? 0 : 1}},
                           {"gradients", gradients_},
                           {"fast_gradients", std::int64_t{fast_ == "all" ? 1 : 0}}};
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
    std::string example = "(none: the model has no linears)";
    for (std::size_t i = 0; i < forward.instructions.size(); ++i) {
      const Instruction& instruction = forward.instructions[i];
      if (instruction.op->name() != "linear") continue;
      const std::string& name = forward[instruction.inputs[1]].name;
      example = name;
      const bool named = linears.match(name), excepted = except.match(name);
      const int layer = instruction.tag.layer;
      const bool inner = layer < 0 || (layer >= first_ && layer < layers - last_);
      if (named && !excepted && inner) chosen.push_back(static_cast<InstructionId>(i));
    }
    linears.check_used("linears", example);
    except.check_used("except", example);
    if (chosen.empty()) {
      throw UsageError("--precision fp8 with these options leaves every linear of the " + std::to_string(layers) +
                       " layers in bf16; use --precision bf16 for that, or lower --fp8.bf16-first and --fp8.bf16-last");
    }
    return chosen;
  }

  /// Weights are the same for every micro-batch.
  static void quantize(Builder& b, TensorId tensor, bool once_per_step, std::map<TensorId, Quantized>& made) {
    if (made.contains(tensor)) return;
    const std::string name = b[tensor].name;
    Attributes amax_attributes, attributes{{"dtype", std::string(name_of(DType::e4m3))}, {"tensor", name}};
    if (once_per_step) {
      amax_attributes.set("once_per_step", std::int64_t{1});
      attributes.set("once_per_step", std::int64_t{1});
    }
    const TensorId amax = b.emit_one("amax", {tensor}, std::move(amax_attributes), name + ".amax");
    const std::vector<TensorId> outputs =
        b.emit("quantize", {tensor, amax}, std::move(attributes), {name + ".fp8", name + ".fp8t", name + ".descale"});
    made[tensor] = {outputs[0], outputs[2]};
  }

  DTypes dtypes_;
  std::string gradients_, fast_, linears_, except_;
  std::int64_t first_, last_;
};

}  // namespace

CONSIST_PLUGIN(precision, consist::Precision, Fp8, "fp8", "1.0.0",
               "bf16 with fp8 linears, forward and backward: e4m3, gradients e5m2 or e4m3, one scale per tensor");
CONSIST_PLUGIN_OPTIONS({"gradient-format", consist::OptionKind::choice, "e5m2",
                        "8-bit format of the gradients that enter products", "e5m2|e4m3"},
                       {"linears", consist::OptionKind::text, "*",
                        "linears in fp8: patterns of their weights' names (with * ? [], separated by commas)"},
                       {"except", consist::OptionKind::text, "", "patterns of the linears that stay bf16 nevertheless"},
                       {"bf16-first", consist::OptionKind::integer, "0", "so many of the first layers stay bf16"},
                       {"bf16-last", consist::OptionKind::integer, "0", "so many of the last layers stay bf16"},
                       {"fast-accumulation", consist::OptionKind::choice, "forward",
                        "products that a GPU may sum with the tensor cores' shorter sums: none, forward, or all",
                        "none|forward|all"},
                       consist::bf16::gradients_option, consist::bf16::states_option);
