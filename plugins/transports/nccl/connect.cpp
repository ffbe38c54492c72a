#include "plugins/transports/nccl/connect.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <set>
#include <thread>

#include "consist/error.h"
#include "consist/host_transport.h"
#include "consist/log.h"
#include "plugins/transports/nccl/alone.h"
#include "plugins/transports/nccl/communicator.h"
#include "plugins/transports/nccl/log_capture.h"
#include "plugins/transports/nccl/members.h"
#include "plugins/transports/nccl/nvml.h"
#include "plugins/transports/nccl/process_settings.h"

namespace consist::nccl {
namespace {

using Clock = std::chrono::steady_clock;
/// The first of which it is known that NCCL_NET_PLUGIN may be the path of a file.
constexpr int oldest_for_plugins = NCCL_VERSION(2, 21, 5);

/// Device memory and a stream of its own, for the warm-up.
class Scratch {
 public:
  Scratch(const Driver& driver, std::size_t bytes) : driver_(driver) {
    driver_.check(driver_.create_stream(&stream, CU_STREAM_NON_BLOCKING), "making a stream");
    driver_.check(driver_.allocate(&memory, bytes), "allocating memory for the first collectives");
    driver_.check(driver_.fill(memory, 0, bytes, stream), "clearing memory");
  }
  ~Scratch() {
    driver_.release(memory);
    driver_.destroy_stream(stream);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  char* at(std::size_t byte) const { return reinterpret_cast<char*>(memory) + byte; }

  CUstream stream = nullptr;
  CUdeviceptr memory = 0;

 private:
  const Driver& driver_;
};

std::string bus_id(const Driver& driver, int& device) {
  CUdevice current = 0;
  driver.check(driver.current_device(&current), "asking for the current device");
  char text[32] = {};
  driver.check(driver.pci_bus_id(text, sizeof(text), current), "asking for a device's bus id");
  device = current;
  return text;
}

/// Waits for the stream; the communicator's watchdog ends the waiting if a member dies or is stuck.
void finish(const Driver& driver, CUstream stream, NcclCommunicator& communicator) {
  while (true) {
    const CUresult result = driver.query_stream(stream);
    communicator.check();
    if (result == CUDA_SUCCESS) return;
    if (result != CUDA_ERROR_NOT_READY) driver.check(result, "the first collectives");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

/// Every collective once, in sizes for which NCCL takes different algorithms, so that it opens the connections that the run will
/// use.
void warm_up(const Driver& driver, NcclCommunicator& communicator, bool link) {
  constexpr std::size_t largest = std::size_t{8} << 20;
  Scratch scratch(driver, 2 * largest);
  const auto members = static_cast<std::int64_t>(communicator.size());
  for (const std::int64_t bytes : {std::int64_t{1} << 12, std::int64_t{1} << 18, static_cast<std::int64_t>(largest)}) {
    const std::int64_t part = bytes / 4 / members;
    if (!link) {
      communicator.all_reduce(scratch.at(0), bytes / 4, DType::f32, scratch.stream);
      communicator.reduce_scatter(scratch.at(0), scratch.at(largest), part, DType::f32, scratch.stream);
      communicator.all_gather(scratch.at(largest), scratch.at(0), part, DType::f32, scratch.stream);
      communicator.broadcast(scratch.at(0), bytes / 4, DType::f32, 0, scratch.stream);
    }
    communicator.exchange(scratch.at(0), scratch.at(largest), bytes, scratch.stream);
    finish(driver, scratch.stream, communicator);
  }
}

MemberFindings find_out(const std::vector<Member>& members, const GroupRequest& group, const LogFindings& log) {
  const auto index = static_cast<std::size_t>(group.index);
  MemberFindings findings;
  findings.connections = log.connections;
  findings.multicast = log.multicast;
  // NCCL names these once per process, perhaps for an earlier group.
  const LogFindings whole = read_log(LogCapture::instance().text());
  findings.interfaces = whole.interfaces;
  findings.hcas = whole.hcas;
  findings.providers = whole.providers;
  findings.plugin = whole.plugin;
  const Nvml& nvml = Nvml::instance();
  findings.active_links = nvml.active_links(members[index].gpu).value_or(unknown_links);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i == index || members[i].host != members[index].host) continue;
    if (!nvml.linked(members[index].gpu, members[i].gpu).value_or(true)) findings.not_linked.push_back(static_cast<int>(i));
  }
  return findings;
}

bool share_a_host(const std::vector<Member>& members) {
  std::set<std::string> hosts;
  for (const Member& member : members) hosts.insert(member.host);
  return hosts.size() < members.size();
}

/// True only if NVML says that the GPU has no NVLink to any other member on its host.
bool is_without_nvlink(const std::vector<Member>& members, std::size_t index) {
  const Nvml& nvml = Nvml::instance();
  if (nvml.active_links(members[index].gpu).value_or(0) > 0) return false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i == index || members[i].host != members[index].host) continue;
    if (nvml.linked(members[index].gpu, members[i].gpu).value_or(true)) return false;
  }
  return true;
}

/// ConnectOptions::within of a group of which some share a host, resolved alike on all members.
WithinHost resolve_within(Job& job, const GroupRequest& group, const std::vector<Member>& members, WithinHost wanted) {
  if (wanted != WithinHost::automatic && wanted != WithinHost::shm) return wanted;
  bool without = true;
  const bool own = is_without_nvlink(members, static_cast<std::size_t>(group.index));
  for (const std::string& said : exchange_texts(job, group, "nccl.within", own ? "without" : "with"))
    without = without && said == "without";
  if (without) return WithinHost::shm;
  return wanted == WithinHost::automatic ? WithinHost::nvlink : WithinHost::memory;
}

std::string network_of(const ConnectOptions& options) {
  return options.path == Path::efa ? options.network : options.path == Path::ib ? "IB" : "Socket";
}

Need need_of(const ConnectOptions& options, const GroupRequest& group, bool share_a_host, WithinHost within) {
  // Where none share a host it only matters to groups that come later, which find what the GPUs of this host have.
  if (!share_a_host) within = missing_nvlink().empty() ? WithinHost::nvlink : WithinHost::shm;
  return {.path = options.path,
          .transport = options.transport,
          .group = group.name,
          .share_a_host = share_a_host,
          .within = within,
          .interface = options.interface,
          .network = network_of(options),
          .network_plugin = options.network_plugin,
          .hcas = options.hcas,
          .gpudirect_off = options.gpudirect_off};
}

ncclUniqueId agree_on_id(Job& job, const GroupRequest& group, const Library& library) {
  ncclUniqueId id{};
  std::string text;
  if (group.index == 0) {
    const ncclResult_t result = library.get_unique_id(&id);
    if (result != ncclSuccess) throw SystemError(error_text(library, "ncclGetUniqueId", result, nullptr));
    text.assign(id.internal, sizeof(id.internal));
  }
  text = share_text(job, group, "nccl.id", text);
  if (text.size() != sizeof(id.internal))
    throw DataError("member 0 of group '" + group.name + "' gave an id of NCCL of the wrong length");
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

void pass_on(const LogCapture& log, std::size_t begin) {
  if (!log.wants_lines()) return;
  const std::string text = log.text(begin);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) log::info(text.substr(at, end - at));
    at = end + 1;
  }
}

