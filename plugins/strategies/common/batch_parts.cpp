#include "plugins/strategies/common/batch_parts.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/op.h"
#include "consist/room.h"

namespace consist::strategies {
namespace {

/// An axis that stands for the slices in ops' placement rules; no mesh has so many axes.
constexpr int axis_of_parts = AxisSet::max_axes - 1;
constexpr Placement by_sequences = Placement::shard(0);

struct Uncuttable {
  std::string why;
};

/// The capacity of an op that dispatches tokens, for one of `parts` slices.
void divide_room(Attributes& attributes, const Mesh& mesh, std::int64_t parts) {
  const std::int64_t rows = attributes.integer("rows");
  if (!attributes.has("axis")) return attributes.set("rows", rows / parts);  // every row has a place
  const auto divided = [](std::int64_t all, std::int64_t by) { return (all + by - 1) / by; };
  const std::int64_t ranks = mesh.ranks() / attributes.integer_or("ranks", 1);  // that share the capacity
  std::int64_t room = rounded_room(divided(rows, parts), ranks);
  if (attributes.has("most_rows")) {
    const std::int64_t most = divided(attributes.integer("most_rows"), parts * ranks) * ranks;
    attributes.set("most_rows", most);
    room = std::min(room, most);
  }
  attributes.set("rows", room);
}

class Cutter {
 public:
  Cutter(const Program& whole, int parts, const char* who)
      : whole_(whole), made_(whole), builder_(made_), parts_(parts), who_(who) {
    made_.instructions.clear();
    for (std::size_t i = 0; i < whole.instructions.size(); ++i) {
      if (whole.instructions[i].tag.layer >= 0) last_of_layers_ = i;
    }
  }

  Program run() {
    const TensorId ids = whole_.find("ids");
    if (ids == no_tensor) throw Uncuttable{"the program has no token ids"};
    const std::int64_t batch = whole_.local(ids)[0];
    if (batch % parts_ != 0)
      throw Uncuttable{"--batch is " + std::to_string(batch) + "; choose a --batch that it divides, or leave the option out"};
    values_[ids] = {.lies = by_sequences};
    bool any = false;
    for (std::size_t at = 0; at < whole_.instructions.size(); ++at) {
      const Instruction& i = whole_.instructions[at];
      if (std::ranges::none_of(i.inputs, [&](TensorId id) { return lies(id) != Placement::replicate(); })) {
        emit_whole(i);
      } else if (at > last_of_layers_ && !i.op->residual_sum() && !i.op->changes_placement()) {
        emit_whole(i);
      } else {
        any |= i.op->dispatches_tokens();
        cut(i);
      }
    }
    if (!any) throw Uncuttable{"the layers do not depend on the token ids"};
    for (Router& router : made_.routers) {
      if (router.statistics != no_tensor) router.statistics = whole_value(router.statistics);
    }
    for (StepOutput& output : made_.outputs) output.tensor = whole_value(output.tensor);
    return std::move(made_);
  }

 private:
  /// A tensor of the uncut program that is in slices.
  struct Value {
    Placement lies;               ///< along the axis of slices
    std::vector<TensorId> parts;  ///< none yet: an input, whose views are made for its first reader
    Tag tag;                      ///< of what makes it
  };

  Placement lies(TensorId id) const {
    const auto found = values_.find(id);
    return found == values_.end() ? Placement::replicate() : found->second.lies;
  }
  std::string name(const Instruction& i) const { return "op '" + std::string(i.op->name()) + "' "; }

  TensorId add(Tensor tensor) {
    const auto id = static_cast<TensorId>(made_.tensors.size());
    if (tensor.storage == no_tensor) tensor.storage = id;
    made_.tensors.push_back(std::move(tensor));
    return id;
  }

  void emit_whole(const Instruction& i) {
    Instruction whole = i;
    for (TensorId& input : whole.inputs) input = whole_value(input);
    for (std::size_t k = 0; k < i.outputs.size(); ++k) {
      const int slot = i.op->updates_in_place(static_cast<int>(k));
      if (i.outputs[k] == no_tensor || made_[i.outputs[k]].storage == i.outputs[k] || slot < 0) continue;
      const Tensor& in_place = made_[whole.inputs.at(static_cast<std::size_t>(slot))];
      made_[i.outputs[k]].storage = in_place.storage;
      made_[i.outputs[k]].offset = in_place.offset;
    }
    made_.instructions.push_back(std::move(whole));
  }

