// Kernels that are compiled while the program runs, from source that a kernel's maker writes: by NVRTC, once for each source and
// GPU architecture where a cache folder keeps them.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <string>

namespace consist::cuda {

/// THREADS: any. Kernels live as long as the object.
class RuntimeCode {
 public:
  /// `cache_folder`: where compiled code is kept as <folder>/code/<hash>.bin; empty: nowhere.
  RuntimeCode(int compute_capability, std::string cache_folder);
  ~RuntimeCode();
  RuntimeCode(const RuntimeCode&) = delete;
  RuntimeCode& operator=(const RuntimeCode&) = delete;

  /// The kernel `name` (extern "C") of that CUDA C++ source. ERRORS: SystemError, with the compiler's words where it refuses.
  cudaKernel_t kernel(const std::string& source, const char* name);

 private:
  std::string compiled(const std::string& source) const;
  std::string from_cache(const std::string& path, const std::string& key) const;
  void keep(const std::string& path, const std::string& key, const std::string& code) const;

  std::string architecture_, folder_;
  std::mutex mutex_;
  std::map<std::string, cudaLibrary_t> libraries_;  ///< by source
};

}  // namespace consist::cuda
