#include "consist/map_update.h"

#include <algorithm>
#include <array>

#include "core/base/index.h"
#include "core/ops/core_ops.h"

namespace consist {

namespace {

/// The same expressions, where what is read as `from` is read as `to`.
Expressions with_reads(const Expressions& f, Reads from, Reads to) {
  Expressions made;
  std::vector<int> places;
  for (const ExpressionNode& node : f.nodes()) {
    std::array<int, 3> arguments = node.arguments;
    for (int& argument : arguments) argument = argument < 0 ? -1 : places[index(argument)];
    if (node.function == Function::constant)
      places.push_back(made.constant(node.value));
    else if (node.function == Function::input)
      places.push_back(made.input(node.input, node.reads == from ? to : node.reads, node.element));
    else
      places.push_back(made.apply(node.function, arguments));
  }
  std::vector<int> results;
  for (const int result : f.results()) results.push_back(places[index(result)]);
  made.set_results(std::move(results));
  return made;
}

Expressions with_result(Expressions f, std::vector<int> results) {
  f.set_results(std::move(results));
  return f;
}

/// The expressions of attribute "largest", none where it is absent.
Expressions largest_of(const Attributes& attributes) {
  return attributes.has("largest") ? Expressions::parse(attributes.string("largest")) : Expressions();
}

/// The way in which a state is read; as it is where that is none or several.
Reads read_of_state(const Expressions& f, const Expressions& largest, int input) {
  const std::vector<Reads> by_f = f.reads_of(input), reads = by_f.empty() ? largest.reads_of(input) : by_f;
  return reads.size() == 1 ? reads[0] : Reads::same;
}

void check_result(const Expressions& f, const Expressions& given, bool of_blocks) {
  for (int input = 0; input < Expressions::max_inputs; ++input) {
    for (const Reads how : f.reads_of(input)) {
      if (how != Reads::element && !(of_blocks && how == Reads::block))
        throw ProgramError("'" + given.text() + "': the result of a " + (of_blocks ? "block" : "scalar") +
                           " state depends on elements");
    }
  }
}

}  // namespace

UpdateLoops update_loops(const Attributes& attributes, int states, bool has_master) {
  const Expressions given = Expressions::parse(attributes.string("f")), largest = largest_of(attributes);
  if (static_cast<int>(given.results().size()) != 1 + states) {
    throw ProgramError("'" + given.text() + "' has " + std::to_string(given.results().size()) + " results; an update of " +
                       std::to_string(states) + " states has one for the weight and one for each state");
  }
  if (given.reads_channel() || largest.reads_channel())
    throw ProgramError("'" + given.text() + "' reads 'channel': an update knows the elements of a parameter in no order");
  Expressions all = given;
  const int stays = all.apply(Function::negate, {all.input(3, Reads::element, 0), -1, -1});
  const auto kept = [&](int before, int after) { return all.apply(Function::select, {stays, before, after}); };
  const int weight = kept(all.input(0), given.results()[0]);
  std::vector<int> elements(has_master ? 2 : 1, weight), blocks, scalars;
  UpdateLoops made;
  for (int s = 0; s < states; ++s) {
    const int input = update_state_input + s;
    const Reads how = read_of_state(given, largest, input);
    made.states.push_back(how);
    std::vector<int>& results = how == Reads::element ? scalars : how == Reads::block ? blocks : elements;
    results.push_back(kept(all.input(input, how), given.results()[index(s + 1)]));
  }
  made.scalars = with_result(all, scalars);
  check_result(made.scalars, given, false);
  const Expressions of_blocks = with_result(all, blocks);
  check_result(of_blocks, given, true);
  made.blocks = with_reads(of_blocks, Reads::block, Reads::same);
  made.elements = with_reads(with_result(all, elements), Reads::block, Reads::row);
  for (const int result : largest.results())
    made.largest.push_back(with_reads(with_result(largest, {result}), Reads::block, Reads::row));
  return made;
}

namespace ops {
namespace {

class MapUpdate final : public NamedOp {
 public:
  explicit MapUpdate(int states) : NamedOp("map_update_" + std::to_string(states)), states_(states) {}
  int states_per_update() const noexcept override { return states_; }
  int updates_in_place(int output) const noexcept override {
    const int of = output / (2 + states_), which = output % (2 + states_);
    return 2 + of * (3 + states_) + (which == 0 ? 0 : which + 1);
  }

