#include "core/weights/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "consist/error.h"
#include "consist/files.h"

namespace consist {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "hf://";
constexpr std::int64_t most_of_a_ref = 1024;  // bytes; it holds a commit

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// True of a part of a name that stays in its folder.
bool is_plain(const std::string& part) {
  return !part.empty() && part.find("..") == part.npos &&
         std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

bool has_config(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "config.json", ignored);
}

}  // namespace

bool is_hub_model(const std::string& model) {
  return model.starts_with(prefix);
}

HubModel hub_model(const std::string& model) {
  std::string name = model.substr(prefix.size()), revision = "main";
  if (const std::size_t at = name.find('@'); at != name.npos) {
    revision = name.substr(at + 1);
    name.resize(at);
  }
  const std::size_t slash = name.find('/');
  if (slash == name.npos || !is_plain(name.substr(0, slash)) || !is_plain(name.substr(slash + 1)) || !is_plain(revision))
    throw UsageError("--model '" + model + "' names no model of the hub: the form is hf://ORG/NAME or hf://ORG/NAME@REVISION");
  return {name, revision};
}

std::string hub_cache() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return (fs::path(home) / "hub").string();
  const std::string caches = environment("XDG_CACHE_HOME");
  return ((caches.empty() ? fs::path(environment("HOME")) / ".cache" : fs::path(caches)) / "huggingface" / "hub").string();
}

std::string cached_folder(const HubModel& model) {
  const std::size_t slash = model.name.find('/');
  const fs::path folder =
      fs::path(hub_cache()) / ("models--" + model.name.substr(0, slash) + "--" + model.name.substr(slash + 1));
  std::string commit = model.revision;
  std::error_code ignored;
  if (const fs::path ref = folder / "refs" / model.revision; fs::is_regular_file(ref, ignored)) {
    commit = read_text(ref.string(), most_of_a_ref);
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0) commit.pop_back();
    if (!is_plain(commit)) throw DataError(ref.string() + " holds no commit");
  }
  const fs::path snapshot = folder / "snapshots" / commit;
  return has_config(snapshot) ? snapshot.string() : "";
}

std::string how_to_download(const HubModel& model) {
  return "`hf download " + model.name + (model.revision == "main" ? "" : " --revision " + model.revision) +
         "` (pip install huggingface_hub) brings it to " + hub_cache();
}

}  // namespace consist
