#include "plugins/devices/cpu/kernel_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "consist/error.h"

namespace consist::cpu {
namespace {

std::vector<std::string> runnable_levels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  std::vector<std::string> levels;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    levels.push_back("x86-64-v4");
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    levels.push_back("x86-64-v3");
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt")) levels.push_back("x86-64-v2");
  return levels;
#else
  return {"native"};
#endif
}

/// lib/consist/cpu, beside the folder of the plugin that this is linked into.
std::filesystem::path library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&load_kernels), &info) == 0) throw SystemError("a device cannot find its own file");
  return std::filesystem::canonical(info.dli_fname).parent_path().parent_path() / "cpu";
}

}  // namespace

KernelLibrary load_kernels(const std::string& wanted) {
  const std::vector<std::string> levels = runnable_levels();
  for (const std::string& level : levels) {
    if (!wanted.empty() && level != wanted) continue;
    const std::filesystem::path path = library_folder() / ("kernels-" + level + ".so");
    if (!std::filesystem::exists(path)) {  // -DCONSIST_CPU_LEVELS leaves levels out
      if (wanted.empty()) continue;
      throw UnavailableError("this build has no kernels for " + level + " (" + path.string() + ")");
    }
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw UnavailableError("the kernels of the cpu device cannot be loaded: " + std::string(dlerror()));
    auto* make = reinterpret_cast<MakeKernel>(dlsym(library, "consist_cpu_make_kernel"));
    if (make == nullptr) throw UnavailableError(path.string() + " is no kernel library of this version");
    return {make, level};
  }
  if (levels.empty())
    throw UnavailableError(
        "the processor runs none of the instruction sets that the cpu device has kernels for (x86-64-v2 and up)");
  std::string message = "the processor runs";
  for (const std::string& level : levels) message += " " + level;
  throw UnavailableError(message + (wanted.empty() ? ", and this build has kernels for none of them"
                                                   : ", not " + wanted + " as --cpu.level asks"));
}

}  // namespace consist::cpu