  TensorId whole_value(TensorId id) {
    if (const auto known = joined_.find(id); known != joined_.end()) return known->second;
    const auto found = values_.find(id);
    if (found == values_.end()) return id;
    const Value& value = found->second;
    if (value.parts.empty()) return id;  // an input that nothing has read in slices
    builder_.tag = value.tag;
    builder_.tag.inserted_by = who_;
    const TensorId joined = value.lies.is_partial() ? sum(value) : join(id, value);
    values_.erase(found);
    return joined_[id] = joined;
  }

  TensorId sum(const Value& value) {
    TensorId all = value.parts.front();
    for (std::size_t k = 1; k < value.parts.size(); ++k)
      all = builder_.emit_one("add", {all, value.parts[k]}, {}, made_[value.parts[k]].name);
    return all;
  }

  /// Moves slices into one storage, one behind the other.
  TensorId join(TensorId id, const Value& value) {
    if (!value.lies.is_shard(0) || made_[value.parts.front()].role == Role::input)
      throw Uncuttable{"'" + whole_[id].name + "' is read in one piece within the layers"};
    Tensor storage = whole_[id];
    storage.storage = no_tensor;
    storage.offset = 0;
    const TensorId place = add(std::move(storage));
    std::int64_t offset = 0;
    for (const TensorId part : value.parts) {
      const TensorId old = made_[part].storage;
      if (made_.bytes(old) != made_.bytes(part)) throw Uncuttable{"'" + whole_[id].name + "' lies among other values"};
      for (Tensor& tensor : made_.tensors) {
        if (tensor.storage != old) continue;
        tensor.storage = place;
        tensor.offset += offset;
      }
      offset += made_.bytes(part);
    }
    return builder_.emit_one("join", value.parts, {{"dim", std::int64_t{0}}}, whole_[id].name);
  }

  /// The slices of `id` with placement `wanted`.
  const std::vector<TensorId>& parts_of(TensorId id, Placement wanted, const Instruction& reader) {
    Value& value = values_[id];
    if (value.parts.empty()) {
      const Tensor& input = whole_[id];
      if (input.role != Role::input || input.state || !wanted.is_shard(0))
        throw Uncuttable{name(reader) + "reads '" + input.name + "' in parts, which is made in one piece"};
      value.lies = wanted;
      value.tag = reader.tag;
      builder_.tag = reader.tag;
      builder_.tag.inserted_by = who_;
      value.parts = builder_.emit("views", {id}, {{"dim", std::int64_t{0}}, {"parts", std::int64_t{parts_}}});
      std::int64_t offset = input.offset;
      for (std::size_t k = 0; k < value.parts.size(); ++k) {
        Tensor& part = made_[value.parts[k]];
        part.name = name_of_part(input.name, k);
        part.offset = offset;
        offset += made_.bytes(value.parts[k]);
      }
    }
    if (value.lies != wanted) throw Uncuttable{name(reader) + "needs all tokens of '" + whole_[id].name + "'"};
    return value.parts;
  }
  static std::string name_of_part(const std::string& of, std::size_t k) { return of + ".part" + std::to_string(k); }

  /// Placements of inputs and outputs of `i` along the axis of slices.
  AxisSharding rule(const Instruction& i) const {
    AxisSharding along{.inputs = {}, .outputs = {}, .axis = axis_of_parts};
    Types types(i.inputs.size());
    for (std::size_t k = 0; k < i.inputs.size(); ++k) {
      along.inputs.push_back(lies(i.inputs[k]));
      if (i.inputs[k] != no_tensor) types[k] = TensorType{whole_[i.inputs[k]].dtype, whole_[i.inputs[k]].shape};
    }
    if (i.op->changes_placement()) {
      if (std::ranges::any_of(along.inputs, [](Placement p) { return !p.is_shard(); }))
        along.inputs.assign(i.inputs.size(), Placement::replicate());
      along.outputs = along.inputs;
    } else {
      i.op->shard(along, types, i.attributes);
    }
    along.outputs.resize(i.outputs.size());
    return along;
  }

