#include "core/state/adapter_export.h"

#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "consist/error.h"
#include "core/state/loaded_weights.h"
#include "core/weights/model_weights.h"

namespace consist {
namespace {

constexpr const char* adapter_config = "adapter_config.json";

/// The base model as PEFT names it: a folder, or a name of Hugging Face's hub.
std::string base_of(const RunConfig& config) {
  constexpr std::string_view hub = "hf://";
  return config.model.starts_with(hub) ? config.model.substr(hub.size()) : config.model;
}

}  // namespace

bool holds_export(const std::string& folder) {
  std::error_code ignored;
  return ModelWeights::present(folder) || std::filesystem::exists(std::filesystem::path(folder) / adapter_weights, ignored);
}

std::vector<TensorSource> of_adapter_alone(const AdaptedArchitecture& adapted, const std::vector<TensorSource>& trained) {
  std::vector<TensorSource> alone;
  for (const TensorSource& source : trained) {
    if (adapted.is_of_base(source.name)) continue;
    alone.push_back(source);
    alone.back().name = peft_prefix + source.name;
  }
  return alone;
}

std::vector<TensorSource> with_adapter_added(const AdaptedArchitecture& adapted, const std::vector<TensorSource>& trained) {
  struct Trained {
    Program program;
    std::map<std::string, TensorSource, std::less<>> sources;
  };
  const auto all = std::make_shared<Trained>(Trained{whole_model(adapted, {}), {}});
  for (const TensorSource& source : trained) all->sources.emplace(source.name, source);
  const ReadWeights read_weights = [all](std::string_view name, std::int64_t first, std::span<float> out) {
    const auto found = all->sources.find(name);
    if (found == all->sources.end()) throw ProgramError("the adapter reads '" + std::string(name) + "', which is no parameter");
    found->second.read(out.data(), first, std::ssize(out));
  };
  std::vector<TensorSource> merged;
  for (const TensorSource& source : trained) {
    if (!adapted.is_of_base(source.name)) continue;
    merged.push_back(source);
    merged.back().read = [all, read_weights, &adapted, source](void* to, std::int64_t first, std::int64_t count) {
      source.read(to, first, count);
      adapted.adapter().merge(all->program, source.name, first, {static_cast<float*>(to), static_cast<std::size_t>(count)},
                              read_weights);
    };
  }
  return merged;
}

std::vector<AtomicFile> write_adapter(const std::string& folder, const AdaptedArchitecture& adapted, const RunConfig& config,
                                      const std::vector<TensorSource>& weights) {
  std::vector<AtomicFile> files;
  AtomicFile& described = files.emplace_back(folder + "/" + adapter_config);
  const std::string text = adapted.adapter().config_json(whole_model(adapted, {}), base_of(config));
  described.write(text.data(), text.size());
  described.finish();
  write_safetensors(files.emplace_back(folder + "/" + adapter_weights), weights, {{"format", "pt"}});
  return files;
}

}  // namespace consist
