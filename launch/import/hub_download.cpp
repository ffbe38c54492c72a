#include "launch/import/hub_download.h"

#include <chrono>
#include <cstdlib>
#include <string_view>

#include "consist/error.h"
#include "core/weights/hub_cache.h"
#include "core/weights/model_weights.h"
#include "launch/import/python_process.h"

namespace consist::launch {
namespace {

constexpr int no_package = 3;  // exit status of the script without huggingface_hub
constexpr const char* script =
    "import sys\n"
    "try:\n"
    "    from huggingface_hub import snapshot_download\n"
    "except ImportError:\n"
    "    sys.exit(3)\n"
    "name, revision, weights = sys.argv[1:]\n"
    "patterns = ['*.json', 'tokenizer*', '*.jinja'] + (['*.safetensors'] if weights == 'weights' else [])\n"
    "try:\n"
    "    snapshot_download(name, revision=revision, allow_patterns=patterns)\n"
    "except Exception as error:\n"
    "    sys.exit(f'{type(error).__name__}: {error}')\n";

bool is_offline() {
  const char* const value = std::getenv("HF_HUB_OFFLINE");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

}  // namespace

void bring_hub_model(const std::string& model, bool with_weights) {
  if (!is_hub_model(model) || is_offline()) return;
  const HubModel named = hub_model(model);
  const std::string folder = cached_folder(named);
  if (!folder.empty() && (!with_weights || ModelWeights::present(folder))) return;
  const int status =
      run_python({"-c", script, named.name, named.revision, with_weights ? "weights" : "config"}, {.output = STDERR_FILENO},
                 with_weights ? std::chrono::hours(24) : std::chrono::minutes(10), "the download of " + named.name);
  if (status > 0 && status != no_package)
    throw UsageError("--model " + model + " could not be downloaded (the reason stands above); " + how_to_download(named));
}

}  // namespace consist::launch