  Types infer(const Types& in, const Attributes& attributes) const override {
    const UpdateLoops loops = update_loops(attributes, states_, false);
    for (const Expressions* f : {&loops.elements, &loops.blocks, &loops.scalars}) f->steps();
    for (const Expressions& f : loops.largest) f.steps();
    require(in.size() > 2 && (in.size() - 2) % each() == 0,
            "its inputs are scalars, clip, and value, gradient, master and states");
    require(present(in, 0).shape.rank() == 1, "the scalars must be a vector");
    check_present(in, 1, scalar);
    const std::int64_t scalars = present(in, 0).shape.elements(), block = block_of(attributes, loops);
    check_reads(Expressions::parse(attributes.string("f")), scalars, loops, loops.largest.size());
    check_reads(largest_of(attributes), scalars, loops, 0);
    Types made;
    for (std::size_t p = 2; p < in.size(); p += each()) {
      const Shape& shape = present(in, p).shape;
      require(present(in, p + 1).shape == shape, "a gradient must be like its parameter");
      check(in, p + 2, {DType::f32, shape});
      for (int s = 0; s < states_; ++s) {
        check_state(present(in, p + 3 + index(s)), loops.states[index(s)], shape, block);
      }
      made.push_back(in[p]);
      for (std::size_t k = p + 2; k < p + each(); ++k) made.push_back(in[k]);
    }
    return made;
  }
  /// Elements and blocks lie as the first state does that has them; every rank keeps the scalars.
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    const UpdateLoops loops = update_loops(attributes, states_, false);
    axis.inputs[0] = axis.inputs[1] = Placement::replicate();
    const auto is_scalar = [&](std::size_t state) { return loops.states[state] == Reads::element; };
    std::size_t first = 0;
    while (first < loops.states.size() && is_scalar(first)) ++first;
    const std::size_t leads = first == loops.states.size() ? 1 : 3 + first;
    for (std::size_t p = 2; p < axis.inputs.size(); p += each()) {
      const Placement elements = axis.inputs[p + leads];
      for (std::size_t k = 0; k < each(); ++k) {
        axis.inputs[p + k] = k >= 3 && is_scalar(k - 3) ? Placement::replicate() : elements;
        if (k != 1) axis.outputs.push_back(axis.inputs[p + k]);
      }
    }
  }

 private:
  /// The elements of a block; 0: it is no rule of blocks.
  std::int64_t block_of(const Attributes& attributes, const UpdateLoops& loops) const {
    const std::int64_t block = attributes.integer_or("block", 0);
    const bool has_blocks =
        !loops.largest.empty() || std::find(loops.states.begin(), loops.states.end(), Reads::block) != loops.states.end();
    require(block >= 0 && has_blocks == (block > 0), "attribute 'block' must be there, above 0, where something is read as e[b]");
    require(update_state_input + states_ + std::ssize(loops.largest) <= Expressions::max_inputs, "it has more than 12 inputs");
    return block;
  }

  void check_state(const TensorType& state, Reads how, const Shape& shape, std::int64_t block) const {
    const auto is_float = [](DType type) { return type == DType::f32 || type == DType::bf16; };
    if (how == Reads::same) {
      require(state.shape == shape, "a state must be like its parameter");
      require(is_float(state.dtype) || state.dtype == DType::e4m3 || state.dtype == DType::e5m2,
              "a state like its parameter must be f32, bf16, e4m3 or e5m2");
      return;
    }
    require(is_float(state.dtype), "a state that f reads as [0] or [b] must be f32 or bf16");
    if (how == Reads::element) return require(state.shape == Shape{}, "a state that f reads as [0] must be a scalar");
    require(shape.rank() > 0 && shape.last() % block == 0, "rows of a rule of blocks must be multiples of 'block'");
    Shape blocks = shape;
    blocks[shape.rank() - 1] /= block;
    require(state.shape == blocks, "a state that f reads as [b] must have one value for each block of a row");
  }

  /// Each input is read where it has elements, and all in one way; kernels do not look for the end of a vector. `largest`: inputs
  /// behind the states.
  void check_reads(const Expressions& f, std::int64_t scalars, const UpdateLoops& loops, std::size_t largest) const {
    const int inputs = update_state_input + states_ + static_cast<int>(largest);
    if (f.inputs() > inputs)
      fail("'" + f.text() + "' reads " + letter_of(index(f.inputs() - 1)) + "; an update of " + std::to_string(states_) +
           " states has the inputs a to " + letter_of(index(inputs - 1)));
    for (int k = 0; k < f.inputs(); ++k) {
      const bool is_state = k >= update_state_input && k < update_state_input + states_;
      const Reads wanted = k < 2      ? Reads::same
                           : k < 4    ? Reads::element
                           : is_state ? loops.states[index(k - update_state_input)]
                                      : Reads::block;
      const std::vector<Reads> how = f.reads_of(k);
      const bool is_there = wanted != Reads::element || f.elements_of(k) <= (k == 2 ? scalars : 1);
      if (std::count(how.begin(), how.end(), wanted) == std::ssize(how) && is_there) continue;
      const std::string letter = letter_of(index(k));
      fail("'" + f.text() + "' reads " + letter + " where it has no element; " +
           (k == 2     ? "the scalars are c[0] to c[" + std::to_string(scalars - 1) + "], as many as scalar_count() says"
            : k == 3   ? "the factor that clips is d[0]"
            : k < 2    ? "it is read as " + letter
            : is_state ? "a state is read as " + letter + ", and as " + letter + "[0] if it is a scalar, or as " + letter +
                             "[b] if it is of blocks"
                       : "the largest of a block is read as " + letter + "[b]"));
    }
  }

  /// Inputs of one parameter.
  std::size_t each() const noexcept { return 3 + index(states_); }

  int states_;
};

}  // namespace

void register_map_update(OpRegistry& registry) {
  for (int states = 1; states <= max_update_states; ++states) registry.add(std::make_unique<MapUpdate>(states));
}

}  // namespace ops
}  // namespace consist
