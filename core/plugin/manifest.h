// Reads a plugin's record from the bytes of its file, without loading it: no code of the plugin runs.
#pragma once

#include <filesystem>

#include "consist/plugin.h"

namespace consist {

/// The record in ELF section ".consist_plugin". Throws DataError that says what is wrong with the file: not readable, no ELF
/// shared object of this machine's kind, cut off, no such section (not a plugin), or a record of another form.
CONSIST_API PluginInfo read_manifest(const std::filesystem::path& file);

/// Why a plugin with that record cannot be loaded by this build (another API version or fingerprint, with both values and the
/// remedy); empty if it can.
CONSIST_API std::string incompatibility(const PluginInfo& info);

}  // namespace consist
