#include "consist/map_update.h"

#include <algorithm>

#include "core/base/index.h"
#include "core/ops/core_ops.h"

namespace consist {

UpdateLoops update_loops(std::string_view text, int states, bool has_master) {
  const Expressions given = Expressions::parse(text);
  if (static_cast<int>(given.results().size()) != 1 + states) {
    throw ProgramError("'" + given.text() + "' has " + std::to_string(given.results().size()) + " results; an update of " +
                       std::to_string(states) + " states has one for the weight and one for each state");
  }
  if (given.reads_channel())
    throw ProgramError("'" + given.text() + "' reads 'channel': an update knows the elements of a parameter in no order");
  Expressions all = given;
  const int stays = all.apply(Function::negate, {all.input(3, Reads::element, 0), -1, -1});
  const auto kept = [&](int before, int after) { return all.apply(Function::select, {stays, before, after}); };
  const int weight = kept(all.input(0), given.results()[0]);
  std::vector<int> elements(has_master ? 2 : 1, weight), scalars;
  UpdateLoops made;
  for (int s = 0; s < states; ++s) {
    const int input = update_state_input + s;
    const std::vector<Reads> reads = given.reads_of(input);
    const bool is_scalar = reads == std::vector{Reads::element};
    made.is_scalar.push_back(is_scalar);
    const int before = is_scalar ? all.input(input, Reads::element, 0) : all.input(input);
    (is_scalar ? scalars : elements).push_back(kept(before, given.results()[index(s + 1)]));
  }
  made.elements = all;
  made.elements.set_results(elements);
  made.scalars = all;
  made.scalars.set_results(scalars);
  for (int input = 0; input < Expressions::max_inputs; ++input) {
    const std::vector<Reads> reads = made.scalars.reads_of(input);
    if (std::any_of(reads.begin(), reads.end(), [](Reads how) { return how != Reads::element; }))
      throw ProgramError("'" + given.text() + "': the result of a scalar state depends on elements");
  }
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
    const UpdateLoops loops = update_loops(attributes.string("f"), states_, false);
    loops.elements.steps();
    loops.scalars.steps();
    require(in.size() > 2 && (in.size() - 2) % each() == 0,
            "its inputs are scalars, clip, and value, gradient, master and states");
    require(present(in, 0).shape.rank() == 1, "the scalars must be a vector");
    check_present(in, 1, scalar);
    check_reads(Expressions::parse(attributes.string("f")), present(in, 0).shape.elements());
    Types made;
    for (std::size_t p = 2; p < in.size(); p += each()) {
      const Shape& shape = present(in, p).shape;
      require(present(in, p + 1).shape == shape, "a gradient must be like its parameter");
      check(in, p + 2, {DType::f32, shape});
      for (int s = 0; s < states_; ++s) {
        const bool is_scalar = loops.is_scalar[index(s)];
        require(present(in, p + 3 + index(s)).shape == (is_scalar ? Shape{} : shape),
                is_scalar ? "a state that f reads as [0] must be a scalar" : "a state must be like its parameter");
      }
      made.push_back(in[p]);
      for (std::size_t k = p + 2; k < p + each(); ++k) made.push_back(in[k]);
    }
    return made;
  }
  /// Elements lie as the first state does that has them; every rank keeps the scalars.
  void shard(AxisSharding& axis, const Types& /*in*/, const Attributes& attributes) const override {
    const UpdateLoops loops = update_loops(attributes.string("f"), states_, false);
    axis.inputs[0] = axis.inputs[1] = Placement::replicate();
    const auto first = std::find(loops.is_scalar.begin(), loops.is_scalar.end(), false);
    const std::size_t leads = first == loops.is_scalar.end() ? 1 : 3 + static_cast<std::size_t>(first - loops.is_scalar.begin());
    for (std::size_t p = 2; p < axis.inputs.size(); p += each()) {
      const Placement elements = axis.inputs[p + leads];
      for (std::size_t k = 0; k < each(); ++k) {
        const bool is_scalar = k >= 3 && loops.is_scalar[k - 3];
        axis.inputs[p + k] = is_scalar ? Placement::replicate() : elements;
        if (k != 1) axis.outputs.push_back(axis.inputs[p + k]);
      }
    }
  }

 private:
  /// Each input is read where it has elements; kernels do not look for the end of a vector.
  void check_reads(const Expressions& f, std::int64_t scalars) const {
    const int inputs = update_state_input + states_;
    if (f.inputs() > inputs)
      fail("'" + f.text() + "' reads " + letter_of(index(f.inputs() - 1)) + "; an update of " + std::to_string(states_) +
           " states has the inputs a to " + letter_of(index(inputs - 1)));
    for (int k = 0; k < f.inputs(); ++k) {
      const bool is_vector = k == 2 || k == 3;
      const std::vector<Reads> how = f.reads_of(k);
      const auto all = [&](Reads one) { return std::count(how.begin(), how.end(), one) == std::ssize(how); };
      const bool by_element = all(Reads::element) && f.elements_of(k) <= (k == 2 ? scalars : 1);
      if (is_vector ? by_element : all(Reads::same) || (k >= update_state_input && by_element)) continue;
      const std::string letter = letter_of(index(k));
      fail("'" + f.text() + "' reads " + letter + " where it has no element; " +
           (k == 2   ? "the scalars are c[0] to c[" + std::to_string(scalars - 1) + "], as many as scalar_count() says"
            : k == 3 ? "the factor that clips is d[0]"
            : k < 2  ? "it is read as " + letter
                     : "a state is read as " + letter + ", and as " + letter + "[0] if it is a scalar"));
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
