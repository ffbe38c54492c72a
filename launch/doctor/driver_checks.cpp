// NVIDIA's driver, and the GPUs that a run can see.
#include "core/base/one_line.h"
#include "launch/doctor/check.h"
#include "launch/doctor/facts.h"
#include "launch/doctor/words.h"

namespace consist::doctor {
namespace {

constexpr const char* give_gpus =
    "start the container with GPUs (docker run --gpus all; Kubernetes: resources.limits nvidia.com/gpu; needs the NVIDIA "
    "container toolkit)";

/// The first sentence of a reason that ends in what to do.
std::string without_remedy(const std::string& reason) {
  return one_line(reason.substr(0, reason.find(": install")));
}

Finding driver_is_loaded(const Facts& facts) {
  const Gpus& gpus = facts.gpus;
  if (gpus.none()) return not_applicable(no_gpu);
  // A build without CUDA runs on processors, which need no driver.
  const Status status = facts.plugin("device", "cuda") != nullptr ? Status::wrong : Status::warning;
  if (!gpus.problem.empty()) {
    const bool mismatch = gpus.problem.find("mismatch") != std::string::npos;
    const bool slow = gpus.problem.find("in time") != std::string::npos;
    return {status, gpus.problem,
            mismatch ? "the driver was updated under a running kernel: reboot, or reload the modules nvidia*"
            : slow   ? "look for NVRM in dmesg; turn on persistence mode (nvidia-smi -pm 1)"
                     : "look at dmesg (NVRM, Xid) and lsmod; reset the GPU, reinstall the driver, or reboot"};
  }
  if (!gpus.listed.empty()) return ok("driver " + gpus.listed[0].driver);
  if (!gpus.has_driver)
    return {status,
            number_of(gpus.on_bus, "GPU") + " of NVIDIA, and no driver of the kernel for " + (gpus.on_bus == 1 ? "it" : "them"),
            "install NVIDIA's driver (lsmod | grep nvidia shows if it is loaded)"};
  if (!gpus.has_device_file) return {status, "the driver is loaded, but there is no /dev/nvidiactl", give_gpus};
  if (!gpus.has_nvidia_smi)
    return unknown("the driver is there, and nvidia-smi is not, which is asked about GPUs",
                   "install nvidia-utils, or give the container NVIDIA_DRIVER_CAPABILITIES=compute,utility");
  return {status, "the driver is loaded, and nvidia-smi finds no device", give_gpus};
}

Finding driver_suits_build(const Facts& facts) {
  if (facts.gpus.none()) return not_applicable(no_gpu);
  const PluginState* cuda = facts.plugin("device", "cuda");
  if (cuda == nullptr) return not_applicable("this build has no device cuda");
  const std::string& reason = cuda->found.reason;
  if (reason.find("NVIDIA driver") != std::string::npos)
    return wrong(without_remedy(reason),
                 "install a newer driver, or NVIDIA's package cuda-compat, or take a build with CUDA 12.8 (docs/install.md)");
  if (!cuda->found.loads) return unknown("the device cuda cannot be loaded, which would tell (see plugins)");
  if (!reason.empty()) return wrong(one_line(reason), "look at dmesg (NVRM, Xid), and at CUDA_VISIBLE_DEVICES");
  return ok("the device cuda can work");
}

Finding all_gpus_answer(const Facts& facts) {
  const Gpus& gpus = facts.gpus;
  if (const std::optional<Finding> none = without_listed_gpus(facts)) return *none;
  const int listed = static_cast<int>(gpus.listed.size());
  if (listed < gpus.of_driver)
    // Some containers that are given a part of the GPUs see all of the driver's folders.
    return warning(
        "nvidia-smi lists " + std::to_string(listed) + " of the " + number_of(gpus.of_driver, "GPU") + " of the driver",
        "unless this container is given a part of them, one has fallen off the bus: look for Xid 79 in dmesg, reboot");
  return ok(number_of(listed, "GPU") + " (" + gpus.listed[0].name + ")");
}

Finding no_gpu_is_hidden(const Facts& facts) {
  const Gpus& gpus = facts.gpus;
  const std::optional<std::string> variable = facts.machine.variable("CUDA_VISIBLE_DEVICES");
  if (const std::optional<Finding> none = without_listed_gpus(facts)) return *none;
  if (!variable) return ok("CUDA_VISIBLE_DEVICES is not set");
  const std::string set = "CUDA_VISIBLE_DEVICES=" + one_line(*variable);
  const VisibleGpus visible = visible_gpus(gpus, variable);
  const std::string shown =
      " shows " + std::to_string(visible.count) + " of " + number_of(static_cast<int>(gpus.listed.size()), "GPU");
  if (!visible.bad_word.empty())
    return wrong(set + shown + ": there is no GPU '" + one_line(visible.bad_word) + "', and CUDA ignores all from there on",
                 "name GPUs by their numbers (nvidia-smi -L), or unset CUDA_VISIBLE_DEVICES");
  if (visible.count == 0) return wrong(set + shown, "unset CUDA_VISIBLE_DEVICES, or name GPUs in it (nvidia-smi -L)");
  if (visible.count < static_cast<int>(gpus.listed.size()))
    return warning(set + shown, "unset CUDA_VISIBLE_DEVICES, unless the others belong to somebody else (Slurm sets it)");
  return ok(set);
}

constexpr Check driver_table[] = {
    {"gpus", "gpu-driver", "NVIDIA's driver is loaded and answers", driver_is_loaded},
    {"gpus", "gpu-driver-version", "the driver is new enough for the CUDA of this build", driver_suits_build},
    {"gpus", "gpu-count", "every GPU of the driver is listed by nvidia-smi", all_gpus_answer},
    {"gpus", "gpu-visible", "CUDA_VISIBLE_DEVICES hides no GPU", no_gpu_is_hidden},
};

}  // namespace

std::span<const Check> driver_checks() {
  return driver_table;
}

}  // namespace consist::doctor
