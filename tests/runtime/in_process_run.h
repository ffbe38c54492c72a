// A training run whose ranks are threads of the test, each with a device that is watched.
#pragma once

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/compile/compile.h"
#include "core/connect/communicators.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/state/training_state.h"
#include "core/training/trainer.h"
#include "tests/job/in_process.h"
#include "tests/runtime/watched_device.h"

namespace consist::test {

/// One rank while it runs, as `body` sees it.
struct RankInProcess {
  int rank = 0;
  const Parts* parts = nullptr;
  Dataset* dataset = nullptr;
  const RunConfig* config = nullptr;
  const Layout* layout = nullptr;
  CommunicatorOfQueue communicators;
  Device* device = nullptr;                      ///< watched, open
  Seen* seen = nullptr;
  JoinedJob* job = nullptr;

  /// Compiled and planned; throws what TrainingState throws.
  std::unique_ptr<TrainingState> make_state() const {
    return std::make_unique<TrainingState>(programs(), *device, communicators, rank, config->memory_limit);
  }
  /// The step, and the evaluation where the configuration asks for one.
  NamedPrograms programs() const {
    NamedPrograms all;
    all.push_back({train_program, compile_step(parts->compile_request(*config), *layout, rank)});
    if (std::optional<Program> also = evaluation()) all.push_back({evaluate_program, std::move(*also)});
    return all;
  }
  std::optional<Program> evaluation() const {
    if (config->evaluate_every == 0) return std::nullopt;
    return compile_evaluation(parts->compile_request(*config), *layout, rank);
  }
  TrainerSettings settings() const {
    return {.steps = config->steps,
            .micro_batch = config->batch,
            .sequence = config->sequence,
            .accumulation = config->accumulation,
            .learning_rate = config->learning_rate,
            .schedule = parts->schedule.get(),
            .optimizers = parts->optimizer.get(),
            .evaluate_every = config->evaluate_every,
            .evaluate_sequences = config->evaluate_sequences};
  }
};

inline std::vector<pid_t> threads_of_this_process() {
  std::vector<pid_t> threads;
  DIR* folder = ::opendir("/proc/self/task");
  if (folder == nullptr) throw std::runtime_error("/proc/self/task cannot be read");
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] != '.') threads.push_back(std::atoi(entry->d_name));
  }
  ::closedir(folder);
  return threads;
}

/// Runs `body` as every rank of config.ranks over the socket transport and returns when all have ended; throws std::runtime_error
/// with what the first rank threw. `job_threads`, if given, receives the threads of the jobs' control connections before any body
/// starts.
inline void run_in_process(const RunConfig& config, const std::function<void(const RankInProcess&)>& body,
                           std::vector<pid_t>* job_threads = nullptr,
                           std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  const auto count = static_cast<std::size_t>(config.ranks);
  std::vector<Parts> parts;  // made here: the host is not thread-safe
  std::vector<std::shared_ptr<Transport>> transports;
  std::vector<std::shared_ptr<Dataset>> datasets;
  std::vector<std::shared_ptr<Device>> unwatched, watched;
  std::vector<Seen> seen(count);
  for (std::size_t rank = 0; rank < count; ++rank) {
    parts.push_back(make_parts(config, host));
    datasets.push_back(open_dataset(parts.back(), config, host).dataset);
    unwatched.push_back(make_device(config, host).device);
    watched.push_back(std::make_shared<WatchedDevice>(unwatched.back(), seen[rank]));
    transports.push_back(host.make<Transport>("transport", "socket", {}));
  }
  const Layout layout = lay_out(parts[0].uses, config.ranks);

  const std::vector<pid_t> before = threads_of_this_process();
  std::vector<pid_t> rank_threads(count);
  std::barrier joined(config.ranks, [&]() noexcept {
    if (job_threads == nullptr) return;
    for (const pid_t thread : threads_of_this_process()) {
      const auto in = [&](const std::vector<pid_t>& list) { return std::find(list.begin(), list.end(), thread) != list.end(); };
      if (!in(before) && !in(rank_threads)) job_threads->push_back(thread);
    }
  });
  const auto errors = testing::run_ranks(testing::make_addresses(config.ranks, timeout), [&](JoinedJob& job) {
    const auto rank = static_cast<std::size_t>(job.rank());
    rank_threads[rank] = static_cast<pid_t>(::syscall(SYS_gettid));
    joined.arrive_and_wait();
    watched[rank]->open(job.rank(), job.size());
    RankInProcess mine{.rank = job.rank(),
                       .parts = &parts[rank],
                       .dataset = datasets[rank].get(),
                       .config = &config,
                       .layout = &layout,
                       .communicators = {},
                       .device = watched[rank].get(),
                       .seen = &seen[rank],
                       .job = &job};
    const NamedPrograms own = mine.programs();
    std::vector<const Program*> programs;
    for (const NamedProgram& named : own) programs.push_back(&named.program);
    const Communicators communicators(
        layout.mesh, job, *unwatched[rank], [&](const std::string& /*name*/) { return transports[rank]; }, programs);
    mine.communicators = communicators.by_queue();
    body(mine);
    job.leave(std::chrono::seconds(20));
  });
  for (const std::exception_ptr& error : errors) {
    if (error) throw std::runtime_error(testing::text_of(error));
  }
}

}  // namespace consist::test
