#include <dnnl.hpp>

#include "plugins/devices/cpu/kernel_library.h"

namespace consist::cpu {

bool has_native_bf16() {
#if defined(__x86_64__)
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
#else
  return false;
#endif
}

}  // namespace consist::cpu
