#include "launch/doctor/machine.h"

#include <netdb.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <memory>
#include <thread>

#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/socket.h"
#include "core/base/in_parallel.h"

namespace consist::doctor {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// The command has ten seconds. A program and the plugins are waited for at the same time, and then at most two names.
constexpr milliseconds program_time{4500}, plugin_time{4500}, name_time{1500}, loopback_time{1000};

std::optional<ChildOutput> output_of(const std::vector<std::string>& words) {
  try {
    return child_output(words, program_time);
  } catch (const SystemError&) {
    return std::nullopt;
  }
}

std::vector<PluginState> probed_plugins(const std::vector<std::string>& places) {
  constexpr int at_once = 8;  // they wait for their libraries more than they compute
  constexpr milliseconds least{200};
  const auto end = std::chrono::steady_clock::now() + plugin_time;  // of all together
  const PluginHost host(places);
  std::vector<PluginState> plugins(host.files().size());
  in_parallel(plugins.size(), at_once, [&](std::size_t i) {
    const PluginFile& file = host.files()[i];
    const auto left = std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    plugins[i] = {.kind = file.kind,
                  .name = file.name.empty() ? file.path.filename().string() : file.name,
                  .with_cuda = file.with_cuda,
                  .found = host.probe(file, std::max(left, least))};
  });
  return plugins;
}

std::optional<Space> space_of(const std::string& folder) {
  struct statvfs info = {};
  if (statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  const auto unit = static_cast<std::int64_t>(info.f_frsize);
  return Space{.bytes = static_cast<std::int64_t>(info.f_blocks) * unit,
               .free_bytes = static_cast<std::int64_t>(info.f_bavail) * unit,
               .writable = access(folder.c_str(), W_OK) == 0};
}

/// The system's resolver has no time limit of its own that would suit: its thread is left behind where it takes longer.
std::string why_unresolved(const std::string& host) {
  auto answer = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answered = answer->get_future();
  std::thread([answer, host] {
    addrinfo* list = nullptr;
    const int status = getaddrinfo(host.c_str(), nullptr, nullptr, &list);
    if (status == 0) freeaddrinfo(list);
    answer->set_value(status == 0 ? "" : gai_strerror(status));
  }).detach();
  if (answered.wait_for(name_time) == std::future_status::ready) return answered.get();
  return "no answer within " + std::to_string(name_time.count()) + " ms";
}

std::string why_no_port(std::uint16_t port) {
  try {
    network::listen_on("", port);
    return {};
  } catch (const SystemError& error) {
    return error.what();
  }
}

std::string why_no_loopback() {
  try {
    const network::Socket listener = network::listen_on("127.0.0.1", 0);
    network::connect_to("127.0.0.1", network::local_endpoint(listener).port, network::Clock::now() + loopback_time);
    return {};
  } catch (const SystemError& error) {
    return error.what();
  }
}

std::optional<bool> kernel_clock_is_synchronized() {
  timex state{};  // asks, and sets nothing
  if (adjtimex(&state) < 0) return std::nullopt;
  return (state.status & STA_UNSYNC) == 0;
}

int schedulable_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

std::optional<std::string> Machine::read(const std::string& path) const {
  std::ifstream file(root / path);
  if (!file) return std::nullopt;
  std::string text;
  // Files of the kernel may be opened, and then refuse to be read.
  for (char part[4096]; file.read(part, sizeof part), file.gcount() > 0;)
    text.append(part, static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return std::nullopt;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::vector<std::string> Machine::names_in(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(root / path, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool Machine::has(const std::string& path) const {
  std::error_code error;
  return fs::exists(root / path, error);
}

Machine this_machine(std::vector<std::string> plugins) {
  Machine machine;
  machine.host = network::host_name();
  machine.processors = schedulable_processors();
  machine.environment = process_environment();
  machine.run = output_of;
  machine.plugins = [places = std::move(plugins)] { return probed_plugins(places); };
  machine.space = space_of;
  machine.resolve_problem = why_unresolved;
  machine.listen_problem = why_no_port;
  machine.loopback_problem = why_no_loopback;
  machine.clock_is_synchronized = kernel_clock_is_synchronized;
  return machine;
}

}  // namespace consist::doctor
