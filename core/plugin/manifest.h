// Reads a plugin's record from the bytes of its file, without loading it: no code of the plugin runs.
#pragma once

#include <filesystem>
#include <vector>

#include "consist/plugin.h"
#include "core/plugin/header_marks.h"

namespace consist {

/// A plugin's record, and the public headers that it was built with.
struct PluginManifest : PluginInfo {
  std::vector<HeaderMark> headers;  ///< by name; empty if it was built with headers without marks, as the plugins of a build are
};

/// The record in ELF section ".consist_plugin", with the headers in ".consist_headers". Throws DataError that says what is wrong
/// with the file: not readable, no ELF shared object of this machine's kind, cut off, no such section (not a plugin), or a record
/// of another form.
CONSIST_API PluginManifest read_manifest(const std::filesystem::path& file);

/// Major version of the CUDA toolkit that this build's own plugins were built with, 0 in a build without CUDA.
CONSIST_API int cuda_major_of_build() noexcept;

/// Why a plugin with that record cannot be loaded by a build with CUDA `cuda_major` (another API version, other headers, compiler
/// or CUDA, with both values and the remedy); empty if it can. A plugin that names its headers must agree in those; one that does
/// not must agree in all. A build without CUDA takes plugins of any CUDA.
CONSIST_API std::string incompatibility(const PluginManifest& plugin, int cuda_major = cuda_major_of_build());

}  // namespace consist
