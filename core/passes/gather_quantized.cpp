#include "core/passes/gather_quantized.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "consist/analysis.h"
#include "consist/edit.h"
#include "consist/error.h"
#include "consist/op.h"

namespace consist {
namespace {

/// A tensor that is gathered to be quantized, by its instructions.
struct Gathered {
  std::size_t gather = 0, amax = 0, quantize = 0;
  TensorId part = no_tensor;  ///< the slice that is gathered
  AxisSet axes;
};

class Rewriter {
 public:
  explicit Rewriter(Program& program) : program_(program), def_use_(program) {}

  void run() {
    std::vector<Gathered> activations;
    std::map<AxisSet, std::vector<Gathered>> weights;  // by axes
    for (std::size_t n = 0; n < program_.instructions.size(); ++n) {
      Gathered found;
      if (!find(n, found)) continue;
      if (program_[found.part].state)
        weights[found.axes].push_back(found);
      else
        activations.push_back(found);
    }
    Inserter inserter(program_);
    for (const auto& [axes, of_axes] : weights) {
      const std::vector<TensorId> parts = quantize_at_start(inserter, axes, of_axes);
      for (std::size_t k = 0; k < parts.size(); ++k) gather_instead(inserter, of_axes[k], [&](Builder&) { return parts[k]; });
    }
    for (const Gathered& g : activations) {
      gather_instead(inserter, g, [&](Builder& b) {
        return quantize_part(b, g, gather_amaxes(b, {at(g.amax).outputs[0]}, g.axes, {}), 0, {});
      });
      at(g.amax).inputs[0] = g.part;
    }
    // Positions of insertions are those of the original program: replaced instructions are removed last.
    inserter.apply();
    std::erase_if(program_.instructions, [](const Instruction& i) { return i.op == nullptr; });
  }

 private:
  static InstructionId position(std::size_t n) { return static_cast<InstructionId>(n); }
  Instruction& at(std::size_t n) { return program_.instructions[n]; }

  bool find(std::size_t n, Gathered& found) {
    const Instruction& quantize = at(n);
    if (!quantize.op->quantizes() || quantize.attributes.integer_or("before_gathers", 0) == 0) return false;
    const TensorId x = quantize.inputs[0], amax = quantize.inputs.at(1);
    if (!def_use_.is_made(x) || !def_use_.is_made(amax)) return false;
    found = {static_cast<std::size_t>(def_use_.producer(x)), static_cast<std::size_t>(def_use_.producer(amax)), n};
    const Instruction& gather = at(found.gather);
    if (gather.op->movement() != Movement::all_gather || gather.inputs.size() != 1 || !at(found.amax).op->states_amax()) return false;
    const std::array<InstructionId, 2> these{position(std::min(found.amax, n)), position(std::max(found.amax, n))};
    if (!std::ranges::equal(def_use_.users(x), these) || def_use_.only_user(amax) != position(n)) return false;
    found.part = gather.inputs[0];
    found.axes = gather.attributes.axes("axis");
    return true;
  }

  static Attributes once_per_step() { return {{"once_per_step", std::int64_t{1}}}; }

  /// Gathers the amaxes of all ranks of `axes`, a row for each rank.
  static TensorId gather_amaxes(Builder& b, const std::vector<TensorId>& amaxes, AxisSet axes, const Attributes& more) {
    Attributes attributes = more;
    attributes.set("axis", axes);
    attributes.set("ranks", std::int64_t{b.program().mesh.size_of(axes)});
    const TensorId own = b.emit_one("rank_values", amaxes, std::move(attributes), "amaxes");
    const TensorId all = b.reshard(own, axes, Placement::replicate());
    for (const auto& [name, value] : more.all()) b.program().instructions.back().attributes.set(name, value);
    return all;
  }

