#include "core/state/export_dtype.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "consist/bfloat16.h"
#include "core/base/float16.h"
#include "core/weights/model_weights.h"

namespace consist {
namespace {

using Json = nlohmann::ordered_json;

struct Named {
  StoredDType dtype;
  std::string_view torch;
};
constexpr Named exported[] = {{DType::f32, "float32"}, {DType::bf16, "bfloat16"}, {StoredDType::float16(), "float16"}};

std::optional<StoredDType> of_torch_name(std::string_view name) {
  const auto found = std::find_if(std::begin(exported), std::end(exported), [&](const Named& n) { return n.torch == name; });
  return found == std::end(exported) ? std::nullopt : std::optional(found->dtype);
}

/// The keys of config.json that name a dtype: transformers 5 writes the first, 4 the second.
constexpr const char* dtype_keys[] = {"dtype", "torch_dtype"};

std::optional<StoredDType> said_in(const std::string& config_json) {
  const Json config = Json::parse(config_json, nullptr, false);
  for (const char* key : dtype_keys) {
    if (config.is_object() && config.contains(key) && config[key].is_string())
      return of_torch_name(config[key].get<std::string>());
  }
  return std::nullopt;
}

/// Returns the dtype that has the most elements over all weights of the folder.
std::optional<StoredDType> stored_in(const std::string& folder) {
  const ModelWeights weights(folder);
  std::map<std::string, std::int64_t> elements;
  for (const std::string& name : weights.names()) {
    const StoredTensor& tensor = weights.file_of(name).tensor(name);
    elements[tensor.dtype] += tensor.elements;
  }
  std::optional<StoredDType> most;
  std::int64_t of_most = 0;
  for (const Named& named : exported) {
    const std::int64_t count = elements[std::string(named.dtype.name())];
    if (count > of_most) most = named.dtype;
    of_most = std::max(count, of_most);
  }
  return most;
}

constexpr std::int64_t piece = std::int64_t{1} << 18;  // elements that are read at a time

/// Calls `use(values, first)` for the elements [first, first + count), some at a time.
template <typename Use>
void for_pieces(const TensorSource& weights, std::int64_t first, std::int64_t count, const Use& use) {
  std::vector<float> values(static_cast<std::size_t>(std::min(piece, count)));
  for (std::int64_t done = 0; done < count; done += piece) {
    const std::int64_t here = std::min(piece, count - done);
    weights.read(values.data(), first + done, here);
    use(std::span<const float>(values).first(static_cast<std::size_t>(here)), first + done);
  }
}

}  // namespace

StoredDType export_dtype(const RunConfig& config, const Parts& parts) {
  if (const std::optional<StoredDType> asked = of_torch_name(config.export_dtype)) return *asked;
  if (parts.adapted && !config.export_merged) return DType::f32;
  std::optional<StoredDType> dtype;
  if (!config.from_scratch && !parts.model_folder.empty()) dtype = stored_in(parts.model_folder);
  if (!dtype) dtype = said_in(parts.architecture->config_json());
  return dtype.value_or(DType::f32);
}

std::string_view torch_name_of(StoredDType dtype) noexcept {
  const auto found = std::find_if(std::begin(exported), std::end(exported), [&](const Named& n) { return n.dtype == dtype; });
  return found == std::end(exported) ? "" : found->torch;
}

std::string with_dtype(const std::string& config_json, StoredDType dtype) {
  if (said_in(config_json) == dtype) return config_json;
  Json config = Json::parse(config_json, nullptr, false);
  if (!config.is_object()) return config_json;  // a model's own text, which is its business
  const bool is_new = config.contains("dtype");
  config[is_new ? "dtype" : "torch_dtype"] = torch_name_of(dtype);
  if (is_new) config.erase("torch_dtype");
  return config.dump(2) + "\n";
}

TensorSource rounded_to(StoredDType dtype, TensorSource weights) {
  if (dtype == DType::f32) return weights;
  TensorSource rounded = weights;
  rounded.dtype = dtype;
  rounded.read = [dtype, weights = std::move(weights)](void* to, std::int64_t first, std::int64_t count) {
    auto* out = static_cast<std::uint16_t*>(to);
    for_pieces(weights, first, count, [&](std::span<const float> values, std::int64_t) {
      out = dtype.is_float16() ? std::transform(values.begin(), values.end(), out, to_float16)
                               : std::transform(values.begin(), values.end(), out, to_bfloat16);
    });
  };
  return rounded;
}

std::string beyond_float16(std::span<const TensorSource> weights) {
  std::string found;
  for (const TensorSource& tensor : weights) {
    for_pieces(tensor, 0, tensor.shape.elements(), [&](std::span<const float> values, std::int64_t first) {
      if (!found.empty()) return;
      const auto beyond = std::find_if(values.begin(), values.end(), [](float value) {
        return std::isfinite(value) && !std::isfinite(from_float16(to_float16(value)));
      });
      if (beyond == values.end()) return;
      char number[32];
      std::snprintf(number, sizeof number, "%.6g", static_cast<double>(*beyond));
      found = "element " + std::to_string(first + (beyond - values.begin())) + " of '" + tensor.name + "' is " + number;
    });
    if (!found.empty()) return found;
  }
  return found;
}

}  // namespace consist
