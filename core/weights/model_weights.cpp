#include "core/weights/model_weights.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "consist/error.h"
#include "consist/json_input.h"
#include "consist/text.h"

namespace consist {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::int64_t kMaxIndexBytes = 100'000'000;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_shard_name(std::string_view name) {
  return name.starts_with("model-") && ends_with(name, ".safetensors");
}

}  // namespace

bool ModelWeights::present(const std::string& path) {
  if (is_folder(path)) return is_there(fs::path(path) / kSingle) || is_there(fs::path(path) / kIndex);
  return is_there(path);
}

std::string ModelWeights::advice(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  const auto first = [&](auto matches) {
    const auto found = std::find_if(names.begin(), names.end(), matches);
    return found == names.end() ? std::string() : *found;
  };
  const auto ending = [&](std::string_view end) { return first([&](const std::string& name) { return ends_with(name, end); }); };
  if (const std::string name = ending(".safetensors"); !name.empty())
    return "; it has " + in_quotes(name) + ": name that file, or add the index";
  const std::string pickled =
      first([](const std::string& name) { return name.starts_with("pytorch_model") && ends_with(name, ".bin"); });
  if (!pickled.empty()) {
    return "; it has " + in_quotes(pickled) +
           ", which is of PyTorch and not read: convert it with transformers, AutoModelForCausalLM.from_pretrained(FOLDER)"
           ".save_pretrained(NEW_FOLDER), which writes safetensors, and copy the tokenizer's files";
  }
  if (const std::string name = ending(".pth"); !name.empty()) {
    return "; it has " + in_quotes(name) +
           ", weights in Meta's own form: convert them with transformers' convert_llama_weights_to_hf.py";
  }
  for (const char* other : {".gguf", ".h5", ".msgpack", ".bin"}) {
    if (const std::string name = ending(other); !name.empty())
      return "; it has " + in_quotes(name) + ", a format that is not read: convert it to safetensors";
  }
  return "";
}

std::int64_t first_difference(const ModelWeights& weights, std::string_view a, std::string_view b) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  const std::int64_t elements = weights.shape(a).elements();
  std::vector<float> left(static_cast<std::size_t>(std::min(most, elements))), right(left.size());
  for (std::int64_t done = 0; done < elements; done += most) {
    const auto count = static_cast<std::size_t>(std::min(most, elements - done));
    weights.read_f32(a, done, std::span(left).first(count));
    weights.read_f32(b, done, std::span(right).first(count));
    // By bits: the values of a file that is damaged may be NaN.
    if (std::memcmp(left.data(), right.data(), count * sizeof(float)) == 0) continue;
    for (std::size_t i = 0; i < count; ++i) {
      if (std::bit_cast<std::uint32_t>(left[i]) != std::bit_cast<std::uint32_t>(right[i]) && !(left[i] == right[i]))
        return done + static_cast<std::int64_t>(i);
    }
  }
  return -1;
}

ModelWeights::ModelWeights(const std::string& path) : path_(path) {
  const fs::path single = fs::path(path) / kSingle;
  const fs::path index = fs::path(path) / kIndex;
  if (!is_there(path)) throw UsageError("there are no weights at " + path + ": no such file or folder");
  if (!is_folder(path)) {
    ends_with(path, ".json") ? open_index(path) : open_file(path);
  } else if (is_there(single)) {
    open_file(single.string());
  } else if (is_there(index)) {
    open_index(index.string());
  } else {
    throw UsageError("the folder " + path + " has neither " + kSingle + " nor " + kIndex + advice(path));
  }
}

const SafetensorsFile& ModelWeights::file_of(std::string_view name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) {
    throw DataError("the weights at " + path_ + " have no tensor " + std::string(name) + " (they have " +
                    std::to_string(files_.size()) + " others)");
  }
  return *found->second;
}

std::vector<std::string> ModelWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

void ModelWeights::open_file(const std::string& path) {
  opened_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const auto& [name, tensor] : opened_.back()->tensors()) files_.emplace(name, opened_.back().get());
}

void ModelWeights::open_index(const std::string& path) {
  const json index = read_json(path, {.most_bytes = kMaxIndexBytes});
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) throw DataError(path + " has no object weight_map");
  std::map<std::string, const SafetensorsFile*> by_name;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) throw DataError(path + " names no file for tensor " + in_quotes(tensor));
    const std::string name = file.get<std::string>();
    // The index comes with a download: it shall not reach outside its folder.
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      throw DataError(path + " names for tensor " + in_quotes(tensor) + " the file " + in_quotes(name) +
                      ", which is no plain file name");
    }
    const SafetensorsFile*& opened = by_name[name];
    if (opened == nullptr) {
      const std::string shard = (fs::path(path).parent_path() / name).string();
      if (!is_there(shard))
        throw DataError(path + " says that tensor " + in_quotes(tensor) + " is in " + in_quotes(name) +
                        ", but there is no such file");
      opened_.push_back(std::make_unique<SafetensorsFile>(shard));
      opened = opened_.back().get();
    }
    if (!opened->has(tensor))
      throw DataError(path + " says that tensor " + in_quotes(tensor) + " is in " + in_quotes(name) +
                      ", but that file does not have it");
    files_.emplace(tensor, opened);
  }
}

void write_model_weights(const std::string& folder, std::span<const TensorSource> tensors, std::int64_t max_file_bytes,
                         bool overwrite) {
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw SystemError("cannot make the folder " + folder + ": " + error.message());
  const fs::path base(folder);
  if (!overwrite && ModelWeights::present(folder)) {
    throw UsageError("the folder " + folder + " has weights already; name another folder");
  }

  std::vector<std::vector<TensorSource>> groups(1);
  std::int64_t group_bytes = 0;
  std::int64_t total = 0;
  for (const TensorSource& tensor : tensors) {
    const std::int64_t bytes = tensor.shape.elements() * static_cast<std::int64_t>(tensor.dtype.bytes());
    if (!groups.back().empty() && group_bytes + bytes > max_file_bytes) {
      groups.emplace_back();
      group_bytes = 0;
    }
    groups.back().push_back(tensor);
    group_bytes += bytes;
    total += bytes;
  }

  json weight_map = json::object();
  std::vector<AtomicFile> files;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    char name[64] = "model.safetensors";
    if (groups.size() > 1) std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, groups.size());
    names.emplace_back(name);
    files.emplace_back((base / name).string());
    write_safetensors(files.back(), groups[i], metadata);
    for (const TensorSource& tensor : groups[i]) weight_map[tensor.name] = name;
  }
  // Earlier weights go before the new ones get their names: whoever looks in between finds none, and never a mixture.
  for (const char* name : {kSingle, kIndex}) fs::remove(base / name, error);
  for (AtomicFile& file : files) file.publish();
  if (groups.size() > 1) {
    const std::string text = json{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}}.dump(2) + "\n";
    AtomicFile index((base / kIndex).string());
    index.write(text.data(), text.size());
    index.commit();
  }
  // Shards of an earlier export that was divided otherwise; the new index does not name them.
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, error)) {
    const std::string name = entry.path().filename().string();
    if (is_shard_name(name) && std::find(names.begin(), names.end(), name) == names.end()) stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) fs::remove(path, error);
}

}  // namespace consist
