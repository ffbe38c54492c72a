// HDF5 files from outside. Include from .cpp files of core/archive only.
#pragma once

#include <string>

#include "core/archive/hdf5.h"

namespace consist::hdf5 {

/// Opens a file to read it, whoever made it; within a Session. Nothing but the file itself is read, whatever it says, and reading
/// any of its datasets takes bounded memory. Refused are: soft, external and user-defined links (but external links in /runs of a
/// comparison, which are names and are not followed), datasets that lie in other files (external storage, virtual datasets),
/// filters other than deflate, shuffle and fletcher32, datasets that claim more bytes than the file can hold, nesting without
/// end. Throws SystemError if there is no such file or it is no regular one; DataError for these, and for what is no whole HDF5
/// file.
Handle open_input(const std::string& path);

/// The text of a dataset that is one string, of variable or fixed length. Throws DataError naming `path` and `name`.
std::string read_string(hid_t dataset, const std::string& path, const std::string& name);

/// True if a dataset or an attribute (given by its space) has exactly one element.
bool is_single(const Handle& space);

}  // namespace consist::hdf5