/// From how many bytes on a member's part of an all_gather or reduce_scatter goes by copy engines. Alone they take longer than
/// NCCL's kernels (50 instead of 15 us for 1 MiB on four H200s), beside products less; small parts come with small products.
std::size_t least_part(CopyEngines choice) {
  if (choice == CopyEngines::messages) return std::numeric_limits<std::size_t>::max();
  return choice == CopyEngines::all ? std::size_t{256} << 10 : std::size_t{4} << 20;
}

/// Sets up copy engines as asked and returns the path's words on them. Throws where they are asked for and cannot serve.
std::string take_copy_engines(NcclCommunicator& communicator, const GroupRequest& group, const ConnectOptions& options) {
  if (options.copy_engines == CopyEngines::none || (options.copy_engines == CopyEngines::messages && !group.link)) return "";
  std::string problem;
  if (group.ranks.size() > PeerCopies::most_members) {
    problem = "groups of at most " + std::to_string(PeerCopies::most_members) + " members are served, and it has " +
              std::to_string(group.ranks.size());
  } else {
    try {
      communicator.use_copy_engines(static_cast<std::size_t>(options.staging), least_part(options.copy_engines));
      return " and copy engines";
    } catch (const SystemError& error) {
      problem = error.what();
    }
  }
  if (options.copy_engines == CopyEngines::automatic) return ", without copy engines (" + problem + ")";
  throw UnavailableError("transport " + options.transport + ": copy engines cannot serve group '" + group.name + "': " + problem +
                         "; --" + options.transport + ".copy-engines=none leaves all to NCCL's kernels");
}

}  // namespace

