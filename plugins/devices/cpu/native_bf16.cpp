#include <dnnl.hpp>

#include "plugins/devices/cpu/kernel_library.h"

namespace consist::cpu {

bool has_native_bf16() {
#if defined(__x86_64__)
  // Each value has the bits of those that it contains, and oneDNN 3 has more of them.
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto bf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & bf16) == bf16;
#else
  return false;
#endif
}

std::string onednn_version() {
  const dnnl_version_t* const version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

}  // namespace consist::cpu
