// The parts of this build, and the libraries that they load.
#include "core/base/one_line.h"
#include "core/base/split.h"
#include "launch/doctor/check.h"
#include "launch/doctor/facts.h"
#include "launch/doctor/words.h"

namespace consist::doctor {
namespace {

Finding plugins_load(const Facts& facts) {
  if (!facts.plugin_problem.empty())
    return wrong(one_line(facts.plugin_problem),
                 "consist plugins lists what is found; install Consist again where parts are missing");
  if (facts.plugins.empty())
    return wrong("no plugin was found",
                 "they belong into ../lib/consist/plugins beside the program, or into CONSIST_PLUGIN_PATH");
  std::string list, slow;
  for (const PluginState& plugin : facts.plugins) {
    // Without a GPU nothing is lost by a part that is for GPUs.
    if (plugin.found.loads || (plugin.with_cuda && facts.gpus.none())) continue;
    append(was_too_slow(plugin) ? slow : list,
           plugin.kind + (plugin.kind.empty() ? "" : " ") + plugin.name + ": " + one_line(plugin.found.reason));
  }
  if (list.empty() && !slow.empty())
    return unknown(slow, "consist plugins waits longer; a GPU's driver that is slow to start: nvidia-smi -pm 1");
  if (list.empty()) return ok(number_of(static_cast<int>(facts.plugins.size()), "plugin"));
  return wrong(
      list,
      "install the library that is named (docs/troubleshooting.md), or put its folder into LD_LIBRARY_PATH; a plugin of another "
      "build is built again");
}

/// The finding where no part of this build is for GPUs, or there are none.
std::optional<Finding> without_cuda(const Facts& facts) {
  if (facts.gpus.none()) return not_applicable(no_gpu);
  if (facts.plugin("device", "cuda") == nullptr) return not_applicable("this build has no device cuda");
  return std::nullopt;
}

Finding cudnn_is_there(const Facts& facts) {
  if (const std::optional<Finding> none = without_cuda(facts)) return *none;
  const Availability& cuda = facts.plugin("device", "cuda")->found;
  if (cuda.loads) return ok("the device cuda has loaded it");
  if (cuda.reason.find("cudnn") == std::string::npos)
    return unknown("the device cuda cannot be loaded for another reason (see plugins)");
  return wrong(one_line(cuda.reason),
               "pip install consist[cuda13], or libcudnn9 of NVIDIA's packages, in the linker's folders or "
               "LD_LIBRARY_PATH");
}

Finding nccl_is_there(const Facts& facts) {
  if (const std::optional<Finding> none = without_cuda(facts)) return *none;
  const PluginState* nvlink = facts.plugin("transport", "nvlink");
  if (nvlink == nullptr) {
    if (facts.ranks_here() == 1) return not_applicable("this build has no transport nvlink, and one GPU needs none");
    return wrong("this build has no transport nvlink: NCCL was missing when it was built",
                 "build with NCCL (docs/dependencies.md)");
  }
  const std::string& reason = nvlink->found.reason;
  if (reason.empty()) return ok("the transport nvlink has loaded it");
  if (reason.find("NCCL") == std::string::npos && reason.find("nccl") == std::string::npos)
    return unknown("the transport nvlink cannot work for another reason: " + one_line(reason));
  return wrong(one_line(reason), "pip install nvidia-nccl-cu13, or libnccl2 of NVIDIA's packages; NCCL_ROOT names its folder");
}

/// The line of the transport efa's reason that begins with one of these words; empty if there is none.
std::string efa_reason(const std::string& reason, const char* what) {
  for (const std::string_view line : split(reason, '\n')) {
    const std::size_t at = line.find("- " + std::string(what));
    if (at != std::string_view::npos) return one_line(line.substr(at + 2));
  }
  return {};
}

/// A part of what the transport efa says that it misses.
Finding of_efa(const Facts& facts, const char* what, const char* well, const char* remedy) {
  if (!facts.has_efa()) return not_applicable("there is no EFA device");
  const PluginState* efa = facts.plugin("transport", "efa");
  if (efa == nullptr)
    return wrong("this build has no transport efa: libfabric was missing when it was built",
                 "build with libfabric's headers (docs/dependencies.md)");
  if (was_too_slow(*efa)) return unknown("the transport efa did not answer in time (see plugins)");
  if (!efa->found.loads) return wrong(one_line(efa->found.reason), remedy);
  const std::string reason = efa_reason(efa->found.reason, what);
  return reason.empty() ? ok(well) : wrong(reason, remedy);
}

Finding libfabric_is_there(const Facts& facts) {
  return of_efa(facts, "provider", "it has the provider efa",
                "install Amazon's EFA package (efa_installer.sh, with --skip-kmod in a container), which brings libfabric");
}

Finding ofi_plugin_is_there(const Facts& facts) {
  if (facts.has_efa()) {
    if (const std::optional<Finding> none = without_cuda(facts)) return *none;
  }
  return of_efa(facts, "NCCL plugin", "NCCL can use EFA",
                "install aws-ofi-nccl (Amazon's EFA package has it), or name its folder with --efa.plugin: else NCCL uses TCP");
}

constexpr Check library_table[] = {
    {"libraries", "plugins", "every part of this build can be loaded", plugins_load},
    {"libraries", "cudnn", "cuDNN is found, where the build is for GPUs", cudnn_is_there},
    {"libraries", "nccl", "NCCL is found, where the build is for GPUs", nccl_is_there},
    {"libraries", "libfabric", "libfabric is found, where there is an EFA device", libfabric_is_there},
    {"libraries", "aws-ofi-nccl", "NCCL's plugin for EFA is found, where there is an EFA device", ofi_plugin_is_there},
};

}  // namespace

std::span<const Check> library_checks() {
  return library_table;
}

}  // namespace consist::doctor
