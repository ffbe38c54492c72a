#include "plugins/devices/cuda/runtime_code.h"

#include <nvrtc.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/log.h"
#include "plugins/devices/cuda/check.h"

namespace consist::cuda {
namespace {

void check_compiler(nvrtcResult status, const char* asked) {
  if (status != NVRTC_SUCCESS) throw SystemError(std::string(asked) + ": " + nvrtcGetErrorString(status));
}

/// "sm_90" where this NVRTC knows the GPU, else code for the newest it knows, which the driver translates: "compute_90".
std::string architecture_for(int compute_capability) {
  int count = 0;
  check_compiler(nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> known(static_cast<std::size_t>(count));
  check_compiler(nvrtcGetSupportedArchs(known.data()), "nvrtcGetSupportedArchs");
  if (std::find(known.begin(), known.end(), compute_capability) != known.end()) return "sm_" + std::to_string(compute_capability);
  int newest = 0;
  for (const int one : known) {
    if (one <= compute_capability) newest = std::max(newest, one);
  }
  if (newest == 0) throw UnavailableError("NVRTC has no code for compute capability " + std::to_string(compute_capability));
  return "compute_" + std::to_string(newest);
}

/// FNV-1a, for the name of a file; the file states the whole key.
std::string hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return digits.data();
}

class Compilation {
 public:
  explicit Compilation(const std::string& source) {
    check_compiler(nvrtcCreateProgram(&program_, source.c_str(), "consist.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  }
  ~Compilation() { nvrtcDestroyProgram(&program_); }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  std::string run(const std::string& architecture) {
    const std::string arch = "--gpu-architecture=" + architecture;
    const std::array<const char*, 3> options{arch.c_str(), "--std=c++17", "--extra-device-vectorization"};
    if (nvrtcCompileProgram(program_, static_cast<int>(options.size()), options.data()) != NVRTC_SUCCESS) {
      std::size_t size = 0;
      check_compiler(nvrtcGetProgramLogSize(program_, &size), "nvrtcGetProgramLogSize");
      std::string log(size, '\0');
      check_compiler(nvrtcGetProgramLog(program_, log.data()), "nvrtcGetProgramLog");
      throw SystemError("NVRTC refuses a kernel that was written for it:\n" + log);
    }
    const bool binary = architecture.starts_with("sm_");
    std::size_t size = 0;
    check_compiler(binary ? nvrtcGetCUBINSize(program_, &size) : nvrtcGetPTXSize(program_, &size), "the size of compiled code");
    std::string code(size, '\0');
    check_compiler(binary ? nvrtcGetCUBIN(program_, code.data()) : nvrtcGetPTX(program_, code.data()), "the compiled code");
    return code;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

std::string compiler_version() {
  int major = 0, minor = 0;
  check_compiler(nvrtcVersion(&major, &minor), "nvrtcVersion");
  return std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

RuntimeCode::RuntimeCode(int compute_capability, std::string cache_folder)
    : architecture_(architecture_for(compute_capability)), folder_(std::move(cache_folder)) {}

RuntimeCode::~RuntimeCode() {
  for (const auto& [source, library] : libraries_) cudaLibraryUnload(library);
}

cudaKernel_t RuntimeCode::kernel(const std::string& source, const char* name) {
  const std::lock_guard lock(mutex_);
  cudaLibrary_t& library = libraries_[source];
  if (library == nullptr) {
    const std::string code = compiled(source);
    check(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "load a compiled kernel");
  }
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library, name), "find a compiled kernel");
  return kernel;
}

std::string RuntimeCode::compiled(const std::string& source) const {
  const std::string key = architecture_ + " NVRTC " + compiler_version() + "\n" + source;
  const std::string path = folder_.empty() ? "" : folder_ + "/code/" + hash_of(key) + ".bin";
  if (!path.empty()) {
    if (std::string code = from_cache(path, key); !code.empty()) return code;
  }
  std::string code = Compilation(source).run(architecture_);
  if (!path.empty()) keep(path, key, code);
  return code;
}

/// A file is the key, a zero, and the code with its length before it: one of another key, or cut off, is compiled anew.
std::string RuntimeCode::from_cache(const std::string& path, const std::string& key) const {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (all.compare(0, key.size(), key) != 0 || all.size() < key.size() + 1) return {};
  const std::size_t end = all.find('\0', key.size() + 1);
  if (all[key.size()] != '\0' || end == std::string::npos) return {};
  std::string code = all.substr(end + 1);
  return std::to_string(code.size()) == all.substr(key.size() + 1, end - key.size() - 1) ? code : std::string();
}

void RuntimeCode::keep(const std::string& path, const std::string& key, const std::string& code) const {
  try {
    std::filesystem::create_directories(folder_of(path));
    AtomicFile file(path);
    const std::string before = key + '\0' + std::to_string(code.size()) + '\0';
    file.write(before.data(), before.size());
    file.write(code.data(), code.size());
    file.commit();
  } catch (const std::exception& error) {
    log::warn("a compiled kernel is not kept for the next run: " + std::string(error.what()));
  }
}

}  // namespace consist::cuda
