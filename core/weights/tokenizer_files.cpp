#include "core/weights/tokenizer_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "consist/files.h"

namespace consist {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view own_chat_template = "chat_template.jinja";

// Files that transformers' save_pretrained writes for a tokenizer, of any kind and version.
constexpr const char* names[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
};

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

AtomicFile copy_whole(const fs::path& from, const fs::path& to) {
  const InputFile input(from.string());
  AtomicFile output(to.string());
  output.reserve(input.size());
  std::vector<char> buffer(std::size_t{1} << 20);
  for (std::int64_t at = 0; at < input.size();) {
    const auto bytes = std::min<std::int64_t>(input.size() - at, static_cast<std::int64_t>(buffer.size()));
    input.read(at, buffer.data(), static_cast<std::size_t>(bytes));
    output.write(buffer.data(), static_cast<std::size_t>(bytes));
    at += bytes;
  }
  output.finish();
  return output;
}

}  // namespace

std::string tokenizer_of(const std::string& folder) {
  const fs::path path = fs::path(folder) / "tokenizer.json";
  return is_file(path) ? path.string() : std::string();
}

std::vector<AtomicFile> copy_tokenizer(const std::string& to, const std::string& model_folder, const std::string& used,
                                       const std::string& chat_template) {
  std::vector<AtomicFile> copies;
  std::error_code ignored;
  const auto copy = [&](const fs::path& from, const std::string& name) {
    const fs::path target = fs::path(to) / name;
    if (is_file(from) && !fs::equivalent(from, target, ignored)) copies.push_back(copy_whole(from, target));
  };
  // A file of another name stands for itself: what lies beside it is of other tokenizers.
  const bool alone = !used.empty() && fs::path(used).filename() != "tokenizer.json";
  const fs::path from = used.empty() ? fs::path(model_folder) : fs::path(used).parent_path();
  if (alone) {
    copy(used, "tokenizer.json");
  } else if (!used.empty() || !model_folder.empty()) {
    for (const std::string_view name : names) {
      if (chat_template.empty() || name != own_chat_template) copy(from / name, std::string(name));
    }
  }
  if (!chat_template.empty()) {
    AtomicFile& file = copies.emplace_back((fs::path(to) / own_chat_template).string());
    file.write(chat_template.data(), chat_template.size());
    file.finish();
  }
  if (!model_folder.empty()) copy(fs::path(model_folder) / "generation_config.json", "generation_config.json");
  return copies;
}

}  // namespace consist