std::string unavailable(const std::string& library) {
  try {
    load_driver();
    load_library(library);
    return {};
  } catch (const UnavailableError& error) {
    return error.what();
  }
}

std::string missing_nvlink() {
  const Driver& driver = load_driver();
  CUcontext context = nullptr;
  if (driver.current_context(&context) != CUDA_SUCCESS || context == nullptr) return {};
  const Nvml& nvml = Nvml::instance();
  int own = 0, count = 0;
  const std::string gpu = bus_id(driver, own);
  if (nvml.active_links(gpu) == 0) return "the GPU " + gpu + " has no NVLink that is up (says NVML)";
  driver.check(driver.device_count(&count), "counting devices");
  bool asked = false;
  for (int device = 0; device < count; ++device) {
    if (device == own) continue;
    char other[32] = {};
    driver.check(driver.pci_bus_id(other, sizeof(other), device), "asking for a device's bus id");
    if (nvml.linked(gpu, other).value_or(true)) return {};
    asked = true;
  }
  return asked ? "NVLink leads from the GPU " + gpu + " to none of the other " + std::to_string(count - 1) + " (says NVML)" : "";
}

std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group, const ConnectOptions& options) {
  const Clock::time_point start = Clock::now();
  const Driver& driver = load_driver();
  if (group.ranks.size() == 1) return make_alone(driver);
  const Library& library = load_library(options.library);
  int device = 0;
  const Member own{host_identity(), bus_id(driver, device), library.version_text()};
  const std::vector<Member> members = exchange_members(job, group, own);
  check_members(members, group);
  if (options.path == Path::efa && library.version < oldest_for_plugins) {
    throw UnavailableError("transport " + options.transport + ": NCCL " + library.version_text() +
                           " takes a network plugin by a short name only; 2.21 or newer is needed");
  }
  Promise promise(options.path);
  const bool share = share_a_host(members);
  if (share || options.within != WithinHost::automatic)
    promise.within = share ? resolve_within(job, group, members, options.within) : options.within;
  promise.gpudirect = options.gpudirect;
  fix_process_settings(need_of(options, group, share, promise.within));
  const LogCapture& log = LogCapture::instance();
  const std::size_t log_begin = log.size();

  std::size_t free_before = 0, free_after = 0, total = 0;
  driver.memory_info(&free_before, &total);
  auto communicator =
      std::make_unique<NcclCommunicator>(job, group, library, driver, agree_on_id(job, group, library), network_of(options));
  const Clock::time_point made = Clock::now();
  warm_up(driver, *communicator, group.link);
  driver.memory_info(&free_after, &total);

  const std::size_t log_end = log.size();
  const std::string text = log.text(log_begin).substr(0, log_end - log_begin);
  std::vector<MemberFindings> findings;
  for (const std::string& said :
       exchange_texts(job, group, "nccl.path", encode(find_out(members, group, read_log(text, device))))) {
    findings.push_back(decode(said));
  }
  Verdict verdict = verify_path(promise, findings, group.ranks);
  pass_on(log, log_begin);
  if (!verdict.problem.empty()) throw UnavailableError("transport " + options.transport + ": " + verdict.problem);
  std::string path = std::move(verdict.path);
  path += " (NCCL " + library.version_text() + ")";
  path += take_copy_engines(*communicator, group, options);
  const auto milliseconds = [](Clock::duration time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  };
  const std::string report =
      "transport " + options.transport + ", group '" + group.name + "': " + path + " from " + library.path + ", made in " +
      milliseconds(made - start) + " ms, first collectives in " + milliseconds(Clock::now() - made) + " ms, " +
      std::to_string((static_cast<std::int64_t>(free_before) - static_cast<std::int64_t>(free_after)) >> 20) +
      " MiB of device memory";
  if (log.wants_lines()) {
    log::info(report);
  } else {
    log::debug(report);
  }
  communicator->set_verified(std::move(path), promise, device, log_end);
  return communicator;
}

}  // namespace consist::nccl
