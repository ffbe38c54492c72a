#include "launch/import/hub_download.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "consist/error.h"
#include "core/weights/hub_cache.h"
#include "core/weights/model_weights.h"

namespace consist::launch {
namespace {

using Clock = std::chrono::steady_clock;

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

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_offline() {
  const std::string value = environment("HF_HUB_OFFLINE");
  return !value.empty() && value != "0";
}

/// Runs the script, with standard error as its standard output. Returns its exit status; no_package where it cannot be started.
int status_of(std::vector<std::string> words, std::chrono::seconds longest) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return no_package;
  for (const Clock::time_point end = Clock::now() + longest;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0 && errno != EINTR) return 128;
    if (Clock::now() < end) continue;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    throw SystemError("the download of " + words[3] + " took longer than " + std::to_string(longest.count()) + " s");
  }
}

}  // namespace

void bring_hub_model(const std::string& model, bool with_weights) {
  if (!is_hub_model(model) || is_offline()) return;
  const HubModel named = hub_model(model);
  const std::string folder = cached_folder(named);
  if (!folder.empty() && (!with_weights || ModelWeights::present(folder))) return;
  const std::string given = environment("CONSIST_PYTHON");
  const int status =
      status_of({given.empty() ? "python3" : given, "-c", script, named.name, named.revision, with_weights ? "weights" : "config"},
                with_weights ? std::chrono::hours(24) : std::chrono::minutes(10));
  if (status != 0 && status != no_package)
    throw UsageError("--model " + model + " could not be downloaded (the reason stands above); " + how_to_download(named));
}

}  // namespace consist::launch
