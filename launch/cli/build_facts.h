// Facts of this build, for consist --version.
#pragma once

namespace consist::launch {

/// Lines "name=value": the compiler, versions of libraries, the CUDA toolkit, the commit. Written by the build.
const char* build_facts() noexcept;

}  // namespace consist::launch
