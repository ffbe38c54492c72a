// Parameters that files hold in several tensors: the weights of experts, which a model stacks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/shape.h"
#include "core/weights/model_weights.h"

namespace consist {

/// One of the tensors that make up a parameter: the elements [first, first + shape.elements()) of it, row-major.
struct StoredPart {
  std::string name;
  Shape shape;
  std::int64_t first = 0;
};

/// The tensors of a parameter in files. A name with a "*" between two dots stands for as many tensors as the parameter's
/// dimension 0 is long, which have their index in that place and all dimensions but the first; "{a,b}" stands for tensors with a
/// and with b there, which lie one behind the other along dimension 0 of what is left. "experts.*.{gate,up}.weight" of [2, 6, 4]
/// are experts.0.gate.weight [3, 4], experts.0.up.weight, experts.1.gate.weight, experts.1.up.weight. Any other name is one
/// tensor of that name. ERRORS: ProgramError where the shape does not divide so.
CONSIST_API std::vector<StoredPart> stored_parts(std::string_view name, const Shape& shape);

/// Elements [first, first + out.size()) of the parameter with these tensors, as f32. Throws as ModelWeights::read_f32 does.
CONSIST_API void read_parts(const ModelWeights& weights, std::span<const StoredPart> parts, std::int64_t first,
                            std::span<float> out);

/// The tensors that `whole`, a parameter, is written as.
CONSIST_API std::vector<TensorSource> split_into_parts(const TensorSource& whole);

}  // namespace consist
