// Reads a plugin's record from the bytes of its file, without loading it: no code of the plugin runs.
#pragma once

#include <filesystem>

#include "consist/plugin.h"

namespace consist {

/// The record in ELF section ".consist_plugin". Throws DataError that says what is wrong with the file: not readable, no ELF
/// shared object of this machine's kind, cut off, no such section (not a plugin), or a record of another form.
CONSIST_API PluginInfo read_manifest(const std::filesystem::path& file);

/// Major version of the CUDA toolkit that this build's own plugins were built with, 0 in a build without CUDA.
CONSIST_API int cuda_major_of_build() noexcept;

/// Why a plugin with that record cannot be loaded by a build with CUDA `cuda_major` (another API version, fingerprint or CUDA,
/// with both values and the remedy); empty if it can. A build without CUDA takes plugins of any CUDA.
CONSIST_API std::string incompatibility(const PluginInfo& info, int cuda_major = cuda_major_of_build());

}  // namespace consist