  void cut(const Instruction& i) {
    const bool quantized =
        std::ranges::any_of(i.inputs, [&](TensorId id) { return id != no_tensor && is_float8(whole_[id].dtype); });
    if (quantized || i.op->quantizes() || i.op->states_amax())
      throw Uncuttable{"tokens in 8-bit floats are scaled together; leave the option out, or choose another precision"};
    const AxisSharding along = rule(i);
    if (std::ranges::all_of(along.inputs, [](Placement p) { return p.is_replicate(); })) return emit_whole(i);
    std::vector<Instruction> of_part(static_cast<std::size_t>(parts_), i);
    for (std::size_t input = 0; input < i.inputs.size(); ++input) {
      const TensorId id = i.inputs[input];
      if (id == no_tensor) continue;
      if (along.inputs[input].is_replicate()) {
        const TensorId whole = whole_value(id);
        for (Instruction& part : of_part) part.inputs[input] = whole;
      } else {
        const std::vector<TensorId>& parts = parts_of(id, along.inputs[input], i);
        for (std::size_t k = 0; k < of_part.size(); ++k) of_part[k].inputs[input] = parts[k];
      }
    }
    for (std::size_t k = 0; k < of_part.size(); ++k) emit_part(i, std::move(of_part[k]), along, k);
    for (const Router& router : whole_.routers) {  // statistics of choices are those of all tokens
      if (std::ranges::count(i.outputs, router.statistics) != 0) whole_value(router.statistics);
    }
  }

  void emit_part(const Instruction& old, Instruction part, const AxisSharding& along, std::size_t k) {
    if (part.op->dispatches_tokens()) divide_room(part.attributes, made_.mesh, parts_);
    Types types(part.inputs.size());
    for (std::size_t input = 0; input < part.inputs.size(); ++input) {
      if (part.inputs[input] != no_tensor)
        types[input] = TensorType{made_[part.inputs[input]].dtype, made_[part.inputs[input]].shape};
    }
    const Types made = part.op->infer(types, part.attributes);
    for (std::size_t output = 0; output < part.outputs.size(); ++output) {
      const TensorId whole = old.outputs[output];
      if (whole == no_tensor) continue;
      if (along.outputs[output].is_replicate())
        throw Uncuttable{name(old) + "makes '" + whole_[whole].name + "' of all tokens, which parts cannot"};
      Tensor tensor = whole_[whole];
      tensor.name = name_of_part(tensor.name, k);
      tensor.dtype = made.at(output)->dtype;
      tensor.shape = made.at(output)->shape;
      const int updated = tensor.storage == whole ? -1 : part.op->updates_in_place(static_cast<int>(output));
      if (updated >= 0) {
        const Tensor& in_place = made_[part.inputs.at(static_cast<std::size_t>(updated))];
        tensor.storage = in_place.storage;
        tensor.offset = in_place.offset;
      } else if (tensor.storage == whole) {
        tensor.storage = no_tensor;
      } else {
        throw Uncuttable{"'" + whole_[whole].name + "' lies in the place of another value"};
      }
      part.outputs[output] = add(std::move(tensor));
      Value& value = values_[whole];
      value.lies = along.outputs[output];
      value.tag = old.tag;
      value.parts.push_back(part.outputs[output]);
    }
    made_.instructions.push_back(std::move(part));
  }

  const Program& whole_;
  Program made_;
  Builder builder_;
  int parts_;
  const char* who_;
  std::size_t last_of_layers_ = 0;
  std::map<TensorId, Value> values_;     // by tensor of the whole program
  std::map<TensorId, TensorId> joined_;  // the tensors that slices were joined to
};

}  // namespace

CutProgram cut_batch(const Program& forward, int parts, const char* who) {
  try {
    return {Cutter(forward, parts, who).run(), ""};
  } catch (const Uncuttable& reason) {
    return {forward, reason.why};
  }
}

}  // namespace consist::strategies
