// The ops of Adafactor and their kernels for the device "cpu", in fp32. A matrix's gradient may lie in any way on an axis; its
// sums over rows and columns follow.
#include <consist/error.h>
#include <consist/kernel_registry.h>
#include <consist/plugin.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace {

using namespace consist;

const TensorType scalar{DType::f32, {}};

/// An op whose outputs are the inputs `updated`, in place, and then `made`.
class AdafactorOp final : public Op {
 public:
  AdafactorOp(const char* name, std::size_t inputs, std::vector<int> updated, Types (*made)(const Types&),
              void (*shard)(AxisSharding&))
      : name_(name), inputs_(inputs), updated_(std::move(updated)), made_(made), shard_(shard) {}
  std::string_view name() const noexcept override { return name_; }
  Types infer(const Types& in, const Attributes&) const override {
    if (in.size() != inputs_) throw ProgramError(name_ + " has " + std::to_string(inputs_) + " inputs");
    Types out;
    for (const int input : updated_) out.push_back(in[static_cast<std::size_t>(input)]);
    for (const auto& type : made_(in)) out.push_back(type);
    return out;
  }
  void shard(AxisSharding& axis, const Types&, const Attributes&) const override { shard_(axis); }
  int updates_in_place(int output) const noexcept override {
    return output < static_cast<int>(updated_.size()) ? updated_[static_cast<std::size_t>(output)] : -1;
  }

 private:
  std::string name_;
  std::size_t inputs_;
  std::vector<int> updated_;
  Types (*made_)(const Types&);
  void (*shard_)(AxisSharding&);
};

/// The placement of a matrix's values for each row (`lacking` 1) or column (0), where those of its elements lie as `matrix`.
Placement along(Placement matrix, int lacking) {
  return matrix.is_shard(1 - lacking) ? Placement::shard(0) : Placement::replicate();
}
/// No op here works on summands.
Placement& whole(Placement& placement) {
  if (placement.is_partial()) placement = Placement::replicate();
  return placement;
}
Placement sum_over(Placement parts) {
  return parts.is_shard() || parts.is_flat() ? Placement::partial() : Placement::replicate();
}

/// clip, gradient [R,C] -> sums of squares over each row f32[R] and column f32[C].
const Op& sums_op = registry().add(std::make_unique<AdafactorOp>(
    "adafactor_sums", 2, std::vector<int>{},
    [](const Types& in) -> Types {
      if (!in[1] || in[1]->shape.rank() != 2) throw ProgramError("adafactor_sums: the gradient is no matrix");
      return {TensorType{DType::f32, {in[1]->shape[0]}}, TensorType{DType::f32, {in[1]->shape[1]}}};
    },
    [](AxisSharding& axis) {
      const Placement matrix = whole(axis.inputs[1]);
      axis.inputs[0] = Placement::replicate();
      for (const int lacking : {1, 0})
        axis.outputs.push_back(matrix.is_flat() || matrix.is_shard(lacking) ? Placement::partial() : along(matrix, lacking));
    }));

/// scalars, clip, the two sums, row f32[R], column f32[C] -> row and column, in place, and the sum of row f32[].
const Op& moments_op = registry().add(std::make_unique<AdafactorOp>(
    "adafactor_moments", 6, std::vector{4, 5}, [](const Types&) -> Types { return {scalar}; },
    [](AxisSharding& axis) {
      const Placement row = whole(axis.inputs[4]), column = whole(axis.inputs[5]);
      axis.inputs = {Placement(), Placement(), row, column, row, column};
      axis.outputs = {row, column, sum_over(row)};
    }));

/// scalars, clip, gradient, then row, column and the sum of row of a matrix, or the variance of a vector: of both ops below.
Placement place_gradient(AxisSharding& axis) {
  const Placement gradient = whole(axis.inputs[2]);
  axis.inputs[0] = axis.inputs[1] = axis.inputs[5] = Placement::replicate();
  axis.inputs[3] = along(gradient, 1), axis.inputs[4] = along(gradient, 0), axis.inputs[6] = gradient;
  return gradient;
}

/// Those -> the variance, in place, and the sum of squares of the update f32[].
const Op& size_op = registry().add(std::make_unique<AdafactorOp>(
    "adafactor_size", 7, std::vector{6}, [](const Types&) -> Types { return {scalar}; },
    [](AxisSharding& axis) {
      const Placement gradient = place_gradient(axis);
      axis.outputs = {gradient, sum_over(gradient)};
    }));

/// Those, value, master?, the parameter's sum of squares and the update's -> value and master, in place.
const Op& apply_op = registry().add(std::make_unique<AdafactorOp>(
    "adafactor", 11, std::vector{7, 8}, [](const Types&) -> Types { return {}; },
    [](AxisSharding& axis) {
      axis.inputs[7] = axis.inputs[8] = place_gradient(axis);
      axis.inputs[9] = axis.inputs[10] = Placement::replicate();
      axis.outputs = {axis.inputs[7], axis.inputs[8]};
    }));

using Buffers = std::span<const Buffer>;
/// `first`: where a flat gradient begins in the rank's matrix; 0 of others.
using Run = void (*)(Buffers in, Buffers out, const Attributes& a, std::int64_t first);

class Function final : public Kernel {
 public:
  Function(Run run, Attributes attributes, std::int64_t first) : run_(run), attributes_(std::move(attributes)), first_(first) {}
  void launch(Buffers in, Buffers out, void*, NativeQueue) override { run_(in, out, attributes_, first_); }

 private:
  Run run_;
  Attributes attributes_;
  std::int64_t first_;
};

