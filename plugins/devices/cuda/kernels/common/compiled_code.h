// Checks that this build has code for the GPU that it runs on.
#pragma once

#include <string>

#include "plugins/devices/cuda/kernels/common/kernels.h"

namespace consist::cuda {

/// Architectures that this build was compiled for, as CMAKE_CUDA_ARCHITECTURES names them: "80, 89, 90a".
const char* compiled_architectures();

/// Refuses a GPU for which the build has no code at all. `name`: the GPU's. ERRORS: UnavailableError.
void require_code(const std::string& name, const KernelSettings& settings);

/// Refuses a kernel whose file was not compiled for what it needs. `there`: what the code that this GPU runs says of itself.
/// `kernel`, `instead`: for people, what is refused and what else they can choose. ERRORS: UnavailableError.
void require_body(bool there, const char* architecture, const std::string& kernel, const std::string& instead,
                  const KernelSettings& settings);

}  // namespace consist::cuda