  /// The slice in 8-bit values, scaled by column `column` of the amaxes; its descale is that of the old instruction.
  TensorId quantize_part(Builder& b, const Gathered& g, TensorId amaxes, std::int64_t column, const Attributes& more) {
    Attributes attributes = more;
    for (const char* name : {"dtype", "tensor"}) attributes.set(name, at(g.quantize).attributes.string(name));
    attributes.set("column", column);
    const TensorId descale = at(g.quantize).outputs[2];
    const TensorId part = b.emit("quantize_part", {g.part, amaxes}, std::move(attributes), {program_[g.part].name + ".fp8"})[0];
    program_.instructions.back().outputs[1] = descale;
    return part;
  }

  /// Replaces gather and quantize by a gather of the 8-bit slice that `make` returns.
  template <typename Make>
  void gather_instead(Inserter& inserter, const Gathered& g, const Make& make) {
    const TensorId whole = at(g.quantize).outputs[0], turned = at(g.quantize).outputs[1];
    inserter.after(position(g.quantize), [&](Builder& b) {
      b.reshard(make(b), g.axes, Placement::replicate());
      program_.instructions.back().outputs[0] = whole;
    });
    if (turned != no_tensor && !def_use_.users(turned).empty()) {
      const auto first_reader = static_cast<std::size_t>(def_use_.users(turned).front());
      inserter.after(position(first_reader) - 1, [&](Builder& b) {
        b.tag = at(first_reader).tag;
        b.tag.inserted_by = at(g.quantize).tag.inserted_by;
        b.emit("transpose", {whole}, program_[g.part].state ? once_per_step() : Attributes{});
        program_.instructions.back().outputs[0] = turned;
      });
    }
    at(g.gather).op = at(g.quantize).op = nullptr;
  }

  /// Slices of states, which exist when the step begins. Returns their 8-bit slices.
  std::vector<TensorId> quantize_at_start(Inserter& inserter, AxisSet axes, const std::vector<Gathered>& weights) {
    for (const Gathered& w : weights) {
      if (program_[w.part].space != MemorySpace::host) continue;
      throw UsageError("weights that lie in the host's memory ('" + program_[w.part].name +
                       "') are not quantized before they are gathered; leave out either that option of the precision "
                       "(--fp8.gathers) or the offloading of parameters");
    }
    const Attributes once = once_per_step();
    const auto tag_of = [&](std::size_t n) {
      Tag tag = at(n).tag;
      tag.stage = at(weights[0].amax).tag.stage;  // schedules of pipelines must not take them apart
      return tag;
    };
    std::vector<TensorId> parts, amaxes;
    inserter.after(-1, [&](Builder& b) {
      for (const Gathered& w : weights) {
        b.tag = tag_of(w.amax);
        amaxes.push_back(b.emit_one("amax", {w.part}, once, program_[at(w.amax).outputs[0]].name));
      }
      b.tag = tag_of(weights[0].amax);
      b.tag.layer = -1;
      const TensorId all = gather_amaxes(b, amaxes, axes, once);
      for (std::size_t k = 0; k < weights.size(); ++k) {
        b.tag = tag_of(weights[k].quantize);
        parts.push_back(quantize_part(b, weights[k], all, static_cast<std::int64_t>(k), once));
      }
    });
    for (const Gathered& w : weights) at(w.amax).op = nullptr;
    return parts;
  }

  Program& program_;
  const DefUse def_use_;
};

}  // namespace

void gather_quantized(Program& program) {
  Rewriter(program).run();
}

bool gathers_nothing_quantized(const Program& program) {
  bool asked = false;
  for (const Instruction& instruction : program.instructions) {
    asked |= instruction.attributes.integer_or("before_gathers", 0) != 0;
    if (instruction.op->movement() != Movement::all_gather) continue;
    for (const TensorId input : instruction.inputs) {
      if (program[input].dtype == DType::e4m3 || program[input].dtype == DType::e5m2) return false;
    }
  }
  return asked;
}

}  // namespace consist