void sums(Buffers in, Buffers out, const Attributes&, std::int64_t first) {
  auto *rows = out[0].as<float>(), *columns = out[1].as<float>();
  const std::int64_t width = out[1].shape.elements();
  std::fill_n(rows, out[0].shape.elements(), 0.0F);
  std::fill_n(columns, width, 0.0F);
  for (std::int64_t i = 0; i < in[1].shape.elements(); ++i) {
    const float g = *in[0].as<float>() * in[1].as<float>()[i];
    rows[(first + i) / width] += g * g;
    columns[(first + i) % width] += g * g;
  }
}

/// state := lerp(state, value(i), 1 - decay) unless the step changes nothing, which a clip below 0 says.
template <typename Value>
void move(const Buffer& state, Buffers in, Value value) {
  for (std::int64_t i = 0; i < state.shape.elements() && *in[1].as<float>() >= 0; ++i)
    state.as<float>()[i] = std::lerp(state.as<float>()[i], value(i), in[0].as<float>()[1]);
}

void moments(Buffers in, Buffers out, const Attributes& a, std::int64_t) {
  const auto rows = static_cast<float>(a.integer("rows")), columns = static_cast<float>(a.integer("columns"));
  move(in[4], in, [&](std::int64_t i) { return in[2].as<float>()[i] / columns; });
  move(in[5], in, [&](std::int64_t i) { return in[3].as<float>()[i] / rows; });
  *out[2].as<float>() = 0;
  for (std::int64_t i = 0; i < in[4].shape.elements(); ++i) *out[2].as<float>() += in[4].as<float>()[i];
}

/// Element i of the update before its size is bounded.
float update_of(Buffers in, std::int64_t i, const Attributes& a, std::int64_t first) {
  const auto least = static_cast<float>(a.real("epsilon1"));
  float estimate = in[3].absent() ? in[6].as<float>()[i] : 0;
  if (!in[3].absent()) {
    const std::int64_t width = in[4].shape.elements(), at = first + i;
    const float mean = *in[5].as<float>() / static_cast<float>(a.integer("rows"));
    estimate = in[3].as<float>()[at / width] * in[4].as<float>()[at % width] / std::max(mean, least);
  }
  return *in[1].as<float>() * in[2].as<float>()[i] / std::sqrt(std::max(estimate, least * least));
}

void size(Buffers in, Buffers out, const Attributes& a, std::int64_t first) {
  const auto square = [&](std::int64_t i) {
    const float g = *in[1].as<float>() * in[2].as<float>()[i];
    return g * g;
  };
  if (!in[6].absent()) move(in[6], in, square);
  *out[1].as<float>() = 0;
  for (std::int64_t i = 0; i < in[2].shape.elements(); ++i) *out[1].as<float>() += std::pow(update_of(in, i, a, first), 2.0F);
}

void apply(Buffers in, Buffers, const Attributes& a, std::int64_t first) {
  const auto *scalars = in[0].as<float>(), elements = static_cast<float>(a.integer("elements"));
  const float weight = std::sqrt(*in[9].as<float>() / elements), size = std::sqrt(*in[10].as<float>() / elements);
  const float rate = std::max(static_cast<float>(a.real("epsilon2")), weight) * scalars[2] /
                     std::max(1.0F, size / static_cast<float>(a.real("threshold")));
  const float kept = 1 - scalars[0] * static_cast<float>(a.real("weight_decay"));
  for (std::int64_t i = 0; i < in[7].shape.elements() && *in[1].as<float>() >= 0; ++i) {
    float& w = in[in[8].absent() ? 7 : 8].as<float>()[i];
    w = w * kept - rate * update_of(in, i, a, first);
    in[7].as<float>()[i] = w;
  }
}

class CpuKernels final : public KernelSet {
 public:
  explicit CpuKernels(const Options&) {}
  std::vector<KernelKey> keys() const override {
    std::vector<KernelKey> keys;
    for (const KernelExample& example : examples()) keys.push_back({"cpu", example.op, {DType::f32}});
    return keys;
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    for (const Buffer& buffer : request.inputs) {
      if (!buffer.absent() && buffer.dtype != DType::f32) return nullptr;
    }
    static const std::pair<std::string_view, Run> functions[] = {
        {"adafactor_sums", sums}, {"adafactor_moments", moments}, {"adafactor_size", size}, {"adafactor", apply}};
    const auto* function = std::ranges::find(functions, request.op, &std::pair<std::string_view, Run>::first);
    const std::size_t gradient = function->second == sums ? 1 : 2;
    const bool is_flat = request.inputs[gradient].shape.rank() == 1 && !request.input_origins.empty();
    return std::make_unique<Function>(function->second, request.attributes, is_flat ? request.input_origins[gradient][0] : 0);
  }
  std::vector<KernelExample> examples() const override {
    const TensorType s{DType::f32, {}}, scalars{DType::f32, {3}}, w{DType::f32, {3, 5}}, row{DType::f32, {3}},
        column{DType::f32, {5}};
    const Attributes constants{{"epsilon1", 1e-7},
                               {"epsilon2", 1e-3},
                               {"threshold", 1.0},
                               {"weight_decay", 0.1},
                               {"rows", std::int64_t{3}},
                               {"columns", std::int64_t{5}},
                               {"elements", std::int64_t{15}}};
    return {{"adafactor_sums", {s, w}, {}},
            {"adafactor_moments", {scalars, s, row, column, row, column}, constants},
            {"adafactor_size", {scalars, s, w, row, column, s, std::nullopt}, constants},
            {"adafactor", {scalars, s, w, row, column, s, std::nullopt, w, std::nullopt, s, s}, constants}};
  }
};

}  // namespace

CONSIST_PLUGIN(kernels, consist::KernelSet, CpuKernels, "adafactor-ops", "1.0.0", "ops of my-adafactor, on cpu in fp32");
CONSIST_PLUGIN_NO_OPTIONS();
